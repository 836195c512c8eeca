"""`Description` describes the features of all examples of a split, as a `Schema` and as datum's table of types and
shapes.

It considers all examples, not only the last one. Types that are stored as the same kind are merged, and a feature whose
length varies becomes a VarLen. If examples contradict each other, the error names the feature and two of the examples.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any

import numpy as np

from asyncrec.errors import DecodeError, SchemaError
from asyncrec.example._dtypes import common_dtype, kind_of
from asyncrec.example._schema import Entry, FixedLen, Schema, Tensor, VarLen
from asyncrec.example._wire import BYTES, FLOAT, INT64, KINDS, NONE, parse_example

FeatureTable = dict[str, dict[str, Any]]
"""datum's table: ``{feature: {"type": "int" | "float" | "string", "shape": [...], "dense": bool}}``."""

Shape = tuple[int | None, ...]
_Kind = tuple[str | None, Shape]  # the type (None for an empty value) and the shape

_TYPES = {INT64: "int", FLOAT: "float", BYTES: "string"}
_PLAIN = {INT64: "int64", FLOAT: "float32", BYTES: "bytes"}
_OF_TYPE = {"int": "int64", "float": "float32", "string": "bytes"}
_SCALARS: dict[type, _Kind] = {
    bool: ("bool", ()),
    int: ("int64", ()),
    float: ("float32", ()),
    str: ("str", ()),
    bytes: ("bytes", ()),
}
# The number of combinations of types and shapes to remember. An example with a known combination needs only a look-up,
# but there are many combinations if lengths vary.
_REMEMBERED = 4096


@dataclass
class _Feature:
    dtype: str | None
    shape: Shape
    example: int
    """The number of an example that has the feature."""
    lacking: int | None
    """The number of an example that lacks the feature, or `None` if every example has it."""


class Description:
    """A description of all examples of a split. Examples may be added in any order.

    Args:
        sparse_features: the features whose shapes vary between examples.
    """

    def __init__(self, sparse_features: Sequence[str] = ()) -> None:
        self._sparse = frozenset(sparse_features)
        self._features: dict[str, _Feature] = {}
        self._seen: set[tuple[Any, ...]] = set()
        self._first: int | None = None
        self._opaque = False
        self._images: Mapping[str, list[int]] = {}

    def see(self, features: Mapping[str, Any], example: int) -> None:
        """Add one example, as it was passed to `encode_example`.

        Raises:
            SchemaError: the example contradicts an earlier example.
        """
        self._see(tuple([(name, *_kind(value)) for name, value in features.items()]), example)

    def see_record(self, record: bytes, features: Mapping[str, Any], example: int) -> None:
        """Add a record that a custom serializer made from ``features``.

        A stored feature gets the shape of its value in ``features`` if both have the same number of elements. If any
        record is not an Example, the split has no description.

        Raises:
            SchemaError: the record contradicts an earlier record.
        """
        if self._opaque:
            return
        kinds = []
        try:
            for name, (kind, payload) in sorted(parse_example(record).items()):
                if kind == NONE:
                    continue
                count = _count(kind, payload)
                shape: Shape = () if count == 1 else (count,)
                if name in features and math.prod(given := np.shape(features[name])) == count:
                    shape = given
                kinds.append((name, _PLAIN[kind], shape))
        except DecodeError:
            self._opaque = True
            return
        self._see(tuple(kinds), example)

    def see_images(self, shapes: Mapping[str, list[int]]) -> None:
        """Set the shapes in pixels, height first, of the features that contain the bytes of an image file.

        datum's table gives these shapes instead of the shape of the stored scalar, because datum needs them to decode
        the images.
        """
        self._images = shapes

    def schema(self) -> Schema | None:
        """Return the schema that decodes all examples, or `None` if a record is not an Example.

        Raises:
            SchemaError: no schema decodes all examples. The message names the feature.
        """
        if self._opaque:
            return None
        entries: dict[str, Entry] = {}
        shapes = {f"{name}_shape" for name in self._features if self._is_tensor(name)}
        for name in sorted(self._features.keys() - shapes):
            feature = self._features[name]
            if feature.dtype is not None:
                entries[name] = self._entry(name, feature)
        return Schema(entries)

    def table(self) -> FeatureTable:
        """Return datum's table. If a size varies between examples, it is -1, and the feature is not dense."""
        if self._opaque:
            return {}
        return {
            name: {
                "type": _TYPES[kind_of(feature.dtype)],
                "shape": self._shape(name, feature),
                "dense": name not in self._sparse and None not in feature.shape and feature.lacking is None,
            }
            for name, feature in sorted(self._features.items())
            if feature.dtype is not None
        }

    def _shape(self, name: str, feature: _Feature) -> list[int]:
        if not feature.shape and feature.dtype in ("bytes", "str") and name in self._images:
            return self._images[name]
        return [-1 if size is None else size for size in feature.shape]

    def _see(self, kinds: tuple[tuple[str, str | None, Shape], ...], example: int) -> None:
        if kinds in self._seen:
            return
        for name, dtype, shape in kinds:
            feature = self._features.get(name)
            if feature is None:
                self._features[name] = _Feature(dtype, shape, example, self._first)
            else:
                self._merge(name, feature, dtype, shape, example)
        if len(kinds) < len(self._features):
            for name in self._features.keys() - {kind[0] for kind in kinds}:
                if self._features[name].lacking is None:
                    self._features[name].lacking = example
        if self._first is None:
            self._first = example
        if len(self._seen) >= _REMEMBERED:
            self._seen.clear()
        self._seen.add(kinds)

    def _merge(self, name: str, feature: _Feature, dtype: str | None, shape: Shape, example: int) -> None:
        if feature.dtype is None or dtype is None:
            feature.dtype = feature.dtype or dtype
        elif kind_of(feature.dtype) != kind_of(dtype):
            raise SchemaError(
                f"feature {name!r} is {KINDS[kind_of(feature.dtype)]} in example {feature.example} and "
                f"{KINDS[kind_of(dtype)]} in example {example}; a feature must have the same kind in every example"
            )
        else:
            feature.dtype = common_dtype(feature.dtype, dtype) or _PLAIN[kind_of(dtype)]
        if shape == feature.shape:
            return
        rank = len(feature.shape)
        if max(rank, len(shape)) < 2:
            feature.shape = (None,)
        elif rank == len(shape) and name in self._sparse:
            feature.shape = tuple(
                one if one == other else None for one, other in zip(feature.shape, shape, strict=True)
            )
        else:
            advice = (
                "" if rank != len(shape) else "; list it in sparse_features, so that each example keeps its own shape"
            )
            raise SchemaError(
                f"feature {name!r} has the shape {_shown(feature.shape)} in example {feature.example} and "
                f"{_shown(shape)} in example {example}{advice}"
            )

    def _is_tensor(self, name: str) -> bool:
        return name in self._sparse and len(self._features[name].shape) >= 2

    def _entry(self, name: str, feature: _Feature) -> Entry:
        assert feature.dtype is not None, "the caller skips features without a type"
        if len(feature.shape) >= 2:
            if feature.lacking is not None:
                raise SchemaError(
                    f"feature {name!r} has {len(feature.shape)} axes in example {feature.example}, but is missing "
                    f"from example {feature.lacking}; pass it in every example, as an empty array if it has no "
                    "values"
                )
            return Tensor(feature.dtype) if name in self._sparse else FixedLen(_sizes(feature.shape), feature.dtype)
        if None in feature.shape or feature.lacking is not None or name in self._sparse:
            return VarLen(feature.dtype)
        return FixedLen(_sizes(feature.shape), feature.dtype)


