"""`FlushLog`: a writer without a disk puts what it has flushed into its store, in entries that its own commits void.

The problem: on a machine whose disk goes with it, a kill takes all records since the last commit, up to a shard. The
naive way is to commit more often; but each commit is a shard, and a data set of a million small shards is slow for
ever. Another is to write each record twice, in a log of its own, and to delete that log when its shard is committed.
Suppose the deletion is late, or the request for an entry: then a process that recovers the writer finds records in the
log and in a shard, and stores them twice.

So an entry says for which shard each record was taken. A shard that was ever committed is known by its name for good,
and what the log has of it is void, however late an entry comes. Each commit says up to which number the log had come
(`Segment.flushed`), and only then the last entry may be deleted: a process that ends the writer has to know its number.

One entry is under way at a time, and what is ready meanwhile goes together into the next. The shards do not wait for
it: they go on to the object store beside it, and learn by a call what became of their flush. If no answer comes, the
same bytes are sent again, as for a commit.

Which entries are needed, and which a later one repeats, is the affair of `FlushLedger`.
"""

from __future__ import annotations

import secrets
import sys
from collections import deque
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress

import anyio

from asyncrec._concurrency.deadline import CLEAN_UP_SECONDS
from asyncrec._concurrency.map import for_each
from asyncrec._concurrency.tasks import in_thread
from asyncrec._path_log import PathLog
from asyncrec._records.writing.memory_budget import ByteBudget
from asyncrec._records.writing.object_output import Outcome
from asyncrec._records.writing.write_batch import WriteBatch
from asyncrec._shards.commit.exclusive import create
from asyncrec._shards.journal.flush_entry import MOST_ENTRY, FlushEntry, parse_flush_entry
from asyncrec._shards.journal.flush_ledger import FlushLedger
from asyncrec._shards.manifest.names import flush_key
from asyncrec.errors import (
    ConflictError,
    ObjectExistsError,
    ObjectNotFoundError,
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
    """The flush log of one writer. Two tasks are its owners: `send` and `sweep`.

    Attributes:
        held: bytes of records that it holds in memory.
        changed: when the store last took something of the writer, by the event loop's clock.
        beats: how many entries without records it has made since it last made one with records.
        on_full: called when more is kept for a flush than an entry holds.
    """

    def __init__(self, storage: Storage, name: str, writer: str, *, compression: str, budget: ByteBudget) -> None:
        self.held = 0
        self.changed = anyio.current_time()
        self.beats = 0
        self.on_full: Callable[[], None] = lambda: None
        self._storage = storage
        self._name = name
        self._path = join(storage.root, name)
        self._writer = writer
        self._compression = compression
        self._budget = budget
        self._most = max(1, min(MOST_ENTRY, budget.limit // 8))
        self._ledger = FlushLedger(self._most)
        self._finished = 0  # bytes of shards that are being published
        self._shards: dict[str, ShardLog] = {}  # those that are not committed
        self._asked: deque[tuple[int, Outcome]] = deque()  # flushes, each with the last section that it waits for
        self._error: Exception | None = None
        self._stored: int | None = None  # when nothing more could be flushed
        self._closed = False
        self._beat_due = False
        self._to_send = anyio.Event()
        self._to_sweep = anyio.Event()
        self._may_delete = True
        budget.when_starving(self._make_room)
        budget.account(self._most)  # an entry is held as it is sent, beside its records

    @property
    def is_needed(self) -> bool:
        """Whether something is in it that no commit has."""
        return self._ledger.is_needed

    # -- for the object writers ---------------------------------------------------------------------------------------

    def shard(self, key: str) -> ShardLog:
        """Begin to keep the records of an open shard."""
        self._shards[key] = shard = ShardLog(self, key)
        return shard

    def keep(self, *, open: int = 0, finished: int = 0) -> None:
        """Note that so many bytes more are kept for a flush, or less; and of shards that are not flushed any more."""
        if self._closed:
            return
        self._ledger.kept += open
        self._finished += finished
        self._account()
        if open > 0 and self._ledger.kept > self._most:
            self.on_full()

    def flush(self, shard: str, batches: Sequence[WriteBatch], done: Outcome) -> int:
        """Have the records of a shard, which were kept until now, put into an entry, with what others flush.

        ``done`` is called with what became of it: whether all of it is there, or the error. If the store does not
        answer, the next flush tries again. Returns the count of `stored` at which all of it is there.
        """
        if batches:
            self._ledger.take(shard, batches)
            self._account()
        count = self._ledger.taken
        self._asked.append((count, done))
        self._answer()
        self._to_send.set()
        return count

    @property
    def stored(self) -> int:
        """Up to which count all that was flushed is in an entry, or void; after an error, all that was then."""
        return self._ledger.stored if self._stored is None else self._stored

    @property
    def error(self) -> Exception | None:
        """Why nothing more can be flushed: another process has ended the writer, or the store refused."""
        return self._error

    def unstored(self, shard: str) -> tuple[int, list[WriteBatch], int]:
        """What of a shard is not known to be in the store.

        Returns how many records are, the batches behind them, and the last ticket.
        """
        log = self._shards.get(shard)
        return (0, [], 0) if log is None else log.unstored()

    def beat(self) -> None:
        """Say to others that the writer lives, while it has something in the log and flushes nothing."""
        self._beat_due = True
        self._to_send.set()

    async def send(self) -> None:
        """Be the task that creates entries, until it is cancelled. Then what is under way is in doubt."""
        try:
            while self._error is None:
                await self._to_send.wait()
                self._to_send = anyio.Event()
                await self._send_all()
        except Exception as error:
            if isinstance(error, StoragePermissionError):
                error.add_note(f"the writer flushes to {_FOLDER}; allow that, or pass flush_seconds=None")
            self.stop(error)
        finally:
            self._answer_all(False)

    def stop(self, error: Exception) -> None:
        """Flush nothing more, because of an error."""
        if self._error is None:
            self._error, self._stored = error, self._ledger.stored
        self._answer_all(self._error)
        self._to_send.set()

    async def _send_all(self) -> None:
        """Create entries until nothing waits for one. If the store does not answer, the next flush tries again.

        While callers wait for the room that these records take, they are tried again before.
        """
        pause = _PAUSE
        while self._error is None and (self._beat_due or self._ledger.is_waiting):
            self._beat_due = False
            try:
                await self._send_entry()
            except (TransientStorageError, UnsettledError) as error:
                if pause == _PAUSE:
                    message = "records could not be flushed to the store, and the next flush tries again: %s"
                    _path_log.warning(self._path, message, error, writer=self._writer)
                self._answer_all(False)
                if not self._budget.callers_waiting:
                    return
                await anyio.sleep(pause)
                pause = min(2 * pause, _MOST_PAUSE)

    async def _send_entry(self) -> None:
        """Create the next entry; what is in doubt comes first."""
        entry = self._ledger.ask()
        if not entry.content:
            packed = FlushEntry(writer=self._writer, since=entry.since, sections=tuple(entry.sections))
            entry.content = await in_thread(lambda: packed.encode(compression=self._compression))
        try:
            key = flush_key(self._name, self._writer, entry.number)
            await create(self._storage, key, entry.content, shield=False)
        except ObjectExistsError as error:
            raise await self._ended(entry.number) from error
        if self._error is not None:
            return
        self.beats = 0 if entry.sections else self.beats + 1
        self._ledger.won()
        if self._budget.callers_waiting:
            self._ledger.forget_tail()
        self._changed()

    async def _ended(self, number: int) -> Exception:
        """What to say where the next number is taken: by a fence, or by another writer of this id."""
        key = flush_key(self._name, self._writer, number)
        by = ""
        with suppress(ObjectNotFoundError):
            data = await self._storage.get(key, max_bytes=4 * MOST_ENTRY)
            by = (await in_thread(lambda: parse_flush_entry(data, name=key))).fenced_by
        return ConflictError(
            f"{self._path}: another process{f' ({by})' if by else ''} has declared the writer {self._writer} dead and "
            "recovered what it had flushed; later records are not safe: write them again with a new writer"
        )

    def _answer(self) -> None:
        """Tell those whose records are in an entry, or in a committed shard."""
        while self._asked and self._asked[0][0] <= self._ledger.stored:
            self._asked.popleft()[1](True)
        if self._budget.starving:  # what was kept meanwhile had to wait for these answers
            self._make_room()

    def _answer_all(self, outcome: bool | Exception) -> None:
        self._answer()
        while self._asked:
            self._asked.popleft()[1](outcome)

    # -- for the manifest ---------------------------------------------------------------------------------------------

    @property
    def last(self) -> int:
        """The number of the last entry that is there; 0 if there is none."""
        return self._ledger.last

    def committed(self, shards: Collection[str], flushed: int) -> None:
        """Note that a commit is there: what the log has of these shards is void.

        The commit says that the log had come up to the number ``flushed``.
        """
        self.beats = 0
        self._ledger.committed(shards, flushed)
        for each in shards:
            if (shard := self._shards.pop(each, None)) is not None:
                self.keep(**shard.kept_bytes(-1))
        self._changed()

    # -- cleaning up --------------------------------------------------------------------------------------------------

    async def sweep(self) -> None:
        """Be the task that deletes what nothing needs any more, until it is cancelled."""
        while True:
            await self._to_sweep.wait()
            self._to_sweep = anyio.Event()
            await self._clear()

    async def _clear(self) -> None:
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
            except Exception as error:
                _path_log.debug(self._path, "a flush entry could not be deleted: %s", error)

        if self._may_delete and (numbers := self._ledger.deletable()):
            with anyio.move_on_after(CLEAN_UP_SECONDS):
                await for_each(delete, numbers)

    async def end(self) -> None:
        """Delete all entries: the writer has ended, and all its records are committed."""
        self._ledger.end()
        self._account()
        await self._clear()

    def close(self) -> None:
        """Give back all room: nothing more is flushed. What shards keep can still be asked for."""
        if not self._closed:
            self._ledger.end()
            self._ledger.kept = self._finished = 0
            self._account()
            self._budget.account(-self._most)
            self._closed = True

    def _changed(self) -> None:
        """Note that the store has taken something: some room is free, and some entries are needed no more."""
        self.changed = anyio.current_time()
        self._account()
        self._answer()
        self._to_sweep.set()

    def _make_room(self) -> None:
        """Hold no more what later entries might repeat, and have the rest flushed: callers wait for room."""
        self._ledger.forget_tail()
        self._account()
        if self._ledger.kept:
            self.on_full()
        if self._ledger.is_waiting:
            self._to_send.set()

    def _account(self) -> None:
        held = self._ledger.held + self._finished
        more, self.held = held - self.held, held
        if more > 0:
            self._budget.hold(more)
        elif more:
            self._budget.give(-more)


class ShardLog:
    """The part of a flush log that one shard has until it is committed: `KeptRecords`."""

    def __init__(self, log: FlushLog, shard: str) -> None:
        self._log = log
        self._shard = shard
        self._kept: list[WriteBatch] = []
        self._flushed: deque[tuple[int, list[WriteBatch]]] = deque()  # not known to be in the store
        self._stored = 0  # records that are
        self._last = 0
        self._is_open = True

    def keep(self, batches: Sequence[WriteBatch]) -> None:
        self._kept += batches
        self._last = batches[-1].last
        self._log.keep(open=sum(batch.size for batch in batches))

    def flush(self, done: Outcome) -> None:
        if (error := self._log.error) is not None:
            done(error)
            return

        def told(outcome: bool | Exception) -> None:
            self._forget_stored()
            done(outcome)

        batches, self._kept = self._kept, []
        self._flushed.append((sys.maxsize, batches))
        self._flushed[-1] = self._log.flush(self._shard, batches, told), batches

    def finish(self) -> None:
        size = sum(self.kept_bytes(1).values())
        self._is_open = False
        self._log.keep(open=-size, finished=size)

    def kept_bytes(self, sign: int) -> dict[str, int]:
        """How many bytes it keeps, as `FlushLog.keep` takes them."""
        return {"open" if self._is_open else "finished": sign * sum(batch.size for batch in self._kept)}

    def unstored(self) -> tuple[int, list[WriteBatch], int]:
        """How many records are in the store for certain, the batches behind them, and the last ticket."""
        self._forget_stored()
        return self._stored, [*(batch for _, batches in self._flushed for batch in batches), *self._kept], self._last

    def _forget_stored(self) -> None:
        while self._flushed and self._flushed[0][0] <= self._log.stored:
            self._stored += sum(batch.count for batch in self._flushed.popleft()[1])


def fence_of(writer: str, number: int, *, by: str) -> bytes:
    """Make a fence, unlike any other."""
    return FlushEntry(writer=writer, since=number, fenced_by=f"{by} {secrets.token_hex(8)}").encode()
