"""What a generator yields is made ready for an Example: nested dicts flattened, nested lists made arrays, images read.

    {"image": "cat.png", "box": {"x": 1, "y": 2}, "mask": [[0, 1], [1, 0]]}
    {"image": b"\\x89PNG...", "box/x": 1, "box/y": 2, "mask": array of shape (2, 2)}

Text that ends in .png, .jpg or .jpeg is the path of an image, as in datum, and becomes the file's bytes; one with a
scheme (``https://...``) stays text. Where such text is not a path, give `asyncrec.encode_example` as the serializer:
it takes values as they are.

Reading files blocks: for worker threads.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from asyncrec.errors import ArgumentTypeError, SchemaError
from asyncrec.storage._local.disk import mapped_errors

_NO_DICTS = {bool, int, float, str, bytes, list, tuple, np.ndarray}
IMAGES = (".png", ".jpg", ".jpeg")


def prepare(datum: Mapping[str, Any]) -> dict[str, Any]:
    """The features of one example, by name; see the module.

    Raises:
        SchemaError: two features have one name, or a nested list is ragged.
        ObjectNotFoundError, StorageError: an image is not there, or cannot be read.
    """
    return {name: _value(name, value) for name, value in flatten(datum).items()}


def flatten(datum: Mapping[str, Any]) -> dict[str, Any]:
    """Without nesting: what is ``b`` in the dict ``a`` is called ``a/b``.

    Raises:
        SchemaError: two features have one name then.
        TypeError: a name is no str.
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
                raise SchemaError(f"feature {full!r} occurs twice: by its name, and inside a dict")
            flat[full] = each
    return flat


def with_shapes(datum: Mapping[str, Any], sparse_features: tuple[str, ...]) -> dict[str, Any]:
    """With ``<name>_shape`` for each sparse feature of two axes or more, so that its shape can be restored.

    A name may lead into nested dicts, as in ``flatten``: ``a/b``; its shape is then ``a/b_shape``.

    Raises:
        SchemaError: a nested list is ragged, so that it has no shape.
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
    # The types first: to ask an abstract class takes longer than all else here.
    return type(value) not in _NO_DICTS and isinstance(value, Mapping)


def _value(name: str, value: Any) -> Any:
    if isinstance(value, str):
        return _image(name, value) if value.endswith(IMAGES) else value
    if isinstance(value, list | tuple) and value:
        first = value[0]
        if isinstance(first, list | tuple | np.ndarray):
            return _as_array(name, value)
        if isinstance(first, str) and all(isinstance(each, str) and each.endswith(IMAGES) for each in value):
            images = [_image(name, each) for each in value]
            return images if all(isinstance(each, bytes) for each in images) else value
    return value


def _as_array(name: str, value: Any) -> Any:
    """A nested list as an array; all else as it is."""
    if not isinstance(value, list | tuple) or not value or not isinstance(value[0], list | tuple | np.ndarray):
        return value
    try:
        array = np.array(value)
    except ValueError:
        raise SchemaError(f"feature {name!r}: a nested list whose rows differ in length has no shape") from None
    if array.dtype == np.float64 and not _holds_float64(value):
        return array.astype(np.float32)  # Python floats: nobody chose their 64 bits (as everywhere in encoding)
    if array.dtype.kind in "SU":  # NumPy would cut trailing zero bytes off
        return _objects(value, array.shape)
    return array


def _holds_float64(value: Any) -> bool:
    if isinstance(value, list | tuple):
        return any(map(_holds_float64, value))
    return isinstance(value, np.ndarray | np.generic) and value.dtype == np.float64


def _objects(value: Any, shape: tuple[int, ...]) -> Any:
    array = np.empty(shape, object)
    array[...] = np.array(value, dtype=object).reshape(shape)
    return array


def _image(name: str, text: str) -> str | bytes:
    if "://" in text:
        return text
    try:
        with mapped_errors(f"reading the image of feature {name!r},", text):
            return Path(text).read_bytes()
    except OSError as error:
        error.add_note(
            "text that ends in .png, .jpg or .jpeg is taken to be the path of an image; otherwise pass "
            "serializer=asyncrec.encode_example, which stores values unchanged"
        )
        raise
