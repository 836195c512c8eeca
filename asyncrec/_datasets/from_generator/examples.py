"""Prepare the features that a generator yields for an Example: flatten dicts, convert nested lists, and read files.

    {"image": Path("cat.png"), "box": {"x": 1, "y": 2}, "mask": [[0, 1], [1, 0]]}
    {"image": b"\\x89PNG...", "box/x": 1, "box/y": 2, "mask": array of shape (2, 2)}

A path must be a `pathlib.Path`, which only the generator's own code can create. Text is never a path. (datum treats any
text that ends in .png as a path, so the authors of the texts in a data set could choose which files datum opens.)

The size of a PNG or JPEG, and the number of values per pixel, are read from the first bytes of its file. The shape is
that of the NumPy array of an image opened by Pillow: ``[height, width]`` for grey images and for palettes, otherwise
with a third axis.

Reading files blocks, so call these functions in worker threads.
"""

from __future__ import annotations

from collections.abc import Mapping
from os import PathLike, fspath
from pathlib import Path
from struct import Struct
from typing import Any, BinaryIO

import numpy as np

from asyncrec.errors import ArgumentTypeError, SchemaError
from asyncrec.storage._local.disk import mapped_errors

_NO_DICTS = {bool, int, float, str, bytes, list, tuple, np.ndarray}


def prepare(datum: Mapping[str, Any]) -> dict[str, Any]:
    """Return the prepared features of one example, by name. See the module's docstring.

    Raises:
        SchemaError: two features have the same name, or a nested list is ragged.
        ObjectNotFoundError, StorageError: a file does not exist, or cannot be read.
    """
    return {name: _value(name, value) for name, value in flatten(datum).items()}


def flatten(datum: Mapping[str, Any]) -> dict[str, Any]:
    """Return the features without nesting: ``b`` in the dict ``a`` becomes ``a/b``.

    Raises:
        SchemaError: two features would have the same name.
        TypeError: a name is not a str.
    """
    flat: dict[str, Any] = {}
    for name, value in datum.items():
        if not isinstance(name, str):
            raise ArgumentTypeError(f"the name of a feature must be a str, not {type(name).__name__}: {name!r}")
        if not _is_dict(value):
            inner = {name: value}
        else:
            inner = {f"{name}/{below}": each for below, each in flatten(value).items()}
        for full, each in inner.items():
            if full in flat:
                raise SchemaError(
                    f"feature {full!r} occurs twice: once under this name, and once inside a nested dict; rename "
                    "one of them"
                )
            flat[full] = each
    return flat


def with_shapes(datum: Mapping[str, Any], sparse_features: tuple[str, ...]) -> dict[str, Any]:
    """Return the features, and the shape of each sparse feature of two axes or more as ``<name>_shape``.

    The name ``a/b`` refers to ``b`` in the nested dict ``a``, as in `flatten`. Its shape is then ``a/b_shape``.

    Raises:
        SchemaError: a nested list is ragged, so it has no shape.
    """
    flat = flatten(datum) if any("/" in name for name in sparse_features) else datum
    shapes = {}
    for name in sparse_features:
        if name in flat and not _is_dict(flat[name]):
            shape = np.shape(_as_array(name, flat[name]))
            if len(shape) >= 2:
                shapes[f"{name}_shape"] = list(shape)
    return {**datum, **shapes}


def _is_dict(value: object) -> bool:
    # Check the common types first, because an instance check with an abstract class is slow.
    return type(value) not in _NO_DICTS and isinstance(value, Mapping)


def _value(name: str, value: Any) -> Any:
    if isinstance(value, PathLike):
        return _contents(name, value)
    if isinstance(value, list | tuple) and value:
        first = value[0]
        if isinstance(first, list | tuple | np.ndarray):
            return _as_array(name, value)
        if isinstance(first, PathLike) and all(isinstance(each, PathLike) for each in value):
            return [_contents(name, each) for each in value]
    return value


