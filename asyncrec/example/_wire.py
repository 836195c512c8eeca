"""Parse the wire format of Example and SequenceExample without protobuf objects.

The parsed form of a feature is a ``Raw``, ``(kind, payload)``. The payload of BYTES is a list of ``bytes``. The payload
of FLOAT is little-endian float32. The payload of INT64 is packed varints, even if the writer did not pack them. A
feature without a list is ``(NONE, b"")``.

The rules are protobuf's: the last of several entries with the same key wins, a message in several pieces is merged, and
unknown fields, including groups, are skipped. No length is trusted. Each is checked against the end of its message
before the data is sliced. Malformed data raises a DecodeError that names the offset in the record. Parsing never
allocates more memory than the size of the record.

Sources: protobuf.dev/programming-guides/encoding; tensorflow/core/example/{feature,example}.proto.
"""

from __future__ import annotations

from typing import TypeAlias

from asyncrec._native import native
from asyncrec.errors import DecodeError

NONE, BYTES, FLOAT, INT64 = range(4)
"""The kind of a Feature's list: its field number on the wire, or NONE if the Feature has no list."""
KINDS = ("nothing", "bytes", "float", "int64")

Raw: TypeAlias = "tuple[int, bytes | list[bytes]]"

_VARINT, _FIXED64, _DELIMITED, _GROUP, _END_GROUP, _FIXED32 = range(6)


def parse_example(data: bytes) -> dict[str, Raw]:
    """Return the features of a serialized Example, in the order in which they first appear.

    Raises DecodeError if ``data`` is not a serialized Example.
    """
    if native is not None:
        found = native.parse_example(data)
        if found is not None:
            return found
    features: dict[str, Raw] = {}
    pos, end = 0, len(data)
    while pos < end:
        number, wire, start, stop, pos = _field(data, pos, end)
        if number == 1 and wire == _DELIMITED:
            _features(data, start, stop, features)
    return features


def parse_sequence_example(data: bytes) -> tuple[dict[str, Raw], dict[str, list[Raw]]]:
    """Return the context and the feature lists of a serialized SequenceExample. An Example has no feature lists.

    Raises DecodeError if ``data`` is not a serialized SequenceExample.
    """
    context: dict[str, Raw] = {}
    lists: dict[str, list[Raw]] = {}
    pos, end = 0, len(data)
    while pos < end:
        number, wire, start, stop, pos = _field(data, pos, end)
        if number == 1 and wire == _DELIMITED:
            if pos == end and not context and not lists:  # nearly all Examples: features, and no lists
                return parse_example(data), {}
            _features(data, start, stop, context)
        elif number == 2 and wire == _DELIMITED:
            _feature_lists(data, start, stop, lists)
    return context, lists


def parse_beside_features(data: bytes) -> tuple[dict[str, list[Raw]], bytes]:
    """Return the feature lists of a serialized Example or SequenceExample, and its unknown fields as they are encoded.

    Raises DecodeError if ``data`` is not such a message. The features are not parsed, so they are not checked.
    """
    lists: dict[str, list[Raw]] = {}
    unknown = []
    pos, end = 0, len(data)
    while pos < end:
        begin = pos
        number, wire, start, stop, pos = _field(data, pos, end)
        if number == 2 and wire == _DELIMITED:
            _feature_lists(data, start, stop, lists)
        elif number != 1 or wire != _DELIMITED:
            unknown.append(data[begin:pos])
    return lists, b"".join(unknown)


def byte_strings(data: bytes, pos: int, end: int) -> list[bytes]:
    """Return the values of the BytesList in ``data[pos:end]``. Raises DecodeError if it is malformed."""
    values = []
    while pos < end:
        number, wire, start, stop, pos = _field(data, pos, end)
        if number == 1 and wire == _DELIMITED:
            values.append(data[start:stop])
    return values


def _features(data: bytes, pos: int, end: int, into: dict[str, Raw]) -> None:
    while pos < end:
        number, wire, start, stop, pos = _field(data, pos, end)
        if number == 1 and wire == _DELIMITED:
            key, spans = _entry(data, start, stop)
            into[key] = _feature(data, spans)


def _feature_lists(data: bytes, pos: int, end: int, into: dict[str, list[Raw]]) -> None:
    while pos < end:
        number, wire, start, stop, pos = _field(data, pos, end)
        if number == 1 and wire == _DELIMITED:
            key, spans = _entry(data, start, stop)
            into[key] = [_feature(data, [step]) for span in spans for step in _submessages(data, *span)]


