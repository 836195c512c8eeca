"""`features_of` converts an item to the features of an Example, and `item_of` restores the item from the record.

value                                   stored as
text, bytes, an int64                   itself
a float                                 a float32, and also JSON unless float32 is exact
a bool                                  0 or 1, and also JSON
two or more texts, bytes or numbers     a feature of many values; floats as above
any other JSON value                    JSON: None, and nested, mixed, empty or too large values
a value that JSON cannot represent      its text, within the JSON

The JSON of all these fields is one feature, ``_json``. So training reads plain features, while Crawlee reads the items
as they were pushed.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping, Sequence
from typing import Any

import asyncrec

_JSON = "_json"
_INT64 = range(-(1 << 63), 1 << 63)


def features_of(item: Mapping[str, Any]) -> dict[str, Any]:
    """Return the features of an item."""
    features: dict[str, Any] = {}
    values: dict[str, Any] = {}
    binary: list[str] = []
    for key, value in item.items():
        name = str(key)
        feature, exact = _feature(value)
        if name == _JSON:
            feature, exact = None, False
        if feature is not None:
            features[name] = feature
            if isinstance(feature, bytes) or (isinstance(feature, list) and isinstance(feature[0], bytes)):
                binary.append(name)
        if not exact:
            values[name] = value
    if values or binary:
        features[_JSON] = json.dumps({"values": values, "bytes": binary}, default=str)
    return features


def item_of(record: bytes) -> dict[str, Any]:
    """Return the item stored in a record created with `features_of`, or in any other Example."""
    features = asyncrec.decode_example(record)
    told = features.pop(_JSON, None)
    rest = json.loads(told[0]) if told is not None else {"values": {}, "bytes": []}
    item: dict[str, Any] = {}
    for name, feature in features.items():
        many = [_text(each, name in rest["bytes"]) for each in _listed(feature)]
        item[name] = many[0] if len(many) == 1 else many
    item.update(rest["values"])
    return item


def _feature(value: Any) -> tuple[Any, bool]:
    """Return the feature for a value (or `None`), and whether the feature alone restores the value."""
    if isinstance(value, bool):
        return int(value), False
    if isinstance(value, str):
        try:
            value.encode()
        except UnicodeEncodeError:
            return None, False
        return value, True
    if isinstance(value, bytes | bytearray):
        return bytes(value), True
    if isinstance(value, int):
        return (value, True) if value in _INT64 else (None, False)
    if isinstance(value, float):
        return _float(value)
    if isinstance(value, list | tuple) and value:
        made = [_feature(each) for each in value]
        kinds = {type(feature) for feature, _ in made}
        if len(kinds) == 1 and kinds <= {str, bytes, int, float} and not isinstance(value[0], bool):
            several = isinstance(value, list) and len(value) > 1
            return [feature for feature, _ in made], several and all(exact for _, exact in made)
    return None, False


def _float(value: float) -> tuple[float | None, bool]:
    try:
        rounded = struct.unpack("<f", struct.pack("<f", value))[0]
    except OverflowError:  # outside the range of float32
        return None, False
    return value, bool(rounded == value)


def _listed(feature: Any) -> Sequence[Any]:
    return feature if isinstance(feature, list) else feature.tolist() if hasattr(feature, "tolist") else [feature]


def _text(value: Any, binary: bool) -> Any:
    if not isinstance(value, bytes) or binary:
        return value
    try:
        return value.decode()
    except UnicodeDecodeError:
        return value
