"""Convert a record to a JSON value and back, without loss. This module does no I/O.

An Example becomes an object with its features by name. A feature with one value becomes that value, unless the schema
declares it as a list; any other feature becomes a list. int64 values become numbers without a fraction. Floats become
numbers with a fraction, with the fewest digits that represent the same float32. Bytes that are valid UTF-8 become text.
Values that JSON cannot represent are marked:

    {"$base64": "..."}                      bytes that are not UTF-8
    {"$float": "nan"}                       also "inf" and "-inf"
    {"$context": {...}, "$lists": {...}}    a SequenceExample; a feature list is a list of features
    {"$record": ...}                        the bytes of a record that is not an Example

An Example whose features have exactly the names of such an object becomes ``{"$context": {...}, "$lists": {}}``.

``to_json`` and ``from_json`` are inverses, except for details that are lost when an Example is decoded (the kind of an
empty list, the order and packing of the features on the wire), and for the payload of a NaN.
"""

from __future__ import annotations

import base64
import binascii
import math
from collections.abc import Callable, Collection, Mapping
from typing import Any

import numpy as np

from asyncrec.errors import DecodeError, SchemaError
from asyncrec.example._codec import Decoded, decode_sequence_example, encode_example, encode_sequence_example

# The names of the members by which ``from_json`` recognizes an object that is not the features of an Example.
RECORD, SEQUENCE = _RESERVED = ({"$record"}, {"$context", "$lists"})


def is_example(record: bytes) -> bool:
    """Return whether a record can be decoded as an Example or a SequenceExample with at least one feature."""
    try:
        context, lists = decode_sequence_example(record)
    except DecodeError:
        return False
    return bool(context or lists)


def lists_of(schema: Mapping[str, Any] | None) -> frozenset[str]:
    """Return the features that a schema declares as lists. The schema has the form returned by ``Schema.to_json``."""
    features = (schema or {}).get("features")
    if not isinstance(features, Mapping):
        return frozenset()
    return frozenset(name for name, entry in features.items() if not _is_scalar(entry))


def to_json(record: bytes, *, lists: Collection[str] = (), only: Collection[str] | None = None) -> dict[str, Any]:
    """Return the JSON value of a record.

    Args:
        lists: features that become lists, even with a single value.
        only: the features to keep; `None` for all.
    """
    try:
        context, sequences = decode_sequence_example(record)
    except DecodeError:
        return {"$record": _bytes(record)}
    if not context and not sequences:
        return {"$record": _bytes(record)}
    features = {
        name: feature_to_json(value, always_list=name in lists)
        for name, value in context.items()
        if only is None or name in only
    }
    if not sequences and features.keys() not in _RESERVED:
        return features
    return {
        "$context": features,
        "$lists": {
            name: [feature_to_json(step) for step in steps]
            for name, steps in sequences.items()
            if only is None or name in only
        },
    }


def from_json(value: object) -> bytes:
    """Return the record for a JSON value, whether from ``to_json`` or written by hand, such as ``{"label": 3}``.

    `True` and `False` become int64; `None` means that the feature is absent.

    Raises:
        SchemaError: the value is not an object, or a member cannot be a feature, such as an unmarked object, an
            unmarked infinity or a list of mixed types.
    """
    if not isinstance(value, Mapping):
        raise SchemaError(f"a record must be a JSON object, not a {type(value).__name__}")
    if value.keys() == RECORD:
        record = _value(value["$record"])
        return record.encode() if isinstance(record, str) else _only_bytes(record)
    if value.keys() == SEQUENCE:
        context, lists = value["$context"], value["$lists"]
        if not isinstance(context, Mapping) or not isinstance(lists, Mapping):
            raise SchemaError("$context and $lists must be objects")
        if not lists:
            return encode_example(_features(context), narrow=True)
        return encode_sequence_example(
            _features(context), {name: [_plain(step) for step in steps] for name, steps in lists.items()}, narrow=True
        )
    return encode_example(_features(value), narrow=True)


def _features(values: Mapping[str, Any]) -> dict[str, Any]:
    features = {}
    for name, value in values.items():
        try:
            if value is not None:
                features[name] = _plain(value)
        except SchemaError as error:
            raise SchemaError(f"feature {name!r}: {error}") from None
    return features


def _plain(value: Any) -> Any:
    """Return a feature in the form that the encoder requires. Integers in a list with floats also become floats."""
    if not isinstance(value, list):
        return _value(value)
    values = [_value(each) for each in value]
    if any(isinstance(each, float) for each in values) and all(type(each) in (int, float) for each in values):
        try:
            return [float(each) for each in values]
        except OverflowError:
            raise SchemaError("an integer in a list with floats is out of range for float32") from None
    if any(isinstance(each, bytes) for each in values):
        return [each.encode() if isinstance(each, str) else each for each in values]
    return values


def _value(value: Any) -> Any:
    if isinstance(value, Mapping):
        if value.keys() == {"$base64"} and isinstance(value["$base64"], str):
            try:
                return base64.b64decode(value["$base64"], validate=True)
            except binascii.Error as error:
                raise SchemaError(f"$base64: {error}") from None
        if value.keys() == {"$float"} and value["$float"] in ("nan", "inf", "-inf"):
            return float(value["$float"])
        raise SchemaError(f"an object cannot be the value of a feature: {str(value)[:80]}")
    if isinstance(value, list):
        raise SchemaError("a nested list cannot be the value of a feature; flatten it")
    if isinstance(value, float) and math.isinf(value):  # Python's parser returns infinity for a number such as 1e400
        raise SchemaError("a number is out of range for float32; infinity is written as {'$float': 'inf'}")
    return value


def _only_bytes(value: object) -> bytes:
    if not isinstance(value, bytes):
        raise SchemaError("$record must be text or {'$base64': ...}")
    return value


def feature_to_json(value: Decoded, *, always_list: bool = False) -> Any:
    """Return the JSON value of a feature. Different values have different JSON texts, except for NaNs."""
    values = list(map(_encoder(value), value.tolist() if isinstance(value, np.ndarray) else value))
    return values[0] if len(values) == 1 and not always_list else values


def _encoder(value: Decoded) -> Callable[[Any], Any]:
    if not isinstance(value, np.ndarray):
        return _bytes
    return _float if value.dtype == np.float32 else int


def _float(value: float) -> Any:
    if math.isfinite(value):
        return float(str(np.float32(value)))  # 0.1 rather than 0.10000000149011612
    return {"$float": str(value)}


def _bytes(value: bytes) -> Any:
    try:
        return value.decode()
    except UnicodeDecodeError:
        return {"$base64": base64.b64encode(value).decode()}


def _is_scalar(entry: object) -> bool:
    return isinstance(entry, Mapping) and (
        entry.get("shape") == [] or bool(entry.get("raw")) or entry.get("kind") == "Tensor"
    )
