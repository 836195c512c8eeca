"""`Position` and `RecordBatch` describe the place of a record in its file, so that reading can continue there.

In an uncompressed file, a position is the offset of the record's frame. In a compressed file, it is the compressed
offset of a GZIP member, and the number of records to skip from there. The member is the last one, at or before the
record, that begins with a record. (A ZLIB stream is a single member at offset 0.)
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import accumulate
from typing import NamedTuple

from asyncrec._framing.frames import FRAME_OVERHEAD


class Position(NamedTuple):
    """A place to read from: seek to ``offset``, and discard ``skip`` records. The next record is number ``record``."""

    offset: int
    skip: int
    record: int


BEGINNING = Position(0, 0, 0)


@dataclass(slots=True)
class RecordBatch:
    """A list of records that were read together, with their positions.

    Attributes:
        records: the records, at least one.
        first: the number of ``records[0]`` in the file.
        offset: the offset of the frame of ``records[0]``, if the file is uncompressed.
        members: for a compressed file, pairs of (number of the record that begins a member, compressed offset of the
            member), ascending. The first pair is at or before ``first``. Empty for an uncompressed file.
        size: the total size of the records' frames, decompressed.
    """

    records: list[bytes]
    first: int
    offset: int
    members: list[tuple[int, int]]
    size: int = 0
    _borders: list[int] = field(default_factory=list)  # the frames' offsets, and the end of the last one

    def positions(self, begin: int, end: int) -> list[Position]:
        """Return the positions of ``records[begin:end]``."""
        if not self.members:
            if not self._borders:
                sizes = (len(record) + FRAME_OVERHEAD for record in self.records)
                self._borders = list(accumulate(sizes, initial=self.offset))
            return [Position(self._borders[index], 0, self.first + index) for index in range(begin, end)]
        found = []
        which = 0
        for number in range(self.first + begin, self.first + end):
            while which + 1 < len(self.members) and self.members[which + 1][0] <= number:
                which += 1
            begins, byte = self.members[which]
            found.append(Position(byte, number - begins, number))
        return found

    def position(self, index: int) -> Position:
        """Return the position of ``records[index]``, or with ``index = len(records)``, the position after the last."""
        return self.positions(index, index + 1)[0]
