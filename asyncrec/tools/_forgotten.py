"""Find the records to delete from a data set, by their keys or by conditions on their contents.

Keys are looked up in the runs that a checkpoint names, by reading one block for each key. If a shard is in no run, its
own keys file is read, one part at a time. That file must be intact, because a key's position in it shows which record
the key belongs to. To test conditions, all records are read.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterable, Sequence, Set
from contextlib import AsyncExitStack
from dataclasses import replace
from itertools import groupby
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from asyncrec._concurrency.map import for_each
from asyncrec._concurrency.tasks import in_thread
from asyncrec._framing.crc import crc32c
from asyncrec._records.writing.write_batch import KEY_BYTES, PAIR_BYTES, digests_in
from asyncrec._shards.manifest.key_run import Entries
from asyncrec._shards.manifest.key_runs import UNFIT, OpenRun, open_runs
from asyncrec._shards.writing.keys import digest_of
from asyncrec.errors import ArgumentTypeError, ArgumentValueError, DatasetError
from asyncrec.storage._resuming_source import ResumingSource, receive_exactly
from asyncrec.tools._conditions import Conditions
from asyncrec.tools._keyed_records import KeyedRecords
from asyncrec.tools._selection import SelectedShard, Selection

Found: TypeAlias = tuple[SelectedShard, NDArray[np.int64]]
"""A shard, and the ascending numbers of its records to delete, which may be empty."""

# The number of keys of a shard to read at once: 1 MiB.
_AT_ONCE = 1 << 16
# How many shards, or parts of a run, to read keys from concurrently.
_READERS = 8
# The number of blocks of a run to read at once.
_BLOCKS = 64


class ByDigests:
    """Finds the records whose key (with ``contents``, whose content) has one of several digests.

    Attributes:
        count: the number of different digests.
    """

    def __init__(self, digests: Set[bytes], *, contents: bool = False) -> None:
        """Sort the digests. Blocks."""
        self.count = len(digests)
        self._contents = contents
        wanted = np.frombuffer(b"".join(sorted(digests)), "<u8").reshape(-1, 2)
        self._wanted = wanted[np.lexsort((wanted[:, 1], wanted[:, 0]))]
        self._found = np.zeros(len(wanted), np.bool_)

    @property
    def found(self) -> int:
        """The number of digests found in the shards searched up to now."""
        return int(self._found.sum())

    async def find(self, selection: Selection, shards: Sequence[SelectedShard]) -> AsyncGenerator[Found]:
        """Yield every shard with the numbers of the records to delete from it.

        Raises:
            DatasetError: the keys of a shard are damaged.
            StorageError: the keys cannot be read.
        """
        (dataset,) = selection.datasets
        runs = await open_runs(dataset.folder, dataset.name, dataset.manifest.shards, contents=self._contents)
        of_runs: dict[int, list[NDArray[np.int64]]] = {}
        try:
            for run in runs.runs:
                for row, records in await self._in_run(run):
                    of_runs.setdefault(row, []).append(records)
        except UNFIT as error:
            runs.told(selection.path, error)
            of_runs = {}
        rows = await in_thread(lambda: {shard.key: row for row, shard in enumerate(selection.shards)})
        covered = runs.covered

        async def look(shard: SelectedShard) -> NDArray[np.int64]:
            if covered[row := rows[shard.key]]:
                return np.sort(np.concatenate([_NONE, *of_runs.get(row, ())]))
            return await self._in_shard(selection, shard)

        for at in range(0, len(shards), _AT_ONCE):
            some = shards[at : at + _AT_ONCE]
            for shard, records in zip(some, await for_each(look, some, tasks=_READERS), strict=True):
                yield shard, records

    def end(self) -> None:
        """Do nothing: it is not an error if a digest is not found in any shard."""

    async def _in_run(self, run: OpenRun) -> list[tuple[int, NDArray[np.int64]]]:
        """Return the records that a run lists with one of the digests, as pairs of a shard's row and record numbers."""
        blocks = {block for first in self._wanted[:, 0].tolist() for block in range(*run.tail.blocks_of(first))}
        # Read adjacent blocks together.
        parts = [[block for _, block in some] for _, some in groupby(enumerate(sorted(blocks)), lambda e: e[1] - e[0])]
        ranges = [
            (at, min(at + _BLOCKS, some[-1] + 1)) for some in parts for at in range(some[0], some[-1] + 1, _BLOCKS)
        ]

        async def look(part: tuple[int, int]) -> Entries:
            entries = await run.part(*part)
            return entries.take(await in_thread(self._matches, entries.digests))

        found = Entries.joined([_NO_ENTRIES, *await for_each(look, ranges, tasks=_READERS)])
        return [(row, found.records[found.shards == row]) for row in np.unique(found.shards).tolist()]

    async def _in_shard(self, selection: Selection, shard: SelectedShard) -> NDArray[np.int64]:
        """Return the numbers of the records that the shard's keys file lists with one of the digests."""
        keys = shard.entry.keys if shard.entry is not None else None
        if shard.entry is None or keys is None or (self._contents and shard.entry.key_bytes != PAIR_BYTES):
            return _NONE
        found = [_NONE]
        checksum = size = 0
        width = shard.entry.key_bytes or KEY_BYTES
        async with ResumingSource(selection.storage, shard.folder + keys.path, read_ahead=0) as source:
            while content := await receive_exactly(source, _AT_ONCE * width):
                checksum = await in_thread(crc32c, content, checksum)
                if len(content) % width == 0:
                    digests = digests_in(content, len(content) // width, of_contents=self._contents)
                    found.append(np.flatnonzero(await in_thread(self._matches, digests)) + size // width)
                size += len(content)
        if size != width * shard.entry.records or checksum != keys.crc32c:
            raise DatasetError(
                f"{shard.folder}{keys.path}: the keys do not match their size or checksum in the manifest, so the "
                "records to delete cannot be determined. Run 'asyncrec verify' for details"
            )
        return np.concatenate(found)

    def _matches(self, digests: NDArray[np.uint64]) -> NDArray[np.bool_]:
        """Return a mask that selects the wanted digests among ``digests``, and record those as found. Blocks."""
        wanted = self._wanted
        begin = wanted[:, 0].searchsorted(digests[:, 0], "left")
        matches: NDArray[np.bool_] = wanted[:, 0].take(begin, mode="clip") == digests[:, 0]
        for at in np.flatnonzero(matches).tolist():  # only a few, because the first 64 bits must match
            first, last = int(begin[at]), int(wanted[:, 0].searchsorted(digests[at, 0], "right"))
            same = np.flatnonzero(wanted[first:last, 1] == digests[at, 1])
            matches[at] = bool(len(same))
            self._found[first + same] = True
        return matches


class ByKeys(ByDigests):
    """Finds the records that have one of several keys."""

    def __init__(self, keys: Iterable[str | bytes]) -> None:
        """Compute the digests of the keys. Blocks.

        Raises:
            TypeError: ``keys`` is a single key, or one of them is neither text nor bytes.
            ValueError: no key was passed, or a key is empty.
        """
        if isinstance(keys, str | bytes):
            raise ArgumentTypeError("keys must be a list of keys; for one key, pass [key]")
        digests = set()
        for key in keys:
            if not key and isinstance(key, str | bytes):
                raise ArgumentValueError("a key is empty; check the list of keys")
            digests.add(digest_of(key))
        if not digests:
            raise ArgumentValueError("no key was passed, so there is nothing to delete")
        super().__init__(digests)


class ByConditions:
    """Finds the records that meet all conditions."""

    def __init__(self, conditions: Conditions) -> None:
        self._conditions = conditions

    async def find(self, selection: Selection, shards: Sequence[SelectedShard]) -> AsyncGenerator[Found]:
        """Read all records, and yield every shard with the numbers of the records to delete from it.

        Raises:
            FormatError: a shard is damaged.
            ValueError: as for `Conditions.chosen`.
        """
        for shard in shards:
            found, number = [_NONE], 0
            async with AsyncExitStack() as stack:
                alone = replace(selection, shards=(shard,))
                async for batch in KeyedRecords(alone, stack, _silent, keyed=False):
                    chosen = await in_thread(self._conditions.chosen, batch.records)
                    found.append(np.array(chosen, np.int64) + number)
                    number += len(batch.records)
            yield shard, np.concatenate(found)

    def end(self) -> None:
        """Check, after all shards have been examined, that the feature of each condition was found.

        Raises:
            ValueError: there were records, but none had the feature named in a condition.
        """
        self._conditions.end()


def _silent(done: int, total: int | None) -> None:
    """Report no progress."""


_NONE = np.empty(0, np.int64)
_NO_ENTRIES = Entries(np.empty((0, 2), np.uint64), _NONE, _NONE)