def schema_of_table(table: Mapping[str, Any]) -> Schema:
    """Return the schema that datum's table describes, for a data set without a stored schema.

    datum stores a dense string as one value, and gives the shape of the decoded image as its shape in the table.

    Raises:
        SchemaError: the table cannot be read.
    """
    entries: dict[str, Entry] = {}
    try:
        tensors = {name for name in table if f"{name}_shape" in table and not table[name]["dense"]}
        for name, feature in table.items():
            if name.removesuffix("_shape") in tensors and name.endswith("_shape"):
                continue
            dtype = _OF_TYPE[feature["type"]]
            if feature["dense"]:
                entries[name] = FixedLen(() if dtype == "bytes" else tuple(feature["shape"]), dtype)
            else:
                entries[name] = Tensor(dtype) if name in tensors else VarLen(dtype)
    except (KeyError, TypeError, AttributeError) as error:
        raise SchemaError(f"the table of feature types and shapes cannot be read: {error!r}") from error
    return Schema(entries)


def _kind(value: Any) -> _Kind:
    """Return the type and shape of a value that `encode_example` accepts."""
    known = _SCALARS.get(type(value))
    if known is not None:
        return known
    if isinstance(value, list | tuple):
        return _common(value), (len(value),)
    if isinstance(value, str):
        return "str", ()
    if isinstance(value, bytes | bytearray | memoryview):
        return "bytes", ()
    if isinstance(value, np.ndarray | np.generic):
        return _dtype_of(value), value.shape
    return _SCALARS[next(kind for kind in (bool, int, float) if isinstance(value, kind))]


def _common(values: Sequence[Any]) -> str | None:
    """Return the type of a list of values, or `None` for an empty list. A single float makes the list one of floats."""
    one_of_each_type = dict(zip(map(type, values), values, strict=True)).values()
    dtypes = [str(_kind(value)[0]) for value in one_of_each_type]
    return reduce(_wider, dtypes) if dtypes else None


def _wider(one: str, other: str) -> str:
    floats = FLOAT in (kind_of(one), kind_of(other))
    return common_dtype(one, other) or _PLAIN[FLOAT if floats else kind_of(one)]


def _dtype_of(array: Any) -> str | None:
    kind = array.dtype.kind
    if kind in "biu":
        return str(array.dtype.name)
    if kind in "SUT":
        return "bytes" if kind == "S" else "str"
    if kind == "O":
        return _common(array.reshape(-1)) if array.size else "bytes"
    return "float16" if array.dtype.name == "float16" else "float32"


def _count(kind: int, payload: bytes | list[bytes]) -> int:
    if isinstance(payload, list):
        return len(payload)
    # In a packed varint, only the last byte has its highest bit clear.
    return len(payload) // 4 if kind == FLOAT else int((np.frombuffer(payload, np.uint8) < 0x80).sum())


def _sizes(shape: Shape) -> tuple[int, ...]:
    return tuple(size for size in shape if size is not None)


def _shown(shape: Shape) -> str:
    inside = ", ".join("?" if size is None else str(size) for size in shape)
    return f"({inside},)" if len(shape) == 1 else f"({inside})"
