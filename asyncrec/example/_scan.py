"""Parse many records at once. One NumPy operation reads a tag, a length or a name in every record."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from asyncrec.example._varints import varint
from asyncrec.example._wire import BYTES, FLOAT, NONE

Ints: TypeAlias = npt.NDArray[np.int64]

PADDING = 8
"""The number of bytes required after the data, so that an eight-byte word can be read at every byte of the data."""


class Scan:
    """A reader of many positions at once. At positions beyond the data, it reads the last bytes, which do not match."""

    def __init__(self, data: bytes) -> None:
        self.bytes = np.frombuffer(data, np.uint8)
        # A word begins at every byte, so that eight bytes of a name can be compared in one step.
        self.words = np.ndarray((len(data) - PADDING + 1,), "<u8", data, strides=(1,))

    def expect(self, pos: Ints, literal: bytes) -> tuple[npt.NDArray[np.bool_], Ints]:
        """Return whether ``literal`` is at each position, and the positions after it."""
        if len(literal) == 1:
            return self.bytes.take(pos, mode="clip") == literal[0], pos + 1
        same = np.ones(len(pos), np.bool_)
        for at in range(0, len(literal), 8):
            piece = literal[at : at + 8]
            word = self.words[np.minimum(pos + at, len(self.words) - 1)]
            same &= word & np.uint64((1 << 8 * len(piece)) - 1) == np.uint64(int.from_bytes(piece, "little"))
        return same, pos + len(literal)

    def varint(self, pos: Ints) -> tuple[Ints, Ints]:
        """Return the lengths at ``pos``, and the positions after them. Lengths over 35 bits are returned as 1 << 40."""
        byte = self.bytes.take(pos, mode="clip")
        pos = pos + 1
        if byte.max(initial=0) < 0x80:
            return byte.astype(np.int64), pos
        value = (byte & 0x7F).astype(np.int64)
        more = byte >= 0x80
        for shift in range(7, 35, 7):
            byte = self.bytes.take(pos, mode="clip")
            value |= np.where(more, (byte & 0x7F).astype(np.int64) << shift, 0)
            pos = pos + more
            more &= byte >= 0x80
            if not more.any():
                return value, pos
        return np.where(more, np.int64(1 << 40), value), pos


def fit(
    data: bytes, starts: Ints, stops: Ints, layout: Sequence[tuple[str, int]], wanted: Mapping[str, int]
) -> tuple[npt.NDArray[np.bool_], dict[str, Ints]]:
    """Return which of the records ``data[starts:stops]`` fit a layout, and the spans of their wanted values.

    A record fits if its tags and names match the layout exactly, and its lengths are consistent. A span contains the
    packed payload of numbers, or the entire BytesList of bytes. Spans are arrays of shape (2, n). In a record that
    fits, they are within the record, because positions only increase, and the last position must be the record's end.
    """
    scan = Scan(data)
    spans = {}
    fits, pos = scan.expect(starts, b"\x0a")
    length, pos = scan.varint(pos)
    fits &= pos + length == stops
    for name, kind in layout:
        found, pos = scan.expect(pos, b"\x0a")
        length, pos = scan.varint(pos)
        end = pos + length
        key = name.encode()
        same, pos = scan.expect(pos, b"\x0a" + varint(len(key)) + key + b"\x12")
        length, pos = scan.varint(pos)
        fits &= found & same & (pos + length == end)
        if kind == NONE:
            fits &= pos == end
            continue
        found, pos = scan.expect(pos, bytes([kind << 3 | 2]))
        length, pos = scan.varint(pos)
        fits &= found & (pos + length == end)
        if kind != BYTES:
            empty = pos == end
            found, after = scan.expect(pos, b"\x0a")
            length, after = scan.varint(after)
            fits &= empty | (found & (after + length == end))
            pos = np.where(empty, pos, after)
            if kind == FLOAT:
                fits &= (end - pos) % 4 == 0
        if name in wanted:
            spans[name] = np.stack((pos, end))
        pos = end
    fits &= pos == stops
    return fits, spans
