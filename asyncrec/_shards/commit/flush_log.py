"""`FlushLog`: a writer without a disk puts what it has flushed into its store, in entries that its own commits void.

The problem: on a machine whose disk goes with it, a kill takes all records since the last commit, up to a shard. The
naive way is to commit more often; but each commit is a shard, and a data set of a million small shards is slow for
ever. Another is to write each record twice, in a log of its own, and to delete that log when its shard is committed.
Suppose the deletion is late, or the request for an entry: then a process that recovers the writer finds records in the
log and in a shard, and stores them twice.

So an entry says for which shard each record was taken. A shard that was ever committed is known by its name for good,
and what the log has of it is void, however late an entry comes. Entries below the last may be deleted; so each commit
says up to which number the log had come (`Segment.flushed`). One entry is under way at a time, and what is ready
meanwhile goes together into the next.

Which entries are needed, and which a later one repeats, is the affair of `FlushLedger`. If no answer comes, the same
bytes are sent again, as for a commit.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress

import anyio
from anyio.lowlevel import checkpoint_if_cancelled

from asyncrec._concurrency.deadline import CLEAN_UP_SECONDS
from asyncrec._concurrency.map import for_each
from asyncrec._concurrency.tasks import in_thread
from asyncrec._path_log import PathLog
from asyncrec._records.writing.memory_budget import ByteBudget
from asyncrec._records.writing.write_batch import WriteBatch
from asyncrec._shards.commit.exclusive import create
from asyncrec._shards.journal.flush_entry import MOST_ENTRY, FlushEntry, parse_flush_entry
from asyncrec._shards.journal.flush_ledger import FlushLedger
from asyncrec._shards.manifest.names import flush_key
from asyncrec.errors import (
    ConflictError,
    ObjectExistsError,
    ObjectNotFoundError,
    StorageError,
    StoragePermissionError,
    TransientStorageError,
    UnsettledError,
)
from asyncrec.storage._base import Storage
from asyncrec.storage._url import join

_path_log = PathLog("asyncrec.shards")

_FOLDER = "_flush/"
# While callers wait for room, a flush that failed is tried again after a pause, which doubles.
_PAUSE, _MOST_PAUSE = 1.0, 30.0


class FlushLog:
    """The flush log of one writer.

    Attributes:
        held: bytes of records that it holds in memory.
        changed: when the store last took something of it, by the event loop's clock.
        on_full: called when more is kept for a flush than an entry holds.
    """

    def __init__(self, storage: Storage, name: str, writer: str, *, compression: str, budget: ByteBudget) -> None:
        self.held = 0
        self.changed = anyio.current_time()
        self.on_full: Callable[[], None] = lambda: None
        self._turn = anyio.Lock(fast_acquire=True)  # held while an entry is under way
        self._storage = storage
        self._name = name
        self._path = join(storage.root, name)
        self._writer = writer
        self._compression = compression
        self._budget = budget
        self._may_delete = True
        self._most = max(1, min(MOST_ENTRY, budget.limit // 8))
        self._ledger = FlushLedger(self._most)
        budget.when_starving(self._make_room)
        budget.account(self._most)  # an entry is held as it is sent, beside its records

    @property
    def is_needed(self) -> bool:
        """Whether something is in it that no commit has."""
        return self._ledger.is_needed

    # -- for the object writers ---------------------------------------------------------------------------------------

    def keep(self, size: int) -> None:
        """Note that so many bytes more are kept for a flush, or less."""
        self._ledger.kept += size
        self._account()
        if self._ledger.kept > self._most:
            self.on_full()

    async def flush(self, shard: str, batches: Sequence[WriteBatch]) -> bool:
        """Put the records of a shard into an entry, with what others flush now; returns whether all of it is there.

        They were kept until now. If the store does not answer, the next flush tries again; while callers wait for the
        room that these records take, this one does. Cancelled, it is in the next one.

        Raises:
            ConflictError: another process is ending the writer.
            StorageError: the store refused.
        """
        if batches:
            self._ledger.take(shard, batches)
            self._account()
        wanted = self._ledger.handed_over
        await checkpoint_if_cancelled()
        done = await self._send(wanted)
        await self.clear()
        return done

    async def beat(self) -> None:
        """Say to others that the writer lives, while it has something in the log and flushes nothing.

        Raises:
            ConflictError: another process is ending the writer.
        """
        await self._send(self._ledger.stored, at_least_once=True)
        await self.clear()

    async def _send(self, wanted: int, *, at_least_once: bool = False) -> bool:
        """Create entries until so many sections are stored; returns whether they are."""
        pause = _PAUSE
        async with self._turn:
            while at_least_once or self._ledger.stored < wanted:
                try:
                    await self._send_entry()
                except (TransientStorageError, UnsettledError) as error:
                    if pause == _PAUSE:
                        message = (
                            "records could not be flushed to the store, and are tried again with the next flush: %s"
                        )
                        _path_log.warning(self._path, message, error, writer=self._writer)
                    if not self._budget.callers_waiting:
                        return False
                    await anyio.sleep(pause)
                    pause = min(2 * pause, _MOST_PAUSE)
                except StoragePermissionError as error:
                    error.add_note(f"the writer flushes to {_FOLDER}; allow that, or pass flush_seconds=None")
                    raise
                else:
                    at_least_once = False
        return True

    async def _send_entry(self) -> None:
        """Create the next entry; what is in doubt comes first. Cancelled, it is in doubt."""
        entry = self._ledger.ask()
        if not entry.content:
            packed = FlushEntry(writer=self._writer, since=entry.since, sections=tuple(entry.sections))
            entry.content = await in_thread(lambda: packed.encode(compression=self._compression))
        try:
            key = flush_key(self._name, self._writer, entry.number)
            await create(self._storage, key, entry.content, shield=False)
        except ObjectExistsError as error:
            raise await self._ended(entry.number) from error
        self._ledger.won()
        if self._budget.callers_waiting:
            self._ledger.forget_tail()
        self.changed = anyio.current_time()
        self._account()

    async def _ended(self, number: int) -> Exception:
        """What to say where the next number is taken: by a fence, or by another writer of this id."""
        key = flush_key(self._name, self._writer, number)
        by = ""
        with suppress(ObjectNotFoundError):
            data = await self._storage.get(key, max_bytes=4 * MOST_ENTRY)
            by = (await in_thread(lambda: parse_flush_entry(data, name=key))).fenced_by
        return ConflictError(
            f"{self._path}: another process{f' ({by})' if by else ''} has declared the "
            f"writer {self._writer} dead and recovered what it had flushed; later records are not safe: write them "
            "again with a new writer"
        )

    # -- for the manifest ---------------------------------------------------------------------------------------------

    @property
    def last(self) -> int:
        """The number of the last entry that is there; 0 if there is none."""
        return self._ledger.last

    def committed(self, shards: Collection[str]) -> None:
        """Note that these shards are committed: their records in the log are void."""
        self.changed = anyio.current_time()
        self._ledger.committed(shards)
        self._account()

    # -- cleaning up --------------------------------------------------------------------------------------------------

    async def clear(self) -> None:
        """Delete the entries that nothing needs any more, for some seconds. What is left is tried again later."""

        async def delete(number: int) -> None:
            try:
                await self._storage.delete(flush_key(self._name, self._writer, number))
                self._ledger.garbage.discard(number)
            except StoragePermissionError as error:
                if self._may_delete:
                    message = "flushed records cannot be deleted: %s"
                    _path_log.warning(self._path, message, error, writer=self._writer)
                self._may_delete = False
            except StorageError as error:
                _path_log.debug(self._path, "a flush entry could not be deleted: %s", error)

        if self._ledger.garbage and self._may_delete:
            with anyio.move_on_after(CLEAN_UP_SECONDS):
                await for_each(delete, sorted(self._ledger.garbage))

    async def end(self) -> None:
        """Delete all entries: the writer has ended, and all its records are committed."""
        self._ledger.end()
        self._account()
        await self.clear()

    def close(self) -> None:
        """Give back all room: nothing more is flushed."""
        self._ledger.end()
        self._ledger.kept = 0
        self._account()
        self._budget.account(-self._most)

    def _make_room(self) -> None:
        """Hold no more what later entries might repeat, and have the rest flushed: callers wait for room."""
        self._ledger.forget_tail()
        self._account()
        if self._ledger.is_pending:
            self.on_full()

    def _account(self) -> None:
        more, self.held = self._ledger.held - self.held, self._ledger.held
        if more > 0:
            self._budget.hold(more)
        elif more:
            self._budget.give(-more)


class ShardLog:
    """The part of a flush log that one open shard has: `KeptRecords`."""

    def __init__(self, log: FlushLog, shard: str) -> None:
        self._log = log
        self._shard = shard
        self._batches: list[WriteBatch] = []

    def keep(self, batches: Sequence[WriteBatch]) -> None:
        self._batches += batches
        self._log.keep(sum(batch.size for batch in batches))

    async def flush(self) -> bool:
        batches, self._batches = self._batches, []
        return await self._log.flush(self._shard, batches)

    def drop(self) -> None:
        batches, self._batches = self._batches, []
        self._log.keep(-sum(batch.size for batch in batches))


def fence_of(writer: str, number: int, *, by: str) -> bytes:
    """Make a fence, unlike any other."""
    return FlushEntry(writer=writer, since=number, fenced_by=f"{by} {secrets.token_hex(8)}").encode()
