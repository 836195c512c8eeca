"""Parser for the page headers of a Parquet file, which are read before pyarrow inflates any page. Functions block.

A page is inflated as a whole. The sizes of columns in the file's metadata may be wrong, so this module, like pyarrow,
relies on the header of each page.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

_DICTIONARY = 2
# The field numbers for each type of data page: the type's own header and, in that header, the encoding.
_DATA = {0: (5, 2), 3: (8, 4)}
_DELTA_BYTE_ARRAY = 7
# The number of bytes to read for a header: at first enough for a header without statistics (the smallest and the
# largest value of the page), and at most pyarrow's limit.
_FIRST_BYTES = 1 << 8
_MOST_BYTES = 8 << 20
_MOST_DEPTH = 8


@dataclass
class Pages:
    """The pages of one column of a row group. Sizes are in inflated bytes.

    Attributes:
        inflated: the total size of all pages.
        largest: the size of the largest page.
        densest: the largest average size of a page's values.
        dictionary: the size of the dictionary, which bounds the size of its values.
        prefixed: whether values may share prefixes with previous values, so that a value may be larger than its bytes
            in the page.
    """

    inflated: int = 0
    largest: int = 0
    densest: int = 0
    dictionary: int = 0
    prefixed: bool = False


def pages_of(content: Any, chunk: Any) -> Pages:
    """Return the `Pages` of a column chunk, read from the page headers in an open file.

    Raises:
        ValueError: a header is malformed.
    """
    found, values = Pages(), 0
    at = min(chunk.data_page_offset, chunk.dictionary_page_offset or chunk.data_page_offset)
    end = at + chunk.total_compressed_size
    if at < 0:
        raise ValueError("a column has a negative offset")
    while at < end and values < chunk.num_values:  # pyarrow stops here, too
        header, length = _header(content, at, end)
        kind, inflated, stored = (_size(header, field) for field in (1, 2, 3))
        at += length + stored
        found.inflated += inflated
        found.largest = max(found.largest, inflated)
        if kind == _DICTIONARY:
            found.dictionary = max(found.dictionary, inflated)
        elif kind in _DATA:
            described, encoding = _DATA[kind]
            count = _size(header.get(described), 1)
            values += count
            found.densest = max(found.densest, -(-inflated // max(1, count)))
            found.prefixed |= _size(header.get(described), encoding) == _DELTA_BYTE_ARRAY
    return found


def _size(fields: Any, field: int) -> int:
    value = fields.get(field) if isinstance(fields, dict) else None
    if not isinstance(value, int) or value < 0:
        raise ValueError("a page header lacks a number")
    return value


def _header(content: Any, at: int, end: int) -> tuple[dict[int, Any], int]:
    """Return a page's header and the length of the header."""
    size = _FIRST_BYTES
    while size <= _MOST_BYTES:
        content.seek(at)
        data = content.read(min(size, end - at))
        try:
            return _struct(data, 0, _MOST_DEPTH)
        except IndexError:
            if len(data) < size:
                break
            size *= 8
    raise ValueError("a page header has no end")


def _struct(data: bytes, at: int, depth: int) -> tuple[dict[int, Any], int]:
    """Parse a struct in Thrift's compact protocol. Return its integers and structs by field, and its end."""
    fields: dict[int, Any] = {}
    field = 0
    while head := data[at]:
        at += 1
        if head >> 4:
            field += head >> 4
        else:
            field, at = _number(data, at)
        fields[field], at = _value(data, at, head & 15, depth)
    return fields, at + 1


def _value(data: bytes, at: int, kind: int, depth: int) -> tuple[Any, int]:
    """Return the value of a field (`None` for an unused type) and its end. Raise IndexError if it is incomplete."""
    if kind in (1, 2):  # true and false
        return None, at
    if kind in (4, 5, 6):
        return _number(data, at)
    if kind == 8:
        size, at = _varint(data, at)
        if at + size > len(data):
            raise IndexError
        return None, at + size
    if kind == 12 and depth:
        return _struct(data, at, depth - 1)
    if kind in (3, 7):
        return None, at + (1 if kind == 3 else 8)
    raise ValueError("a page header has an unknown field type")


def _number(data: bytes, at: int) -> tuple[int, int]:
    value, at = _varint(data, at)
    return (value >> 1) ^ -(value & 1), at


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 70, 7):
        each = data[at]
        at += 1
        value |= (each & 0x7F) << shift
        if each < 0x80:
            return value, at
    raise ValueError("a page header has a number that is too long")
