"""`Position` and `RecordBatch` describe the place of a record in its file, so that reading can continue there.

For a plain file, a position is the byte of the record's frame. Inside a compressed stream there is no such byte. There
it is the compressed byte of the last GZIP member that begins with a record, and the number of records between that one
and the record meant (a ZLIB stream is one member, from byte 0).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import accumulate
from typing import NamedTuple

from asyncrec._framing.frames import FRAME_OVERHEAD


class Position(NamedTuple):
    """A place to read from: byte ``offset``, and ``skip`` records to drop; the next is number ``record``."""

    offset: int
    skip: int
    record: int


BEGINNING = Position(0, 0, 0)


@dataclass(slots=True)
class RecordBatch:
    """A list of records that came together, with their positions.

    Attributes:
        records: the records, at least one.
        first: the number of ``records[0]`` in the file.
        offset: the byte of the frame of ``records[0]``, if the file is plain.
        members: if it is compressed: (number of the record that begins a member, compressed byte of the member),
            ascending; the first of them at or before ``first``. Empty for a plain file.
        size: the bytes of their frames, decompressed.
    """

    records: list[bytes]
    first: int
    offset: int
    members: list[tuple[int, int]]
    size: int = 0
    _borders: list[int] = field(default_factory=list)  # where frames begin, and at last the end; once asked for

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
        """Return the position of ``records[index]``; ``index = len(records)`` is the one behind them."""
        return self.positions(index, index + 1)[0]