def _as_array(name: str, value: Any) -> Any:
    """Convert a nested list to an array. Return any other value unchanged."""
    if not isinstance(value, list | tuple) or not value or not isinstance(value[0], list | tuple | np.ndarray):
        return value
    try:
        array = np.array(value)
    except ValueError:
        raise SchemaError(
            f"feature {name!r}: the rows of the nested list differ in length, so it has no shape; pad the rows, or "
            "pass a flat list"
        ) from None
    if array.dtype == np.float64 and not _holds_float64(value):
        return _rounded(name, value, array)
    if array.dtype.kind in "SU":  # NumPy would strip trailing zero bytes
        return _objects(value, array.shape)
    return array


def _rounded(name: str, value: Any, array: Any) -> Any:
    """Return an array of Python numbers as float32, because encoding always rounds Python floats to float32."""
    with np.errstate(over="ignore"):
        rounded = array.astype(np.float32)
    if (np.isinf(rounded) & ~np.isinf(array)).any():
        raise SchemaError(f"feature {name!r}: the nested list contains a number that is out of range for float32")
    # NumPy makes floats of integers that do not fit int64.
    if (abs(array) >= 1 << 63).any() and not any(isinstance(each, float) for each in np.array(value, object).flat):
        raise SchemaError(f"feature {name!r}: the nested list contains an integer that is out of range for int64")
    return rounded


def _holds_float64(value: Any) -> bool:
    if isinstance(value, list | tuple):
        return any(map(_holds_float64, value))
    return isinstance(value, np.ndarray | np.generic) and value.dtype == np.float64


def _objects(value: Any, shape: tuple[int, ...]) -> Any:
    array = np.empty(shape, object)
    array[...] = np.array(value, dtype=object).reshape(shape)
    return array


def _contents(name: str, path: PathLike[Any]) -> bytes:
    with mapped_errors(f"reading the file of feature {name!r},", fspath(path)):
        return Path(path).read_bytes()


_PNG = b"\x89PNG\r\n\x1a\n"
_HEADER = Struct(">I4sIIBB")  # after the signature: chunk length, type, width, height, depth, colour type
_PNG_AXES: dict[int, list[int]] = {0: [], 2: [3], 3: [], 4: [2], 6: [4]}
_LENGTH = Struct(">H")
_FRAME = Struct(">BHHB")  # depth, height, width, components
_NO_LENGTH = {0x01, *range(0xD0, 0xD9)}
_FRAMES = {*range(0xC0, 0xD0)} - {0xC4, 0xC8, 0xCC}
_MOST_SEGMENTS = 10_000


def image_shapes(features: Mapping[str, Any]) -> dict[str, list[int]]:
    """Return the shape of each feature that is the path of a PNG or JPEG image."""
    shapes = {}
    for name, value in features.items():
        if not isinstance(value, PathLike):
            continue
        try:
            with open(value, "rb") as file:
                shape = image_shape(file)
        except (OSError, ValueError):
            continue
        if shape is not None:
            shapes[name] = shape
    return shapes


def image_shape(file: BinaryIO) -> list[int] | None:
    """Return the shape of an image, or `None` if it is not a PNG or JPEG, or if the file ends before the size."""
    start = file.read(len(_PNG))
    if start == _PNG:
        header = file.read(_HEADER.size)
        if len(header) < _HEADER.size:
            return None
        _, kind, width, height, _, colour = _HEADER.unpack(header)
        return [height, width, *_PNG_AXES[colour]] if kind == b"IHDR" and colour in _PNG_AXES else None
    return _jpeg_shape(file) if start[:2] == b"\xff\xd8" else None


def _jpeg_shape(file: BinaryIO) -> list[int] | None:
    file.seek(2)
    for _ in range(_MOST_SEGMENTS):
        marker = file.read(2)
        if len(marker) < 2 or marker[0] != 0xFF:
            return None
        if marker[1] == 0xFF:  # padding
            file.seek(-1, 1)
            continue
        if marker[1] in _NO_LENGTH:
            continue
        length = file.read(_LENGTH.size)
        if len(length) < _LENGTH.size:
            return None
        (size,) = _LENGTH.unpack(length)
        if marker[1] in _FRAMES:
            frame = file.read(_FRAME.size)
            if len(frame) < _FRAME.size:
                return None
            _, height, width, components = _FRAME.unpack(frame)
            return [height, width] if components == 1 else [height, width, components]
        file.seek(max(size - _LENGTH.size, 0), 1)
    return None
