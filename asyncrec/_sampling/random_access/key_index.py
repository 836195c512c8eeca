"""`KeyIndex` finds the records with a key, using the sorted keys of all shards or the runs of a checkpoint."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from typing import NamedTuple, TypeAlias

import anyio
import numpy as np
from crc32c import crc32c
from numpy.typing import NDArray

from asyncrec._concurrency.map import for_each
from asyncrec._concurrency.tasks import in_thread
from asyncrec._records.writing.write_batch import KEY_BYTES, PAIR_BYTES, digest_bytes, digests_in
from asyncrec._shards.manifest.key_run import Entries
from asyncrec._shards.manifest.key_runs import UNFIT, OpenRun, OpenRuns, open_runs
from asyncrec._shards.manifest.manifest import naming_lost_shards
from asyncrec._shards.manifest.names import keys_key
from asyncrec._shards.manifest.origins import CommitOrder
from asyncrec._shards.manifest.segment import ShardEntry
from asyncrec._shards.manifest.shard_list import ShardList
from asyncrec._shards.writing.keys import content_digest, digest_of
from asyncrec.errors import DatasetError, ObjectNotFoundError, RecordKeyError
from asyncrec.storage._base import Storage
from asyncrec.storage._cached import expect

Numbers: TypeAlias = NDArray[np.int64]


# The number of files read at once from a store, and from a disk. Each thread that reads from a disk uses some memory,
# so there are only a few.
_TASKS, _TASKS_NEAR = 32, 4


class Keys(NamedTuple):
    """The keys of some records: their digests, uint64 (n, 2), and the numbers of the records, int64 (n,)."""

    digests: NDArray[np.uint64]
    numbers: Numbers


class KeyFiles:
    """The keys files of a data set. ``starts`` contains the number of each shard's first record.

    With ``contents``, the digests of the records' contents are read instead of the digests of their keys.
    """

    def __init__(
        self, folder: Storage, shards: Sequence[ShardEntry], starts: Numbers, *, contents: bool = False
    ) -> None:
        self._contents = contents
        self._folder = folder
        self._shards = shards
        self._starts = starts

    async def of(self, rows: Sequence[int]) -> Keys:
        """Return the keys of all records of these shards that have a key.

        Raises:
            DatasetError: a keys file does not match its shard.
        """

        async def read(row: int) -> bytes:
            shard = self._shards[row]
            if shard.keys is None and shard.committed:
                return b""  # the shard was written without keys
            if self._contents and shard.keys is not None and shard.key_bytes != PAIR_BYTES:
                return b""  # written without digests of contents; for an unlisted shard, the file's size shows this
            path = keys_key(shard.path) if shard.keys is None else shard.keys.path
            if shard.keys is not None:
                expect(self._folder, path, shard.keys.bytes, shard.keys.crc32c)
            try:
                with naming_lost_shards():
                    content = await self._folder.get(path)
            except ObjectNotFoundError:
                if shard.keys is not None:
                    raise
                return b""
            if not digest_bytes(len(content), shard.records):
                raise DatasetError(
                    f"{path}: the file has {len(content):,} bytes, but the keys of {shard.records:,} records take "
                    f"{KEY_BYTES} bytes each, or twice that with contents; the file belongs to another version of the "
                    "shard. Run 'asyncrec verify' for details"
                )
            if shard.keys is not None and shard.keys.crc32c not in (None, await in_thread(crc32c, content)):
                raise DatasetError(
                    f"{path}: the keys do not match their checksum in the manifest; run 'asyncrec verify' for details"
                )
            return b"" if self._contents and len(content) != PAIR_BYTES * shard.records else content

        return await in_thread(
            self._keyed, rows, await for_each(read, rows, tasks=_TASKS if self._folder.read_ahead else _TASKS_NEAR)
        )

    def _keyed(self, rows: Sequence[int], contents: list[bytes]) -> Keys:
        read = [(row, content) for row, content in zip(rows, contents, strict=True) if content]
        columns = [digests_in(content, self._shards[row].records, of_contents=self._contents) for row, content in read]
        digests = np.concatenate([np.empty((0, 2), np.uint64), *columns])
        starts = self._starts[[row for row, _ in read]].tolist() if read else []
        numbers = np.concatenate(
            [np.empty(0, np.int64)]
            + [np.arange(start, start + len(column)) for start, column in zip(starts, columns, strict=True)]
        )
        keyed = digests.any(axis=1)
        return Keys(digests[keyed], numbers[keyed])


Columns: TypeAlias = tuple[NDArray[np.bytes_], Numbers]

# A request to a remote store takes as long as receiving this many bytes.
_REQUEST = 512 << 10
# The number of keys processed at once. They take 6 MiB, and processing them takes a few times as much memory.
_AT_ONCE = 1 << 18
# The maximum number of characters of a key in a message.
_LONGEST = 200


class KeyIndex:
    """An index from keys to record numbers. The first look-up reads the keys.

    In a remote store, keys are looked up in the runs that the checkpoint names (`_shards.manifest.key_run`), with one
    request for each key and run, until these requests have cost as much as reading all runs would.

    Args:
        name: the name of the data set in its folder.
        path: the path of the data set, for messages.
        contents: whether records are looked up by the digests of their contents instead of by their keys.
    """

    def __init__(
        self,
        folder: Storage,
        name: str,
        shards: Sequence[ShardEntry],
        starts: NDArray[np.int64],
        path: str,
        *,
        contents: bool = False,
    ) -> None:
        self._path = path
        self._contents = contents
        self._digest = content_digest if contents else digest_of
        self._folder = folder
        self._name = name
        self._shards = shards
        self._starts = starts
        self._files = KeyFiles(folder, shards, starts, contents=contents)
        self._reading = anyio.Lock()
        self._columns: Columns | None = None  # the columns of all shards
        self._runs: OpenRuns | None = None
        self._others: Columns | None = None  # the columns of the shards that no run covers
        self._asked = 0
        self._order: CommitOrder | None = None

    async def versions(self, key: str | bytes) -> Numbers:
        """Return the numbers of the records with this key (at least one), in the order in which they were committed.

        Raises:
            KeyError: no record has the key.
            DatasetError: a keys file does not match its shard.
        """
        numbers = await self._numbers(self._digest(key))
        return self._told(key, numbers, none=self._columns is not None and not len(self._columns[0]))

    async def _numbers(self, digest: bytes) -> Numbers:
        if self._columns is None:
            async with self._reading:
                if self._columns is None:
                    await self._open()
        runs, others = self._runs, self._others
        if self._columns is None and runs is not None and others is not None:
            try:
                return await self._find_in_runs(digest, runs.runs, others)
            except UNFIT as error:
                self._give_up(runs, error)
            return await self._numbers(digest)
        assert self._columns is not None, "without runs, all keys are read"
        return _found(self._columns, digest)

    @property
    def are_read(self) -> bool:
        """Whether all keys are in memory, so that `look_up` may be called."""
        return self._columns is not None

    def look_up(self, key: str | bytes) -> Numbers:
        """Like `versions`, but does not read any keys. Any thread may call this, but only if `are_read` is true."""
        assert self._columns is not None, "are_read is true"
        return self._told(key, _found(self._columns, self._digest(key)), none=not len(self._columns[0]))

    async def all(self) -> AsyncGenerator[Keys]:
        """Yield the keys of all records that have one, in parts and in no particular order. Keys may be repeated.

        The keys are not kept in memory. If a run turns out to be damaged, the keys of all shards are yielded after it,
        even those that were already yielded.

        Raises:
            DatasetError: a keys file does not match its shard.
        """
        if self._columns is not None:
            digests, numbers = self._columns
            for at in range(0, len(numbers), _AT_ONCE):
                end = at + _AT_ONCE
                yield Keys(digests[at:end].view("<u8").reshape(-1, 2), numbers[at:end])
            return
        async with self._reading:
            runs = await self._open_runs()
        for run in [*runs.runs]:
            try:
                async with aclosing(run.all()) as parts:
                    async for each in parts:
                        yield Keys(each.digests, self._starts[each.shards] + each.records)
            except UNFIT as error:
                self._give_up(runs, error)
                break
        rows = np.flatnonzero(~runs.covered)
        ends = np.cumsum(np.diff(self._starts)[rows])
        for some in np.split(rows, np.flatnonzero(np.diff(ends // _AT_ONCE)) + 1) if len(rows) else ():
            yield await self._files.of(some.tolist())

    def _told(self, key: str | bytes, numbers: Numbers, *, none: bool) -> Numbers:
        if len(numbers):
            return numbers
        if none:
            raise RecordKeyError(
                f"{self._path}: no record has the key {_shown(key)}, because no record in this data set was written "
                "with a key"
            ).with_remedy("to give a record a key, pass key= to writer.write", command="")
        raise RecordKeyError(f"{self._path}: no record has the key {_shown(key)}")

    async def _find_in_runs(self, digest: bytes, runs: Sequence[OpenRun], others: Columns) -> Numbers:
        self._asked += _REQUEST * len(runs)
        found = await for_each(lambda run: run.find(digest), runs)
        numbers = np.concatenate(
            [_found(others, digest), *(self._starts[each.shards] + each.records for each in found)]
        )
        return numbers[np.argsort(self.turns(numbers))]

    def turns(self, numbers: Numbers) -> Numbers:
        """Return these records' positions in commit order. Any thread may call this once keys have been read."""
        assert self._order is not None, "the order is computed before keys are read"
        return self._order.places(numbers)

    async def _open(self) -> None:
        """Open the runs, and read the keys of the shards that no run covers, or all keys if that costs less."""
        opened = await self._open_runs()
        whole = not self._folder.read_ahead or self._asked >= sum(run.run.bytes for run in opened.runs)
        if self._others is None:
            others = await self._files.of(np.flatnonzero(~opened.covered).tolist())
            self._others = await in_thread(self._in_order, others.digests.view("S16").ravel(), others.numbers)
        if not whole:
            return
        try:
            parts = [each for run in opened.runs async for each in run.all()]
        except UNFIT as error:
            self._give_up(opened, error)
            await self._open()
        else:
            self._columns = await in_thread(self._joined, self._others, parts)
            self._runs, self._others = None, None

    async def _open_runs(self) -> OpenRuns:
        """Open the runs if they are not yet open, and return them."""
        if self._runs is None:
            self._order = await in_thread(CommitOrder, self._shards)
            if isinstance(self._shards, ShardList):
                self._runs = await open_runs(self._folder, self._name, self._shards, contents=self._contents)
            else:
                self._runs = OpenRuns([], np.zeros(len(self._shards), np.bool_))
        return self._runs

    def _give_up(self, runs: OpenRuns, error: Exception) -> None:
        """From now on, read the keys of all shards from the shards' own files instead of the runs."""
        if runs.runs:  # no other task has logged the error yet
            runs.told(self._path, error)
            self._others = None

    def _joined(self, others: Columns, parts: list[Entries]) -> Columns:
        if not parts:
            return others
        digests = np.concatenate([np.ascontiguousarray(each.digests).view("S16").ravel() for each in parts])
        numbers = np.concatenate([self._starts[each.shards] + each.records for each in parts])
        return self._in_order(np.concatenate([digests, others[0]]), np.concatenate([numbers, others[1]]))

    def _in_order(self, digests: NDArray[np.bytes_], numbers: NDArray[np.int64]) -> Columns:
        """Return the columns sorted by digest. Records with equal digests are in commit order."""
        turns = np.argsort(self.turns(numbers))
        order = turns[np.argsort(digests[turns], kind="stable")]
        return digests[order], numbers[order]


def _found(columns: Columns, digest: bytes) -> Numbers:
    digests, numbers = columns
    # The comparison of S16 values ignores trailing zeros, but does so on both sides.
    wanted = np.frombuffer(digest, dtype="S16")[0]
    return numbers[np.searchsorted(digests, wanted) : np.searchsorted(digests, wanted, side="right")]


def _shown(key: str | bytes) -> str:
    return repr(key) if len(key) <= _LONGEST else f"{key[:_LONGEST]!r}..."
