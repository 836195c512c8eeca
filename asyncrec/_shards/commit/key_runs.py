"""`RunMaker` writes the runs of keys for a checkpoint. It merges the keys of new shards with small existing runs.

An existing run is kept if all of its shards are still in the data set, so that no run contains the key of a deleted
record, and if it has at least four times as many keys as the new keys and all smaller runs together. All other runs are
merged with the new keys into one new run. As a result, there are only a few runs (six of them contain a billion keys),
and a key is rewritten only after its run has grown by a quarter. New keys are sorted a million at a time. If there are
more, each million is written to a temporary run, and these runs are merged at the end.

Runs only duplicate keys that are also stored with each shard. Therefore, if a shard's keys cannot be read, the shard is
skipped instead of making the compaction fail.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from asyncrec._concurrency.map import for_each
from asyncrec._concurrency.tasks import in_thread
from asyncrec._framing.crc import crc32c
from asyncrec._numpy import np
from asyncrec._path_log import PathLog
from asyncrec._records.writing.write_batch import digest_bytes, digests_in
from asyncrec._shards.manifest.key_run import MAGIC, MOST_RECORDS, RUN_BLOCK, Entries, KeyRun, RunTail, run_name
from asyncrec._shards.manifest.key_runs import UNFIT, OpenRun, OpenRuns, open_runs
from asyncrec._shards.manifest.names import manifest_prefix, new_writer_id
from asyncrec._shards.manifest.segment import ShardEntry
from asyncrec._shards.manifest.shard_list import ShardList
from asyncrec.errors import DatasetError, StorageError
from asyncrec.storage._base import Storage
from asyncrec.storage._checksums import check_sent
from asyncrec.storage._chunk_writer import ChunkWriter
from asyncrec.storage._url import join

if TYPE_CHECKING:
    from numpy.typing import NDArray

_path_log = PathLog("asyncrec.shards")

_RATIO = 4
# A run with fewer keys than this is always merged, because writing 1.5 MiB takes no longer than a few requests.
_LEAST_ENTRIES = 1 << 16
# The number of new keys to sort at once. They occupy 32 MiB, and three times that during the sort.
_MOST_AT_ONCE = 1 << 20
# The minimum number of blocks of one run to read at once.
_LEAST_STEP = 64


class RunMaker:
    """Makes the runs for one checkpoint of a data set.

    Attributes:
        made: the names of the objects that contain the new runs, except any that have been deleted since.
    """

    def __init__(self, folder: Storage, name: str, number: int, shards: ShardList) -> None:
        """``shards`` are the shards in the snapshot that becomes checkpoint ``number``."""
        self.made: list[str] = []
        self._folder = folder
        self._name = name
        self._number = number
        self._shards = shards

    async def clean(self) -> tuple[KeyRun, ...]:
        """Return the existing runs, except those that contain keys or contents of removed shards."""
        if not await in_thread(lambda: bool(self._shards.keyed.any())):
            return ()
        there = [await open_runs(self._folder, self._name, self._shards, contents=kind) for kind in (False, True)]
        return tuple(each.run for kind in there for each in kind.runs if (each.rows >= 0).all())

    async def make(self) -> tuple[KeyRun, ...]:
        """Write the new runs of keys and of contents. Return all runs that the checkpoint will name.

        Raises:
            StorageError: the store failed.
        """
        if not await in_thread(lambda: bool(self._shards.keyed.any())):
            return ()
        return *await self._make(contents=False), *await self._make(contents=True)

    async def _make(self, *, contents: bool) -> tuple[KeyRun, ...]:
        there = await open_runs(self._folder, self._name, self._shards, contents=contents)
        parts, stay, old = await in_thread(_planned, self._shards, there, contents)
        if not parts and not old:
            return tuple(each.run for each in stay)
        before = len(self.made)
        try:
            for part in parts[:-1]:  # if there are more keys than can be sorted at once
                old.append(await self._write(part, [], contents))
            new = await self._write(parts[-1] if parts else _NONE.shards, old, contents)
        except UNFIT as error:
            path = join(self._folder.root, self._name)
            _path_log.warning(
                path, "runs of keys could not be merged: %s; the checkpoint is written without them", error
            )
            await self.delete(before, 0)
            return ()
        await self.delete(before, 1)
        return (*(each.run for each in stay), new.run)

    async def delete(self, first: int = 0, last: int = 0) -> None:
        """Delete the new runs except the first ``first`` and the last ``last``, ignoring failures."""
        while len(self.made) > first + last:
            with suppress(StorageError):
                await self._folder.delete(self.made[first])
            del self.made[first]

    async def _read(self, rows: NDArray[np.int64], contents: bool) -> tuple[Entries, NDArray[np.int64]]:
        """Read the keys of some shards. Return them sorted, and the rows of the shards whose keys could be read."""

        async def read(row: int) -> tuple[Entries, int] | None:
            entry = self._shards[row]
            assert entry.keys is not None, "the shard has keys"
            try:
                content = await self._folder.get(entry.keys.path, max_bytes=entry.keys.bytes)
                return await in_thread(_of_file, content, row, entry, contents), row
            except UNFIT as error:
                path = join(self._folder.root, entry.path)
                _path_log.warning(
                    path, "the keys of this shard cannot be read, so they are left out of the run of keys: %s", error
                )
                return None

        found = [each for each in await for_each(read, rows.tolist()) if each is not None]
        there = np.array([row for _, row in found], np.int64)
        return await in_thread(_sorted, found), there

    async def _write(self, part: NDArray[np.int64], old: Sequence[OpenRun], contents: bool) -> OpenRun:
        """Write one run from the runs ``old`` and from the shards ``part``, which are not in any run yet.

        The run has the contents of these shards if ``contents`` is true, otherwise their keys.
        """
        fresh, rows = await self._read(part, contents)
        rows = await in_thread(lambda: np.unique(np.concatenate([rows, *(run.rows[run.rows >= 0] for run in old)])))
        run = run_name(self._number, new_writer_id())
        key = manifest_prefix(self._name) + run
        self.made.append(key)
        merging = _Merging(fresh, old)
        del fresh
        blocks = _Blocks(rows)
        async with self._folder.open_sink(key) as sink:  # no other process uses this name
            chunks = ChunkWriter(sink)
            await chunks.write([MAGIC])
            while (some := await merging.next()) is not None:
                await chunks.write(await in_thread(blocks.take, some))
            await chunks.write(await in_thread(blocks.rest))
            tail = await in_thread(blocks.tail, self._shards)
            begin = chunks.size
            await chunks.write([await in_thread(tail.encode)])
            await chunks.finish()
        path = f"{self._folder.root}/{key}"
        check_sent(path, sink.published, size=chunks.size, crc32c=chunks.crc32c, then="no checkpoint refers to it")
        said = KeyRun(run, chunks.size, chunks.crc32c, blocks.entries, len(rows), chunks.size - begin, contents)
        return OpenRun(self._folder, key, said, tail, rows)


class _Merging:
    """Merges sorted parts, and returns their entries in chunks."""

    def __init__(self, fresh: Entries, runs: Sequence[OpenRun]) -> None:
        self._runs = [(run, 0) for run in runs]
        self._step = max(_LEAST_STEP, _MOST_AT_ONCE // RUN_BLOCK // max(1, len(runs)) // 4)
        self._heads = [fresh, *(_NONE for _ in runs)]

    async def next(self) -> Entries | None:
        """Return the next entries; `None` after the last."""
        for place, (run, at) in enumerate(self._runs, 1):
            while at < len(run.tail.first) and not len(self._heads[place].shards):
                high = min(at + self._step, len(run.tail.first))
                self._heads[place] = await run.part(at, high)
                self._runs[place - 1] = run, (at := high)
        if not any(len(head.shards) for head in self._heads):
            return None
        return await in_thread(self._cut)

    def _cut(self) -> Entries:
        """Remove and return all loaded entries that come before any entry that has not been loaded yet."""
        ends = [head.digests[-1, 0] for head in self._heads if len(head.shards)]
        bound = min(ends)
        taken = []
        for place, head in enumerate(self._heads):
            end = int(head.digests[:, 0].searchsorted(bound, "right"))
            taken.append(head.take(slice(end)))
            self._heads[place] = head.take(slice(end, None))
        return Entries.joined(taken).sorted()


class _Blocks:
    """Splits merged entries into blocks. Use it in a worker thread.

    Attributes:
        entries: the number of entries in the blocks returned so far.
    """

    def __init__(self, rows: NDArray[np.int64]) -> None:
        """``rows`` are the row numbers of the run's shards in the snapshot, in ascending order."""
        self.entries = 0
        self._rows = rows
        self._left = _NONE
        self._first: list[int] = []
        self._crc32c: list[int] = []

    def take(self, some: Entries) -> list[bytes]:
        """Add entries. Return the blocks that are full."""
        some = Entries.joined([self._left, Entries(some.digests, self._rows.searchsorted(some.shards), some.records)])
        full = len(some.shards) - len(some.shards) % RUN_BLOCK
        self._left = some.take(slice(full, None))
        return [self._block(some.take(slice(at, at + RUN_BLOCK))) for at in range(0, full, RUN_BLOCK)]

    def rest(self) -> list[bytes]:
        """Return a list with the last, partly filled block, or an empty list if no entries are left."""
        return [self._block(self._left)] if len(self._left.shards) else []

    def _block(self, entries: Entries) -> bytes:
        content = entries.encode()
        self.entries += len(entries.shards)
        self._first.append(int(entries.digests[0, 0]))
        self._crc32c.append(crc32c(content))
        return content

    def tail(self, shards: ShardList) -> RunTail:
        """Return the tail of the run."""
        return RunTail(
            *shards.keys_of(self._rows),
            first=np.array(self._first, np.uint64),
            crc32c=np.array(self._crc32c, np.uint32),
        )


