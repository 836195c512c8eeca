"""`KeyIndex` finds the number of a record by its key: in the sorted keys of all shards, or in a checkpoint's runs."""

from __future__ import annotations

from collections.abc import Sequence

import anyio
import numpy as np
from crc32c import crc32c
from numpy.typing import NDArray

from asyncrec._concurrency.map import for_each
from asyncrec._concurrency.tasks import in_thread
from asyncrec._records.writing.write_batch import KEY_BYTES
from asyncrec._shards.manifest.key_run import Entries
from asyncrec._shards.manifest.key_runs import UNFIT, OpenRuns, open_runs
from asyncrec._shards.manifest.manifest import naming_lost_shards
from asyncrec._shards.manifest.names import keys_key
from asyncrec._shards.manifest.segment import ShardEntry
from asyncrec._shards.manifest.shard_list import ShardList, in_order_of_commits
from asyncrec._shards.writing.keys import digest_of
from asyncrec.errors import DatasetError, ObjectNotFoundError, RecordKeyError
from asyncrec.storage._base import Storage
from asyncrec.storage._cached import expect

Columns = tuple[NDArray[np.bytes_], NDArray[np.int64]]

# A request to a far store takes as long as receiving this number of bytes.
_REQUEST = 512 << 10
# Of a key, so much is shown.
_LONGEST = 200


