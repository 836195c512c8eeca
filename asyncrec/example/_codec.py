"""Encode mappings as tf.train.Examples, and decode Examples to mappings, without protobuf objects.

Encoding is deterministic. Features are sorted by the UTF-8 bytes of their names, and numbers are packed, so equal
values produce equal bytes. (protobuf's own deterministic order differs between runtimes.) `_values` defines how values
are converted and which values are rejected. `_wire` defines how records are parsed.

Decoding without a schema uses the types of the format. An int64 feature becomes an int64 array, and a float feature
becomes a float32 array. Both are one-dimensional, writable and new. A bytes feature becomes a list of bytes. A feature
without a kind becomes ``[]``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

from asyncrec._native import native
from asyncrec.errors import ArgumentTypeError, DecodeError, SchemaError
from asyncrec.example._values import CONVERTERS, raw_of
from asyncrec.example._varints import int64_values, varint
from asyncrec.example._wire import BYTES, FLOAT, INT64, NONE, Raw, parse_example, parse_sequence_example

Decoded: TypeAlias = "npt.NDArray[np.int64] | npt.NDArray[np.float32] | list[bytes]"

# A converted feature: its name, and the kind and payload of its value.
Prepared: TypeAlias = tuple[str, int, "bytes | memoryview | list[bytes]"]


class Message(Protocol):
    """A protobuf message of asyncrec or TensorFlow."""

    DESCRIPTOR: Any

    def SerializeToString(self, *, deterministic: bool = ...) -> bytes: ...  # noqa: N802  # protobuf's name


def encode_example(features: Mapping[str, object] | Message, *, narrow: bool = True) -> bytes:
    """Encode ``features``, a mapping or a ``tf.train.Example``, as a serialized tf.train.Example.

    64-bit floats are rounded to float32, the only float type of the format. With ``narrow=False``, an array of 64-bit
    floats that rounding would change raises SchemaError.

    Raises SchemaError, naming the feature, if no feature can represent a value or if a finite value would become
    infinite; TypeError if ``features`` is neither a mapping nor an Example.
    """
    if type(features) is dict:
        if native is not None:
            data = native.encode_example(features, bool(narrow), np.ndarray, raw_of)
            if data is not None:
                return data  # otherwise a value was rejected, and the code below raises
    elif not isinstance(features, Mapping):
        return _serialised(features, "Example")
    return _features(b"\x0a", features, narrow)


def encode_sequence_example(
    context: Mapping[str, object] | Message,
    feature_lists: Mapping[str, Iterable[object]] | None = None,
    *,
    narrow: bool = True,
) -> bytes:
    """Encode a context and feature lists, or the message itself, as a serialized tf.train.SequenceExample.

    A feature list is an iterable with one value per step, of the types that ``encode_example`` accepts. An array is
    split into steps along its first axis. All steps of a list must have the same kind, but a step may be empty.

    Raises the same errors as ``encode_example``. A SchemaError also names the step.
    """
    if not isinstance(context, Mapping):
        return _serialised(context, "SequenceExample")
    lists = {} if feature_lists is None else feature_lists
    entries = [_entry(name, _steps(name, lists[name], narrow)) for name in _sorted(lists)]
    return _features(b"\x0a", context, narrow) + _delimited(b"\x12", b"".join(entries))


def decode_example(data: bytes | bytearray | memoryview) -> dict[str, Decoded]:
    """Decode a serialized Example to a dict of values by feature name.

    Raises DecodeError, with the offset or the name of the feature, if ``data`` is not a serialized Example.
    """
    return {name: _decoded(name, raw) for name, raw in parse_example(bytes(data)).items()}


def decode_sequence_example(
    data: bytes | bytearray | memoryview,
) -> tuple[dict[str, Decoded], dict[str, list[Decoded]]]:
    """Decode a serialized SequenceExample to its context and its feature lists, which have one value per step.

    An Example is decoded as a SequenceExample without feature lists. Raises DecodeError as ``decode_example`` does.
    """
    context, lists = parse_sequence_example(bytes(data))
    return (
        {name: _decoded(name, raw) for name, raw in context.items()},
        {name: [_decoded(name, raw) for raw in steps] for name, steps in lists.items()},
    )


def feature_bytes(raw: Raw) -> bytes:
    """Return the serialized Feature of a kind and payload."""
    kind, payload = raw
    if kind == NONE:
        return b""
    if isinstance(payload, list):
        body = b"".join([_delimited(b"\x0a", value) for value in payload])
    else:
        body = _delimited(b"\x0a", payload) if payload else b""
    return _delimited(_TAGS[kind], body)


_TAGS = (b"", b"\x0a", b"\x12", b"\x1a")  # the tags of the lists in a Feature, by kind


def encode_prepared(features: Iterable[Prepared], *, tag: bytes = b"\x0a") -> bytes:
    """Return the Features message of ``features``, which must be sorted by name, as a field with this tag.

    Each buffer is copied only once, by the final join.
    """
    parts: list[bytes | memoryview] = [tag, b""]
    size = 0
    for name, kind, payload in features:
        if not isinstance(payload, list):
            head, length = _head(name, kind, len(payload))
            parts += (head, payload)
        elif len(payload) == 1:
            head, length = _head(name, kind, len(payload[0]))
            parts += (head, payload[0])
        else:
            entry = _entry(name, feature_bytes((kind, payload)))
            length = len(entry)
            parts.append(entry)
        size += length
    parts[1] = varint(size)
    return b"".join(parts)


def encode_prepared_lists(lists: Mapping[str, Iterable[Raw]]) -> bytes:
    """Return the FeatureLists message of converted steps, as a field of a SequenceExample.

    The steps of each list must have the same kind.
    """
    entries = [
        _entry(name, b"".join([_delimited(b"\x0a", feature_bytes(raw)) for raw in lists[name]]))
        for name in sorted(lists)
    ]
    return _delimited(b"\x12", b"".join(entries))


def _features(tag: bytes, features: Mapping[str, object], narrow: bool) -> bytes:
    """Convert the values and return their Features message."""
    prepared: list[Prepared] = []
    for name in _sorted(features):
        value = features[name]
        try:
            convert = CONVERTERS.get(type(value))  # saves a call to raw_of, a tenth of the time for a small example
            kind, payload = convert(value, narrow) if convert is not None else raw_of(value, narrow)
        except SchemaError as error:
            raise SchemaError(f"feature {name!r}: {error}") from None
        prepared.append((name, kind, payload))
    return encode_prepared(prepared, tag=tag)


# The cache has an entry per feature name, kind and payload size. Most data sets need far fewer entries than the
# maximum. Each entry uses about 300 bytes.
@lru_cache(maxsize=4096)
def _head(name: str, kind: int, size: int) -> tuple[bytes, int]:
    """Return a map entry up to its payload of ``size`` bytes, and the length of the entry including the payload.

    The payload is the only value of its list and ends the entry. An empty list of packed numbers has no field for its
    values. A list with one empty bytes value has an empty field.
    """
    value = b"\x0a" + varint(size) if size or kind == BYTES else b""
    feature = _TAGS[kind] + varint(len(value) + size) + value if kind != NONE else b""
    key = _delimited(b"\x0a", _name(name)) + b"\x12" + varint(len(feature) + size) + feature
    head = b"\x0a" + varint(len(key) + size) + key
    return head, len(head) + size


def _entry(name: str, value: bytes) -> bytes:
    return _delimited(b"\x0a", _delimited(b"\x0a", _name(name)) + _delimited(b"\x12", value))


def _steps(name: str, values: Iterable[object], narrow: bool) -> bytes:
    """Serialize the values of the feature list ``name`` as a FeatureList."""
    if isinstance(values, str | bytes | bytearray | Mapping) or not isinstance(values, Iterable):
        raise SchemaError(f"feature list {name!r} is a {type(values).__name__}; pass a list with one value per step")
    kinds: set[int] = set()
    parts = []
    for step, value in enumerate(values):
        try:
            raw = raw_of(value, narrow)
        except SchemaError as error:
            raise SchemaError(f"feature list {name!r}, step {step}: {error}") from None
        kinds |= {raw[0]} - {NONE}
        if len(kinds) > 1:
            raise SchemaError(
                f"feature list {name!r}, step {step}: the value has a different type than the earlier steps; all "
                "steps must have the same type"
            )
        parts.append(_delimited(b"\x0a", feature_bytes(raw)))
    return b"".join(parts)


def _sorted(features: Mapping[str, object]) -> list[str]:
    """Return the names sorted by their UTF-8 bytes. Python sorts str by code points, which is the same order."""
    try:
        return sorted(features)
    except TypeError:
        raise ArgumentTypeError("the name of a feature must be a str") from None


def _name(name: str) -> bytes:
    if not isinstance(name, str):
        raise ArgumentTypeError(f"the name of a feature must be a str, not {type(name).__name__}: {name!r}")
    try:
        return name.encode()
    except UnicodeEncodeError:
        raise SchemaError(f"feature {name!r}: the name contains characters that cannot be encoded as UTF-8") from None


def _delimited(tag: bytes, body: bytes) -> bytes:
    return b"".join((tag, varint(len(body)), body))


def _serialised(message: Message, name: str) -> bytes:
    """Serialize a message named ``name`` from any protobuf package: asyncrec's, TensorFlow's or a copy."""
    descriptor = getattr(message, "DESCRIPTOR", None)
    if getattr(descriptor, "name", None) != name:
        raise ArgumentTypeError(
            f"expected a mapping of names to values, or a message {name}, not a {type(message).__name__}"
        )
    return bytes(message.SerializeToString(deterministic=True))


def _decoded(name: str, raw: Raw) -> Decoded:
    kind, payload = raw
    if kind == INT64:
        try:
            return int64_values(payload)  # type: ignore[arg-type]  # only BYTES has a list
        except DecodeError as error:
            raise DecodeError(f"feature {name!r}: {error}") from None
    if kind == FLOAT:
        return np.frombuffer(payload, "<f4").astype(np.float32)  # type: ignore[arg-type]  # as above
    return payload if kind == BYTES else []  # type: ignore[return-value]  # as above
