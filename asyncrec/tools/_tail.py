"""`open_tail` iterates over the last records, and optionally over records that are committed later."""

from __future__ import annotations

import os
import sys
from bisect import bisect_right
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from itertools import accumulate
from typing import Any

import anyio

from asyncrec._arguments import Size
from asyncrec._concurrency.tasks import in_thread
from asyncrec._framing.frames import MAX_RECORD_BYTES
from asyncrec._shards.manifest.origins import origins_of
from asyncrec.errors import ArgumentValueError, DatasetError
from asyncrec.storage._base import Storage
from asyncrec.tools._conditions import Conditions, Where, features_of
from asyncrec.tools._count import counts_of
from asyncrec.tools._head import FoundRecord, RecordStream
from asyncrec.tools._selection import SelectedShard, Selection, reselected, selected


class TailStream:
    """The last records, then new records if the data set is followed; ``async for records in stream`` yields lists.

    Attributes:
        selection: the current selection, which changes while a data set is followed.
    """

    def __init__(
        self, selection: Selection, stack: AsyncExitStack, *, last: int, where: Sequence[Where], interval: float | None
    ) -> None:
        self.selection = selection
        self._stack = stack
        # The same object tests all records, so new records may lack a feature if earlier ones had it.
        self._conditions = Conditions(where, features_of(selection.schema), selection.path) if where else ()
        self._interval = interval
        self._last = last
        self._known: set[str] = set()
        self._reading: tuple[RecordStream, _Places] | None = None
        # The ranges of record numbers to return.
        self._wanted: list[tuple[int, int]] = []
        self._begun = False

    def __aiter__(self) -> TailStream:
        return self

    async def __anext__(self) -> list[FoundRecord]:
        if not self._begun:
            await self._begin()
            self._begun = True
        while True:
            if self._reading is not None:
                stream, places = self._reading
                found = await anext(stream, None)
                if found is not None:
                    before = places.before(found[0].number)  # all records in a list come from the same shard
                    records = [replace(each, number=each.number + before) for each in found]
                    records = [each for each in records if self._is_wanted(each.number)]
                    if records:
                        return records
                    continue
                self._reading = None
            if self._interval is None:
                raise StopAsyncIteration
            await anyio.sleep(self._interval)
            await self._look()

    async def _begin(self) -> None:
        counts = await counts_of(self.selection)
        skip = max(0, sum(counts) - self._last)
        self._wanted = [(skip, sum(counts))]
        starts = [0, *accumulate(counts)]
        first = next((at for at in range(len(counts)) if starts[at + 1] > skip), len(counts))
        if self._interval is not None:
            await in_thread(self._new)
        self._read(list(range(first, len(counts))), starts)

    def _is_wanted(self, number: int) -> bool:
        at = bisect_right(self._wanted, (number, sys.maxsize)) - 1
        return at >= 0 and number < self._wanted[at][1]

    async def _look(self) -> None:
        """Reload the manifest, and begin to read the records that were committed since it was last loaded."""
        before = self.selection.datasets[0].manifest.id
        self.selection = await reselected(self.selection)
        if self.selection.datasets[0].manifest.id == before:
            return
        new = await in_thread(self._new)
        if new:
            shards = self.selection.shards
            starts = [0, *accumulate(shard.entry.records for shard in shards if shard.entry is not None)]
            self._wanted = [wanted for some in new.values() for wanted in some]
            self._read(list(new), starts)

    def _new(self) -> dict[int, list[tuple[int, int]]]:
        """Return the number ranges of the records that are new since the last call, by shard position. Blocks.

        A shard may have replaced several others. Records that come from already known shards are not new.

        Raises:
            DatasetError: new records were sorted among known records.
        """
        name = self.selection.datasets[0].name
        known: set[str] = set()
        new: dict[int, list[tuple[int, int]]] = {}
        number = 0
        for at, shard in enumerate(self.selection.shards):
            assert shard.entry is not None, "a manifest lists the shard"
            mixed_before: bool | None = None
            for origin in origins_of(shard.entry, name):
                known.add(origin.shard)
                fresh = origin.shard not in self._known
                if self._begun and origin.mixed and mixed_before not in (None, fresh):
                    raise DatasetError(
                        f"{shard.display_path}: new records were sorted among records already returned; open it again. "
                        "'compact' sorts only shards that are older than its grace: poll more often"
                    )
                mixed_before = fresh if origin.mixed else None
                if fresh:
                    new.setdefault(at, []).append((number, number + origin.records))
                number += origin.records
        self._known = known
        return new

    def _read(self, numbers: Sequence[int], starts: Sequence[int]) -> None:
        shards: tuple[SelectedShard, ...] = tuple(self.selection.shards[at] for at in numbers)
        places = _Places([starts[at] for at in numbers], [starts[at + 1] - starts[at] for at in numbers])
        stream = RecordStream(replace(self.selection, shards=shards), self._conditions, self._stack)
        self._reading = stream, places


class _Places:
    """The positions of certain shards' records among all records of a selection.

    Args:
        firsts: the number of each shard's first record.
        counts: the number of records in each shard.
    """

    def __init__(self, firsts: Sequence[int], counts: Sequence[int]) -> None:
        self._firsts = firsts
        self._begins = [0, *accumulate(counts)][:-1]  # the first record numbers among these shards

    def before(self, number: int) -> int:
        """Return the difference between a record's number among all records and its ``number`` among these shards."""
        at = bisect_right(self._begins, number) - 1
        return self._firsts[at] - self._begins[at]


@asynccontextmanager
async def open_tail(
    path: str | os.PathLike[str],
    *,
    records: int = 10,
    where: Sequence[Where] = (),
    follow: bool = False,
    interval: float = 1.0,
    max_record_bytes: Size = MAX_RECORD_BYTES,
    storage: Storage | None = None,
    storage_options: Mapping[str, Any] | None = None,
) -> AsyncIterator[TailStream]:
    """Iterate over the records that meet all conditions of ``where`` among the last ``records`` records of ``path``.

    With ``follow``, the stream does not end, and also yields records that are committed to the data set later, in the
    order of their commits.

    Args:
        interval: the number of seconds between two reads of the manifest.
        max_record_bytes: as for `asyncrec.open_reader`; longer records that a manifest allows are read in any case.

    Raises:
        ValueError: a number is negative.
        DatasetError: ``follow`` was passed, but the path is not a data set.
        ObjectNotFoundError, StoragePermissionError: raised on opening.
    """
    if records < 0 or interval < 0:
        raise ArgumentValueError("the number of records and the interval must not be negative")
    async with (
        selected(
            path, max_record_bytes=max_record_bytes, storage=storage, storage_options=storage_options
        ) as selection,
        AsyncExitStack() as stack,
    ):
        if follow and selection.kind != "data set":
            raise DatasetError(f"{selection.path}: only a data set can be followed; pass its folder and name")
        yield TailStream(selection, stack, last=records, where=where, interval=interval if follow else None)