_NONE = Entries(np.empty((0, 2), np.uint64), np.empty(0, np.int64), np.empty(0, np.int64))


def _planned(
    shards: ShardList, there: OpenRuns, contents: bool
) -> tuple[list[NDArray[np.int64]], list[OpenRun], list[OpenRun]]:
    """Return the shards that are not in any run yet (split into parts), the runs to keep, and the runs to merge."""
    having = shards.with_contents if contents else shards.keyed
    rows = np.flatnonzero(having & ~there.covered & (shards.counts <= MOST_RECORDS))
    counts = shards.counts[rows]
    return _parts(rows, counts), *_chosen(there.runs, int(counts.sum()))


def _chosen(runs: Sequence[OpenRun], more: int) -> tuple[list[OpenRun], list[OpenRun]]:
    """Return the runs to keep and the runs to merge with ``more`` new keys."""
    ordered = sorted(runs, key=lambda each: each.run.entries)
    merged: list[OpenRun] = []
    stay: list[OpenRun] = []
    for each in ordered:
        large = each.run.entries >= max(_RATIO * more, _LEAST_ENTRIES)
        if large and (each.rows >= 0).all():
            stay.append(each)
        else:
            merged.append(each)
        more += each.run.entries
    if len(merged) == 1 and more == merged[0].run.entries + sum(each.run.entries for each in stay):
        [alone] = merged  # there is nothing to merge this run with
        if (alone.rows >= 0).all():
            return [*stay, alone], []
    return stay, merged