class KeyIndex:
    """Finds the number of a record by its key. The keys are read when it is first asked.

    Of a far store they are looked up in the runs that the checkpoint names (`_shards.manifest.key_run`), a request for
    each key and run, until reading all of them would have cost as much.

    Args:
        name: of the data set in its folder.
        path: the data set's, for messages.
    """

    def __init__(
        self, folder: Storage, name: str, shards: Sequence[ShardEntry], starts: NDArray[np.int64], path: str
    ) -> None:
        self._path = path
        self._folder = folder
        self._name = name
        self._shards = shards
        self._starts = starts
        self._reading = anyio.Lock()
        self._columns: Columns | None = None  # of all shards
        self._runs: OpenRuns | None = None
        self._others: Columns | None = None  # of the shards that are in no run
        self._asked = 0
        self._ranks = np.empty(0, np.int64)  # of each shard, in the order of commits

    async def find(self, key: str | bytes) -> int:
        """The number of the record with this key, of several the one that was committed first.

        Raises: as `versions`.
        """
        return int((await self.versions(key))[0])

    async def versions(self, key: str | bytes) -> NDArray[np.int64]:
        """The numbers of the records with this key, in the order in which they were committed; at least one.

        Raises:
            KeyError: there is none.
            DatasetError: a file of keys does not fit its shard.
        """
        opened = await self._opened()
        if opened is None:
            return self._look_up(key)
        runs, others = opened
        digest = digest_of(key)
        self._asked += _REQUEST * len(runs.runs)
        try:
            found = await for_each(lambda run: run.find(digest), runs.runs)
        except UNFIT as error:
            self._give_up(runs, error)
            return await self.versions(key)
        numbers = np.concatenate(
            [_found(others, digest), *(self._starts[each.shards] + each.records for each in found)]
        )
        return self._told(key, numbers[np.lexsort((numbers, self._ranks[self._rows_of(numbers)]))], none=False)

    async def _opened(self) -> tuple[OpenRuns, Columns] | None:
        """The runs to ask, and the keys that are in none; `None` if all keys are in memory."""
        if self._columns is None:
            async with self._reading:
                if self._columns is None:
                    await self._open()
        if self._columns is not None or self._runs is None or self._others is None:
            return None
        return self._runs, self._others

    @property
    def are_read(self) -> bool:
        """Whether `look_up` may be called."""
        return self._columns is not None

    def look_up(self, key: str | bytes) -> int:
        """As `find`, where the keys were read before. From any thread."""
        return int(self._look_up(key)[0])

    def _look_up(self, key: str | bytes) -> NDArray[np.int64]:
        assert self._columns is not None, "asked for where they are read"
        return self._told(key, _found(self._columns, digest_of(key)), none=not len(self._columns[0]))

    def _told(self, key: str | bytes, numbers: NDArray[np.int64], *, none: bool) -> NDArray[np.int64]:
        if len(numbers):
            return numbers
        if none:
            raise RecordKeyError(
                f"{self._path}: no record has the key {_shown(key)}, because no record in this data set was written "
                "with a key"
            ).with_remedy("to give a record a key, pass key= to writer.write", command="")
        raise RecordKeyError(f"{self._path}: no record has the key {_shown(key)}")

    async def _open(self) -> None:
        """Open the runs, and read the keys of shards that are in none; or all keys, where that costs less."""
        if self._runs is None:
            await in_thread(self._rank_shards)
            if isinstance(self._shards, ShardList):
                self._runs = await open_runs(self._folder, self._name, self._shards)
            else:
                self._runs = OpenRuns([], np.zeros(len(self._shards), np.bool_))
        runs = self._runs.runs
        whole = not self._folder.read_ahead or self._asked >= sum(run.run.bytes for run in runs)
        if self._others is None:
            self._others = await self._read(np.flatnonzero(~self._runs.covered).tolist())
        if not whole:
            return
        opened, others = self._runs, self._others
        try:
            parts = [await run.all() for run in runs]
        except UNFIT as error:
            self._give_up(opened, error)
            await self._open()
        else:
            self._columns = await in_thread(self._joined, others, [each for part in parts for each in part])
            self._runs, self._others = None, None

    def _give_up(self, runs: OpenRuns, error: Exception) -> None:
        """Read the keys of all shards by their own files from now on."""
        if runs.runs:  # no task has logged it yet
            runs.told(self._path, error)
            self._others = None

    async def _read(self, rows: Sequence[int]) -> Columns:
        """The keys of some shards, by their own files."""

        async def read(row: int) -> bytes:
            shard = self._shards[row]
            if shard.keys is None and shard.committed:
                return b""  # written without keys
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
            if len(content) != KEY_BYTES * shard.records:
                raise DatasetError(
                    f"{path}: the file has {len(content):,} bytes, but the keys of {shard.records:,} records take "
                    f"{KEY_BYTES} bytes each; the file belongs to another version of the shard. Run 'asyncrec "
                    "verify' for details"
                )
            if shard.keys is not None and shard.keys.crc32c not in (None, await in_thread(crc32c, content)):
                raise DatasetError(
                    f"{path}: the keys do not match their checksum in the manifest; run 'asyncrec verify' for details"
                )
            return content

        return await in_thread(self._sorted, rows, await for_each(read, rows))

    def _rank_shards(self) -> None:
        """Find the place of each shard in the order of commits."""
        shards = self._shards
        turns = shards.by_commit() if isinstance(shards, ShardList) else in_order_of_commits(shards)
        self._ranks = np.empty(len(shards), np.int64)
        self._ranks[turns] = np.arange(len(shards))

    def _sorted(self, rows: Sequence[int], contents: list[bytes]) -> Columns:
        digests = np.frombuffer(b"".join(contents), dtype="S16")
        numbers = np.concatenate(
            [np.empty(0, np.int64)]
            + [
                np.arange(start, start + len(content) // KEY_BYTES)
                for start, content in zip(self._starts[rows].tolist(), contents, strict=True)
            ]
        )
        keyed = digests != b""
        return self._in_order(digests[keyed], numbers[keyed])

    def _joined(self, others: Columns, parts: list[Entries]) -> Columns:
        if not parts:
            return others
        digests = np.concatenate([np.ascontiguousarray(each.digests).view("S16").ravel() for each in parts])
        numbers = np.concatenate([self._starts[each.shards] + each.records for each in parts])
        return self._in_order(np.concatenate([digests, others[0]]), np.concatenate([numbers, others[1]]))

    def _in_order(self, digests: NDArray[np.bytes_], numbers: NDArray[np.int64]) -> Columns:
        """Sort by digest; of equal ones the first committed comes first."""
        turns = np.lexsort((numbers, self._ranks[self._rows_of(numbers)]))
        order = turns[np.argsort(digests[turns], kind="stable")]
        return digests[order], numbers[order]

    def _rows_of(self, numbers: NDArray[np.int64]) -> NDArray[np.int64]:
        return np.searchsorted(self._starts, numbers, side="right") - 1


def _found(columns: Columns, digest: bytes) -> NDArray[np.int64]:
    """The records with a key, in the order in which they were committed."""
    digests, numbers = columns
    # S16 compares without trailing zeros on both sides alike.
    wanted = np.frombuffer(digest, dtype="S16")[0]
    return numbers[digests.searchsorted(wanted, "left") : digests.searchsorted(wanted, "right")]


def _shown(key: str | bytes) -> str:
    return repr(key) if len(key) <= _LONGEST else f"{key[:_LONGEST]!r}..."
