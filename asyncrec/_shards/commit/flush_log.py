"""`FlushLog` stores the records flushed by a writer without a disk. They become void once their shard is committed.

If a machine is lost together with its disk, all records since the last commit are lost, which may be an entire shard.
The writer could commit more often, but each commit makes a shard, and a data set with a million small shards stays
slow. The writer could also write each record to a separate log, and delete this log when the shard is committed. But if
the deletion or the request for an entry is delayed, a process that recovers the writer finds the same records in the
log and in a shard, and stores them twice.

Therefore, an entry states the shard of each record. The names of all committed shards remain known, and the records of
these shards in the log are void, however late an entry appears. Each commit states the last number in the log
(`Segment.flushed`). Only then may the last entry be deleted, because a process that ends the writer needs its number.

Only one entry is in flight at a time, and all records that become ready in the meantime go into the next one. Shards do
not wait for entries: they are uploaded in parallel, and a callback reports the outcome of each flush. If the store does
not respond, the same bytes are sent again, as for a commit.

`FlushLedger` decides which entries are needed and which a later entry repeats, `FlushRoom` counts the memory in use,
and `FlushSweeper` deletes entries.
"""

from __future__ import annotations

import secrets
from collections import deque
from collections.abc import Collection, Sequence
from dataclasses import dataclass

import anyio

from asyncrec._concurrency.deadline import CLEAN_UP_SECONDS
from asyncrec._concurrency.map import for_each
from asyncrec._concurrency.tasks import in_thread
from asyncrec._path_log import PathLog
from asyncrec._records.writing.memory_budget import ByteBudget
from asyncrec._records.writing.object_output import Outcome
from asyncrec._records.writing.write_batch import WriteBatch
from asyncrec._shards.commit.exclusive import create
from asyncrec._shards.commit.flush_room import FlushRoom, ShardRecords
from asyncrec._shards.journal.flush_entry import MOST_ENTRY, FlushEntry, parse_flush_entry
from asyncrec._shards.journal.flush_ledger import FlushLedger
from asyncrec._shards.manifest.names import flush_key
from asyncrec.errors import (
    ConflictError,
    IntegrityError,
    ObjectExistsError,
    ObjectNotFoundError,
    StoragePermissionError,
    TransientStorageError,
    UnsettledError,
)
from asyncrec.storage._base import Storage
from asyncrec.storage._url import join


@dataclass(frozen=True)
class FlushPlace:
    """The location of one writer's flush log in the data set ``name``."""

    storage: Storage
    name: str
    writer: str

    @property
    def path(self) -> str:
        """The path of the data set."""
        return join(self.storage.root, self.name)

    def key(self, number: int) -> str:
        """Return the key of the entry with this number."""
        return flush_key(self.name, self.writer, number)


class FlushSweeper:
    """A task that deletes entries when the ledger allows it. `run` is the body of the task."""

    def __init__(self, place: FlushPlace, ledger: FlushLedger) -> None:
        self._place = place
        self._ledger = ledger
        self._due = anyio.Event()
        self._may_delete = True

    def wake(self) -> None:
        """Wake the task, so that it checks the ledger again."""
        self._due.set()

    async def run(self) -> None:
        """Delete entries until cancelled."""
        while True:
            await self._due.wait()
            self._due = anyio.Event()
            await self.sweep()

    async def sweep(self) -> None:
        """Delete entries for a few seconds. Entries that remain, and failed deletions, are left to a later call."""
        if self._may_delete and (numbers := self._ledger.deletable()):
            with anyio.move_on_after(CLEAN_UP_SECONDS):
                await for_each(self._delete, numbers)

    async def _delete(self, number: int) -> None:
        place = self._place
        try:
            await place.storage.delete(place.key(number))
            self._ledger.garbage.discard(number)
        except StoragePermissionError as error:
            if self._may_delete:
                _path_log.warning(place.path, "flushed records cannot be deleted: %s", error, writer=place.writer)
            self._may_delete = False
        except Exception as error:
            _path_log.debug(place.path, "a flush entry could not be deleted: %s", error, writer=place.writer)


_path_log = PathLog("asyncrec.shards")

# The first and the longest pause, in seconds, before a failed flush is retried while callers wait.
_PAUSE, _MOST_PAUSE = 1.0, 30.0