def _entry(data: bytes, pos: int, end: int) -> tuple[str, list[tuple[int, int]]]:
    """Return the key of a map entry, and the spans of its value. Nearly all writers write a single span."""
    key, spans = "", []
    while pos < end:
        number, wire, start, stop, pos = _field(data, pos, end)
        if wire == _DELIMITED:
            if number == 1:
                try:
                    key = data[start:stop].decode()
                except UnicodeDecodeError:
                    raise DecodeError(f"offset {start}: a name is not UTF-8: {data[start:stop][:40]!r}") from None
            elif number == 2:
                spans.append((start, stop))
    return key, spans


def _submessages(data: bytes, pos: int, end: int) -> list[tuple[int, int]]:
    spans = []
    while pos < end:
        number, wire, start, stop, pos = _field(data, pos, end)
        if number == 1 and wire == _DELIMITED:
            spans.append((start, stop))
    return spans


def _feature(data: bytes, spans: list[tuple[int, int]]) -> Raw:
    """Return the list of a Feature. Its field is a oneof, so the last kind wins; the pieces of that kind are joined."""
    kind, pieces = NONE, list[bytes]()
    for pos, end in spans:
        while pos < end:
            number, wire, start, stop, pos = _field(data, pos, end)
            if wire != _DELIMITED or not BYTES <= number <= INT64:
                continue
            if number != kind:
                kind, pieces = number, []
            pieces += byte_strings(data, start, stop) if kind == BYTES else _numbers(data, start, stop, kind)
    if kind == BYTES:
        return kind, pieces
    return kind, pieces[0] if len(pieces) == 1 else b"".join(pieces)


def _numbers(data: bytes, pos: int, end: int, kind: int) -> list[bytes]:
    """Return the packed pieces of a FloatList or an Int64List. An unpacked value is a separate piece."""
    pieces = []
    single = _FIXED32 if kind == FLOAT else _VARINT
    while pos < end:
        number, wire, start, stop, pos = _field(data, pos, end)
        if number != 1 or wire not in (_DELIMITED, single):
            continue
        if kind == FLOAT and (stop - start) % 4:
            raise DecodeError(f"offset {start}: {stop - start} bytes of packed floats are not a multiple of 4")
        pieces.append(data[start:stop])
    return pieces


def _field(data: bytes, pos: int, end: int) -> tuple[int, int, int, int, int]:
    """Return a field's number and wire type, the start and stop of its value, and the position of the next field.

    The message ends at ``end``.
    """
    # Most tags and lengths take one byte. Reading them here, without a call, halves the time to parse a record.
    at = pos
    if pos < end and data[pos] < 0x80:
        tag = data[pos]
        pos += 1
    else:
        tag, pos = _varint(data, pos, end)
    number, wire = tag >> 3, tag & 7
    if number == 0 or tag > 0xFFFF_FFFF:
        raise DecodeError(f"offset {at}: there is no field with the number {number}")
    if wire == _DELIMITED:
        if pos < end and data[pos] < 0x80:
            stop = pos + 1 + data[pos]
            pos += 1
        else:
            length, pos = _varint(data, pos, end)
            stop = pos + length
    elif wire == _VARINT:
        stop = _varint(data, pos, end, 10)[1]
    elif wire == _FIXED32:
        stop = pos + 4
    elif wire == _FIXED64:
        stop = pos + 8
    elif wire == _GROUP:
        stop = _group_end(data, pos, end, number)
    else:
        raise DecodeError(f"offset {at}: wire type {wire} is not allowed here")
    if stop > end:
        raise DecodeError(f"offset {at}: field {number} extends to byte {stop}, but its message ends at byte {end}")
    return number, wire, pos, stop, stop


def _group_end(data: bytes, pos: int, end: int, number: int) -> int:
    """Return the end of the group ``number`` that began before ``pos``. Groups are unknown fields, and are skipped."""
    open_groups = [number]  # a list rather than recursion, because the record's writer controls the depth
    while open_groups:
        at = pos
        tag, pos = _varint(data, pos, end)
        if tag & 7 == _GROUP:
            open_groups.append(tag >> 3)
        elif tag & 7 == _END_GROUP:
            if open_groups.pop() != tag >> 3:
                raise DecodeError(f"offset {at}: a group ends without a start")
        else:
            pos = _field(data, at, end)[4]
    return pos


def _varint(data: bytes, pos: int, end: int, longest: int = 5) -> tuple[int, int]:
    """Return a number and the position after it. Tags and lengths have at most five bytes, and values at most ten."""
    at = pos
    value = 0
    for shift in range(0, 7 * longest, 7):
        if pos == end:
            raise DecodeError(f"offset {at}: a number is truncated")
        byte = data[pos]
        pos += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, pos
    raise DecodeError(f"offset {at}: a number is longer than {longest} bytes")
