"""`open_records` reads the records of a path in order: all of them, or those that meet conditions."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import Any

from asyncrec._arguments import Size
from asyncrec._concurrency.tasks import in_thread
from asyncrec._framing.frames import MAX_RECORD_BYTES
from asyncrec._records.reading.reader import RecordReader
from asyncrec.storage._base import Storage
from asyncrec.tools._conditions import Conditions, Where, features_of
from asyncrec.tools._selection import SelectedShard, Selection, selected
from asyncrec.tools._shard_reading import check_count, open_committed


@dataclass(frozen=True, slots=True)
class FoundRecord:
    """A record: its shard, its number among all records of the path, counted from 0, and its bytes.

    For the same path, `get_record` and ``asyncrec cat --record`` accept that number.
    """

    path: str
    number: int
    data: bytes


class RecordStream:
    """A single pass over records, made by `open_records`.

    ``async for records in stream`` yields non-empty lists, each with records of one shard.
    """

    def __init__(self, selection: Selection, where: Sequence[Where] | Conditions, stack: AsyncExitStack) -> None:
        self.selection = selection
        conditions = where if isinstance(where, Conditions) else None
        if where and conditions is None:
            assert not isinstance(where, Conditions), "Conditions are handled above"
            conditions = Conditions(where, features_of(selection.schema), selection.path)
        self._conditions = conditions
        self._before = 0  # the number of records in the shards before the current one
        self._in_shard = 0
        self._shards = iter(selection.shards)
        self._stack = stack
        self._shard: SelectedShard | None = None  # the shard being read
        self._next: SelectedShard | None = None  # the shard being opened
        self._read: list[FoundRecord] | None = None  # the last batch, until it has been filtered
        self._reader: RecordReader

    def __aiter__(self) -> RecordStream:
        return self

    async def __anext__(self) -> list[FoundRecord]:
        while True:
            if self._shard is None:
                self._next = self._next or next(self._shards, None)
                if self._next is None:
                    if self._conditions is not None:
                        self._conditions.end()
                    raise StopAsyncIteration
                self._reader = await self._stack.enter_async_context(open_committed(self.selection, self._next))
                self._shard, self._next = self._next, None
            if self._read is None:
                batch = await self._reader.next_batch()
                if batch is None:
                    check_count(self._shard, self._in_shard)
                    self._shard = None
                    self._before, self._in_shard = self._before + self._in_shard, 0
                    await self._stack.aclose()
                    continue
                path, first = self._shard.display_path, self._before + batch.first
                self._in_shard = batch.first + len(batch.records)
                self._read = [FoundRecord(path, number, data) for number, data in enumerate(batch.records, first)]
            found = self._read
            if self._conditions is not None:
                found = await in_thread(self._chosen, self._conditions, self._read)
            self._read = None
            if found:
                return found

    def _chosen(self, conditions: Conditions, records: list[FoundRecord]) -> list[FoundRecord]:
        """Return the records that meet the conditions. Blocks, because each record is parsed."""
        return [records[at] for at in conditions.chosen([each.data for each in records])]


@asynccontextmanager
async def open_records(
    path: str | os.PathLike[str],
    *,
    where: Sequence[Where] = (),
    max_record_bytes: Size = MAX_RECORD_BYTES,
    storage: Storage | None = None,
    storage_options: Mapping[str, Any] | None = None,
) -> AsyncIterator[RecordStream]:
    """Iterate, in order, over the records of a file, a folder, a pattern or a data set that meet all of ``where``.

    Args:
        max_record_bytes: as for `asyncrec.open_reader`; longer records that a manifest allows are always read.

    Raises:
        ObjectNotFoundError, StoragePermissionError: the path cannot be read. Raised on opening.
        ValueError: no record has the feature of a condition, or the feature cannot have that value. Raised on opening
            if there is a schema, otherwise while reading.
        FormatError: a record is damaged. Raised while reading, after all records before the damage have been returned.
        ObjectChangedError: a shard is not the one in its manifest. Raised while reading, before any of its records.
    """
    async with selected(
        path, max_record_bytes=max_record_bytes, storage=storage, storage_options=storage_options
    ) as selection:
        async with AsyncExitStack() as stack:
            yield RecordStream(selection, where, stack)
