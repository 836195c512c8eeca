"""`open_runs` opens the runs of a snapshot and determines which shards they cover.

Runs save requests, but they are never required: if a run is missing or damaged, a warning is logged, and the keys of
its shards are read from the shards' own keys files.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from asyncrec._concurrency.map import for_each
from asyncrec._concurrency.tasks import in_thread
from asyncrec._numpy import np
from asyncrec._path_log import PathLog
from asyncrec._shards.manifest.key_run import ENTRY_BYTES, RUN_BLOCK, Entries, KeyRun, RunTail, range_of_blocks
from asyncrec._shards.manifest.names import manifest_prefix
from asyncrec._shards.manifest.shard_list import ShardList
from asyncrec.errors import FormatError, ManifestError, ObjectNotFoundError
from asyncrec.storage._base import Storage
from asyncrec.storage._resuming_source import ResumingSource, receive_exactly
from asyncrec.storage._url import join

if TYPE_CHECKING:
    from numpy.typing import NDArray

_path_log = PathLog("asyncrec.shards")

# The number of blocks that are decoded together. This takes a millisecond or two in a thread.
_STEP_BLOCKS = 64
_UNREADABLE = "a run of keys cannot be read: %s; the keys of its shards are read from their own files instead"
# The errors raised for a run that is missing, is damaged, or does not match its description.
UNFIT = (ObjectNotFoundError, ManifestError, FormatError, ValueError)


@dataclass(slots=True)
class OpenRun:
    """A run whose tail has been read.

    Attributes:
        run: the description of the run in the checkpoint.
        tail: the run's tail.
        rows: int64 (run.shards,): for each shard of the run, its number in the snapshot, or -1 if it is to be ignored.
    """

    folder: Storage
    key: str
    run: KeyRun
    tail: RunTail
    rows: NDArray[np.int64]

    async def find(self, digest: bytes) -> Entries:
        """Return all entries of a key.

        Raises:
            ObjectNotFoundError, ManifestError: the run is missing or damaged.
        """
        first, last = np.frombuffer(digest, "<u8").tolist()
        low, high = self.tail.blocks_of(first)
        found = [Entries.none()]
        for at in range(low, high, _STEP_BLOCKS):  # only one block, unless a key is repeated many times
            entries = await self.part(at, min(at + _STEP_BLOCKS, high))
            found.append(entries.take((entries.digests == np.array([first, last], np.uint64)).all(axis=1)))
        return Entries.joined(found)

    async def part(self, low: int, high: int) -> Entries:
        """Return the entries in blocks ``[low, high)`` of shards in the snapshot, with the snapshot's shard numbers.

        Raises:
            ObjectNotFoundError, ManifestError: the run is missing or damaged.
        """
        start, end = range_of_blocks(low, high, self.run)
        return await in_thread(self._live, await _read(self.folder, self.key, start, end), low, high)

    async def all(self) -> AsyncGenerator[Entries]:
        """Yield all entries whose shards are in the snapshot, in the order of the run, a few blocks at a time.

        Raises:
            ObjectNotFoundError, ManifestError: the run is missing or damaged.
        """
        blocks = len(self.tail.first)
        start, end = range_of_blocks(0, blocks, self.run)
        async with ResumingSource(self.folder, self.key, start=start, end=end) as source:
            for low in range(0, blocks, _STEP_BLOCKS):
                high = min(low + _STEP_BLOCKS, blocks)
                content = await receive_exactly(source, (high - low) * RUN_BLOCK * ENTRY_BYTES)
                yield await in_thread(self._live, content, low, high)

    def _live(self, content: bytes, low: int, high: int) -> Entries:
        entries = Entries.joined(self.tail.check(content, low, high, self.run))
        rows = self.rows[entries.shards]
        found = Entries(entries.digests, rows, entries.records)
        return found if (rows >= 0).all() else found.take(rows >= 0)


@dataclass(slots=True)
class OpenRuns:
    """The runs of a snapshot.

    Attributes:
        runs: the runs that contain keys of the snapshot's shards.
        covered: bool (shards,): whether a run contains the shard's keys, so that its keys file need not be read.
    """

    runs: list[OpenRun]
    covered: NDArray[np.bool_]

    def told(self, path: str, error: Exception) -> None:
        """Log that a run cannot be read, and stop using any runs: no shard counts as covered any more."""
        _path_log.warning(path, _UNREADABLE, error)
        self.runs = []
        self.covered[:] = False


async def open_runs(folder: Storage, name: str, shards: ShardList, *, contents: bool = False) -> OpenRuns:
    """Open the runs of keys that a snapshot's checkpoint names or, with ``contents``, its runs of contents."""
    found = OpenRuns([], await in_thread(np.zeros, len(shards), np.bool_))

    async def open_tail(run: KeyRun) -> tuple[KeyRun, RunTail] | None:
        key = manifest_prefix(name) + run.name
        try:
            content = await _read(folder, key, run.begin_of_tail, run.bytes)
            return run, await in_thread(RunTail.decode, content, run)
        except UNFIT as error:
            _path_log.warning(
                join(folder.root, key),
                "a run of keys cannot be read: %s; the keys of its shards are read instead",
                error,
            )
            return None

    if not len(shards):
        return found
    for opened in await for_each(open_tail, [run for run in shards.runs if run.contents == contents]):
        if opened is None:
            continue
        run, tail = opened
        rows = await in_thread(shards.rows_keyed, tail.paths, tail.keys_crc32c, tail.records)
        rows[found.covered[rows] & (rows >= 0)] = -1  # another run already covers these shards
        if (rows >= 0).any():
            found.covered[rows[rows >= 0]] = True
            found.runs.append(OpenRun(folder, manifest_prefix(name) + run.name, run, tail, rows))
    return found


async def _read(folder: Storage, key: str, start: int, end: int) -> bytes:
    async with ResumingSource(folder, key, start=start, end=end, read_ahead=0) as source:
        return await receive_exactly(source, end - start)
