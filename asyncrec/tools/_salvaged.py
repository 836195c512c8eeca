"""`SalvagedShard` reads the intact records of a damaged shard, finds their numbers, and reports what was lost.

The number of a record is needed to find its key, but counting is not enough, because it is unknown how many records
were lost. Instead, the record's offset is looked up in the index. If a record's number is uncertain, the record gets no
key rather than a wrong one.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass
from itertools import accumulate
from typing import Any

from asyncrec._concurrency.tasks import in_thread
from asyncrec._framing.frames import FRAME_OVERHEAD
from asyncrec._numpy import np
from asyncrec._records.index import RecordIndex
from asyncrec._records.position import RecordBatch
from asyncrec._records.reading.reader import RecordReader
from asyncrec.tools._selection import SelectedShard, Selection
from asyncrec.tools._shard_reading import open_shard, shard_index


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardLoss:
    """The loss of a damaged shard.

    Attributes:
        path: the path of the shard.
        records: the number of missing records; `None` if no manifest lists the shard.
        bytes: the total size of the lost ranges.
        without_key: the number of records that were read but have lost their keys. Without an index, or after damage
            inside a compressed stream, it is unknown which key belongs to which record.
        ambiguous_ranges: the number of ranges whose records were read but may be part of a lost record.
    """

    path: str
    records: int | None
    bytes: int
    without_key: int
    ambiguous_ranges: int

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


class SalvagedShard:
    """Reads the intact records of a shard. Opened by `open_salvaged`.

    Attributes:
        reader: a reader that returns the intact records.
        without_key: the number of records that get no key, because their number is uncertain.
    """

    def __init__(self, shard: SelectedShard, reader: RecordReader, index: RecordIndex | None) -> None:
        self.reader = reader
        self.without_key = 0
        self._shard = shard
        self._index = index
        # The offset of each record, or of the record's member in a compressed file.
        column = None if index is None else index.offsets if index.members is None else index.members
        self._starts = np.empty(0, np.int64) if column is None else np.asarray(column)

    def numbers(self, batch: RecordBatch) -> list[int | None]:
        """Return the numbers of a batch's records in the undamaged shard, ascending; `None` for an uncertain number.

        Blocks, because there may be many records.
        """
        sizes = [len(record) + FRAME_OVERHEAD for record in batch.records]
        stats = self.reader.stats()
        if not stats.lost_ranges and not stats.ambiguous_ranges:
            return list(range(batch.first, batch.first + len(sizes)))
        found: list[int | None] = [None] * len(sizes)
        if (index := self._index) is not None:
            rows = self._rows(index, batch, sizes)
            for at, row in enumerate(rows):
                if 0 <= row < len(index) and int(index.sizes[row]) == sizes[at]:
                    found[at] = row
        self.without_key += found.count(None)
        return found

    def _rows(self, index: RecordIndex, batch: RecordBatch, sizes: Sequence[int]) -> list[int]:
        """Return each record's row in the index, or -1 if it is unknown."""
        if index.members is None:
            offsets = np.array(list(accumulate(sizes[:-1], initial=batch.offset)), np.int64)
            rows = np.minimum(np.searchsorted(self._starts, offsets), max(len(index) - 1, 0))
            return np.where(self._starts[rows] == offsets, rows, -1).tolist() if len(index) else [-1] * len(sizes)
        damage = self.reader.damage
        stats = self.reader.stats()
        if len(damage) < stats.lost_ranges + stats.ambiguous_ranges:
            return [-1] * len(sizes)  # the list of damage is incomplete
        # The records of a member are consecutive up to the first damage in that member.
        ends = {each.member_offset: each.records_before for each in reversed(damage) if each.member_offset is not None}
        rows_of: dict[int, int] = {}
        found = []
        for byte, skip, number in batch.positions(0, len(sizes)):
            if byte not in rows_of:
                first = int(np.searchsorted(self._starts, byte))
                begins = first < len(index) and self._starts[first] == byte and not index.offsets.item(first)
                rows_of[byte] = first if begins else -1
            sound = rows_of[byte] >= 0 and number < ends.get(byte, number + 1)
            found.append(rows_of[byte] + skip if sound else -1)
        return found

    def loss(self) -> ShardLoss | None:
        """Return what was lost, or `None` if nothing was. Call this after the shard has been read to its end."""
        stats = self.reader.stats()
        entry = self._shard.entry
        missing = None if entry is None else max(entry.records - stats.records, 0)
        if not (stats.lost_ranges or stats.ambiguous_ranges or missing):
            return None
        return ShardLoss(
            path=self._shard.display_path,
            records=missing,
            bytes=stats.lost_bytes,
            without_key=self.without_key,
            ambiguous_ranges=stats.ambiguous_ranges,
        )


@asynccontextmanager
async def open_salvaged(selection: Selection, shard: SelectedShard) -> AsyncIterator[SalvagedShard]:
    """Open a shard to read its intact records from the beginning."""
    index = await shard_index(selection, shard)
    plain = index is not None and index.members is None
    boundaries = await in_thread(index.offsets.tolist) if index is not None and plain else ()
    async with open_shard(selection, shard, on_corrupt="skip", boundaries=boundaries) as reader:
        yield SalvagedShard(shard, reader, index)