def _parts(rows: NDArray[np.int64], counts: NDArray[np.int64]) -> list[NDArray[np.int64]]:
    """Split shards into parts whose keys are sorted together. A shard with too many keys gets a part of its own."""
    if not len(rows):
        return []
    number = (np.cumsum(counts) - 1) // _MOST_AT_ONCE
    return np.split(rows, np.flatnonzero(np.diff(number)) + 1)


def _sorted(found: list[tuple[Entries, int]]) -> Entries:
    """Return the sorted entries of these files, and clear ``found`` to free memory."""
    entries = Entries.joined([_NONE, *(each for each, _ in found)])
    found.clear()
    return entries.sorted()


def _of_file(content: bytes, row: int, entry: ShardEntry, contents: bool) -> Entries:
    """Return the digests of keys or of contents from the keys file of one shard.

    Raises:
        DatasetError: the file does not match the manifest.
    """
    keys = entry.keys
    if not digest_bytes(len(content), entry.records) or (keys and keys.crc32c not in (None, crc32c(content))):
        raise DatasetError(
            f"the file of {len(content):,} bytes does not match the size or checksum of the keys in the manifest"
        )
    digests = digests_in(content, entry.records, of_contents=contents)
    records = np.flatnonzero(digests.any(axis=1))  # a digest of zeros means that the record has no key
    return Entries(digests[records], np.full(len(records), row, np.int64), records)