class FlushLog:
    """The flush log of one writer. `send` and ``sweeper.run`` are the bodies of its two tasks.

    Attributes:
        room: the memory in use.
        ledger: the records in each entry.
        sweeper: the task that deletes entries.
        shards: the records of each shard that is not yet committed.
        changed: the time when the store last accepted an entry or commit of the writer, by the event loop's clock.
        beats: the number of entries without records since the last entry with records.
        error: the reason why flushing stopped: another process ended the writer, or the store rejected an entry.
    """

    def __init__(self, storage: Storage, name: str, writer: str, *, compression: str, budget: ByteBudget) -> None:
        self.room = FlushRoom(budget)
        self.ledger = self.room.ledger
        self.shards: dict[str, ShardRecords] = {}
        self.changed = anyio.current_time()
        self.beats = 0
        self.error: Exception | None = None
        self._place = FlushPlace(storage, name, writer)
        self.sweeper = FlushSweeper(self._place, self.ledger)
        self._compression = compression
        self._asked: deque[tuple[int, Outcome]] = deque()  # pending flushes, each with the last section it waits for
        self._stored: int | None = None  # the value of `stored` when flushing failed permanently
        self._beat_due = False
        self._to_send = anyio.Event()
        self.room.on_waiting = self._wake

    # -- called by the object writers ----------------------------------------------------------------------------------

    def shard(self, key: str) -> ShardRecords:
        """Register an open shard. Return the object that keeps the shard's records."""
        self.shards[key] = shard = ShardRecords(self, self.room, key)
        return shard

    def flush(self, shard: str, batches: Sequence[WriteBatch], done: Outcome) -> int:
        """Add the kept records of a shard to an entry, which may also have records of other shards.

        ``done`` is called with the outcome: whether all of the records are in the store, or the error. If the store
        does not respond, the next flush tries again. Return the value that `stored` will have once all of the records
        are in the store.
        """
        if batches:
            self.ledger.take(shard, batches)
            self.room.account()
        count = self.ledger.taken
        self._asked.append((count, done))
        self._answer()
        self._wake()
        return count

    @property
    def stored(self) -> int:
        """A count of flushed sections. All sections up to this one are in an entry, or are void.

        After an error, the count does not change any more.
        """
        return self.ledger.stored if self._stored is None else self._stored

    def _answer(self) -> None:
        """Report success to each flush whose records are all in an entry, or in a committed shard."""
        while self._asked and self._asked[0][0] <= self.ledger.stored:
            self._asked.popleft()[1](True)
        self.room.make()  # records kept since then had to wait for these flushes

    def _answer_all(self, outcome: bool | Exception) -> None:
        self._answer()
        while self._asked:
            self._asked.popleft()[1](outcome)

    # -- the task -----------------------------------------------------------------------------------------------------

    def beat(self) -> None:
        """Create an entry even if it has no records, to show that a writer with records in the log is alive."""
        self._beat_due = True
        self._wake()

    def _wake(self) -> None:
        self._to_send.set()

    async def send(self) -> None:
        """Create entries until cancelled. This is the body of a task.

        After a cancellation, it is unknown whether the entry in flight was created.
        """
        try:
            while self.error is None:
                await self._to_send.wait()
                self._to_send = anyio.Event()
                await self._send_all()
        except Exception as error:
            if isinstance(error, StoragePermissionError):
                error.add_note("the writer flushes to _flush/; allow that, or pass flush_seconds=None")
            self.stop(error)
        finally:
            self._answer_all(False)

    async def _send_all(self) -> None:
        """Create entries until no section is waiting. If the store does not respond, the next flush tries again.

        However, if callers are waiting for the memory that the records occupy, try again after a pause.
        """
        pause = _PAUSE
        while self.error is None and (self._beat_due or self.ledger.is_waiting):
            self._beat_due = False
            try:
                await self._send_entry()
            except (TransientStorageError, UnsettledError) as error:
                if pause == _PAUSE:
                    message = "records could not be flushed to the store; the next flush will try again: %s"
                    _path_log.warning(self._place.path, message, error, writer=self._place.writer)
                self._answer_all(False)
                if not self.room.is_wanted:
                    return
                await anyio.sleep(pause)
                pause = min(2 * pause, _MOST_PAUSE)

    async def _send_entry(self) -> None:
        """Create the entry in doubt or, if no entry is in doubt, the next entry."""
        entry, place = self.ledger.ask(), self._place
        if not entry.content:
            packed = FlushEntry(writer=place.writer, since=entry.since, sections=tuple(entry.sections))
            entry.content = await in_thread(lambda: packed.encode(compression=self._compression))
        try:
            await create(place.storage, place.key(entry.number), entry.content, shield=False)
        except ObjectExistsError as error:
            raise _conflict(place, await _fenced_by(place, entry.number)) from error
        except IntegrityError as error:
            # The entry was created. But before this writer could read it back, a process that ended the writer
            # recovered and deleted it.
            if by := await _fenced_by(place, entry.number + 1):
                raise _conflict(place, by) from error
            raise
        if self.error is not None:
            return
        self.beats = 0 if entry.sections else self.beats + 1
        self.ledger.won()
        if self.room.is_wanted:
            self.ledger.forget_tail()
        self._changed()

    # -- called when the manifest changes ------------------------------------------------------------------------------

    def committed(self, shards: Collection[str], flushed: int) -> None:
        """Record a commit, after which the log's records of these shards are void.

        ``flushed`` is the last number in the log that the commit states.
        """
        self.beats = 0
        self.ledger.committed(shards, flushed)
        for shard in shards:
            if (records := self.shards.pop(shard, None)) is not None:
                records.committed()
        self._changed()

    def _changed(self) -> None:
        """Record that the store has accepted a request, which frees memory and makes some entries unnecessary."""
        self.changed = anyio.current_time()
        self.room.account()
        self._answer()
        self.sweeper.wake()

    def stop(self, error: Exception) -> None:
        """Stop flushing because of an error."""
        if self.error is None:
            self.error, self._stored = error, self.ledger.stored
        self._answer_all(self.error)
        self.room.on_full()  # each open shard flushes, and so receives the error
        self._wake()

    async def end(self) -> None:
        """Delete all entries of a writer that has ended after committing all of its records."""
        self.ledger.end()
        self.room.account()
        await self.sweeper.sweep()


async def _fenced_by(place: FlushPlace, number: int) -> str:
    """Return the id of the process that fenced this number; an empty string if there is no fence."""
    key = place.key(number)
    try:
        data = await place.storage.get(key, max_bytes=4 * MOST_ENTRY)
    except ObjectNotFoundError:
        return ""
    return (await in_thread(lambda: parse_flush_entry(data, name=key))).fenced_by


def _conflict(place: FlushPlace, by: str) -> ConflictError:
    return ConflictError(
        f"{place.path}: another process{f' ({by})' if by else ''} has declared the writer {place.writer} dead and "
        "recovered its flushed records; later records are not safe: write them again with a new writer",
        ended=True,
    )


def fence_of(writer: str, number: int, *, by: str) -> bytes:
    """Return the content of a new fence. The content is unique."""
    return FlushEntry(writer=writer, since=number, fenced_by=f"{by} {secrets.token_hex(8)}").encode()
