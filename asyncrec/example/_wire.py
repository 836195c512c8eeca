"""The wire format of Example and SequenceExample, read without a protobuf object.

What a record holds comes out as one ``Raw`` per feature: ``(kind, payload)``. The payload of BYTES is a list of
``bytes``; that of FLOAT is little-endian float32; that of INT64 is packed varints, however the writer wrote them. A
feature that holds no list at all is ``(NONE, b"")``.

What is accepted, and what it means, is protobuf's: of two entries with one key the last wins, a message that comes in
pieces is merged, unknown fields are skipped, groups among them. No length is believed: each is held against the end of
the message it stands in before anything is sliced. Whatever is malformed is a DecodeError that names the offset in the
record. What is allocated is no more than the record's own size.

Sources: protobuf.dev/programming-guides/encoding; tensorflow/core/example/{feature,example}.proto.
"""

from __future__ import annotations

from typing import TypeAlias

from asyncrec._native import native
from asyncrec.errors import DecodeError

NONE, BYTES, FLOAT, INT64 = range(4)
"""Which list a Feature holds, by its field number on the wire; NONE if it holds none."""
KINDS = ("nothing", "bytes", "float", "int64")

Raw: TypeAlias = "tuple[int, bytes | list[bytes]]"

_VARINT, _FIXED64, _DELIMITED, _GROUP, _END_GROUP, _FIXED32 = range(6)


def parse_example(data: bytes) -> dict[str, Raw]:
    """Return the features of a serialized Example, in the order in which they first appear.

    Raises DecodeError if ``data`` is not the serialized form of an Example.
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
    """Return the context and the feature lists of a serialized SequenceExample; an Example reads as one without lists.

    Raises DecodeError if ``data`` is not the serialized form of a SequenceExample.
    """
    context: dict[str, Raw] = {}
    lists: dict[str, list[Raw]] = {}
    pos, end = 0, len(data)
    while pos < end:
        number, wire, start, stop, pos = _field(data, pos, end)
        if number == 1 and wire == _DELIMITED:
            _features(data, start, stop, context)
        elif number == 2 and wire == _DELIMITED:
            _feature_lists(data, start, stop, lists)
    return context, lists


def byte_strings(data: bytes, pos: int, end: int) -> list[bytes]:
    """Return the values of the BytesList that is ``data[pos:end]``. Raises DecodeError for anything else."""
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
    """Return the key of a map's entry, and the spans of its value: one, or several of an odd writer, or none."""
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
    """Return the one list that a Feature holds, a oneof: the last kind counts, and pieces of one kind are joined."""
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
    """Return the values of a FloatList or an Int64List in packed pieces; an unpacked value is its own piece."""
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
    """Return one field of the message that ends at ``end``: number, wire type, value's begin and end, next place."""
    # Tags and most lengths are one byte: reading those here, without a call, halves the time of a whole record.
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
    """Find where the group ``number`` that began before ``pos`` ends: an unknown field, which is dropped."""
    open_groups = [number]  # a list, not recursion: the depth is the writer's, and no deeper than the record is long
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
    """Return a number, and the position behind it. Tags and lengths have at most five bytes, values ten."""
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
