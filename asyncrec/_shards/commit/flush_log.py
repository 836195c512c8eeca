"""`FlushLog`: a writer without a disk puts what it has flushed into its store, in entries that its own commits void.

The problem: if a machine is lost with its disk, a kill takes all records since the last commit, up to a whole shard.
The naive way is to commit more often; but each commit is a shard, and a data set of a million small shards is slow for
ever. Another is to write each record twice, in a log of its own, too, and to delete that log when its shard is
committed. Suppose the deletion is late, or the request for an entry: then a process that recovers the writer finds
records in the log and in a shard, and stores them twice.

So an entry says for which shard each record was taken. The name of a shard that was ever committed stays known, and
what the log has of that shard is void, however late an entry comes. Each commit says up to which number the log had
come (`Segment.flushed`). Only then may the last entry be deleted: a process that ends the writer needs its number.

One entry is in flight at a time, and what is ready meanwhile goes together into the next. The shards do not wait for
it: they go on to the object store beside it, and learn by a call what became of their flush. If no answer comes, the
same bytes are sent again, as for a commit.

`FlushLedger` says which entries are needed, and which a later one repeats; `FlushRoom` what is held in memory;
`FlushSweeper` what is deleted.
"""

from __future__ import annotations

import secrets
from collections import deque
from collections.abc import Collection, Sequence

import anyio

from asyncrec._concurrency.tasks import in_thread
from asyncrec._path_log import PathLog
from asyncrec._records.writing.memory_budget import ByteBudget
from asyncrec._records.writing.object_output import Outcome
from asyncrec._records.writing.write_batch import WriteBatch
from asyncrec._shards.commit.exclusive import create
from asyncrec._shards.commit.flush_room import FlushRoom, ShardRecords
from asyncrec._shards.commit.flush_sweeper import FlushPlace, FlushSweeper
from asyncrec._shards.journal.flush_entry import MOST_ENTRY, FlushEntry, parse_flush_entry
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

_path_log = PathLog("asyncrec.shards")

# While callers wait for room, a flush that failed is tried again after a pause, which doubles.
_PAUSE, _MOST_PAUSE = 1.0, 30.0


class FlushLog:
    """The flush log of one writer. `send` is its task, and ``sweeper.run`` another.

    Attributes:
        room: what it holds in memory.
        ledger: what is in which entry.
        sweeper: deletes entries.
        shards: the records of the shards that are not committed.
        changed: when the store last took something of the writer, by the event loop's clock.
        beats: how many entries without records it has made since it last made one with records.
        error: why nothing more can be flushed: another process has ended the writer, or the store refused.
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
        self._asked: deque[tuple[int, Outcome]] = deque()  # flushes, each with the last section that it waits for
        self._stored: int | None = None  # when nothing more could be flushed
        self._beat_due = False
        self._to_send = anyio.Event()
        self.room.on_waiting = self._wake

    # -- for the object writers ---------------------------------------------------------------------------------------

    def shard(self, key: str) -> ShardRecords:
        """Begin to keep the records of an open shard."""
        self.shards[key] = shard = ShardRecords(self, self.room, key)
        return shard

    def flush(self, shard: str, batches: Sequence[WriteBatch], done: Outcome) -> int:
        """Have the kept records of a shard put into an entry, with what others flush.

        ``done`` is called with what became of it: whether all of it is there, or the error. If the store does not
        answer, the next flush tries again. Returns the count of `stored` at which all of it is there.
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
        """The count up to which everything flushed is in an entry, or void; after an error, as it was then."""
        return self.ledger.stored if self._stored is None else self._stored

    def _answer(self) -> None:
        """Call back for the records that are in an entry, or in a committed shard."""
        while self._asked and self._asked[0][0] <= self.ledger.stored:
            self._asked.popleft()[1](True)
        self.room.make()  # what was kept meanwhile had to wait for these answers

    def _answer_all(self, outcome: bool | Exception) -> None:
        self._answer()
        while self._asked:
            self._asked.popleft()[1](outcome)

    # -- the task -----------------------------------------------------------------------------------------------------

    def beat(self) -> None:
        """Show that the writer is alive, while it has something in the log and flushes nothing."""
        self._beat_due = True
        self._wake()

    def _wake(self) -> None:
        self._to_send.set()

    async def send(self) -> None:
        """Create entries until cancelled. Then the entry in flight is in doubt. The body of a task."""
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
        """Create entries until nothing waits for one. If the store does not answer, the next flush tries again.

        While callers wait for the room that these records take, it tries again by itself, after a pause.
        """
        pause = _PAUSE
        while self.error is None and (self._beat_due or self.ledger.is_waiting):
            self._beat_due = False
            try:
                await self._send_entry()
            except (TransientStorageError, UnsettledError) as error:
                if pause == _PAUSE:
                    message = "records could not be flushed to the store, and the next flush tries again: %s"
                    _path_log.warning(self._place.path, message, error, writer=self._place.writer)
                self._answer_all(False)
                if not self.room.is_wanted:
                    return
                await anyio.sleep(pause)
                pause = min(2 * pause, _MOST_PAUSE)

    async def _send_entry(self) -> None:
        """Create the next entry; what is in doubt comes first."""
        entry, place = self.ledger.ask(), self._place
        if not entry.content:
            packed = FlushEntry(writer=place.writer, since=entry.since, sections=tuple(entry.sections))
            entry.content = await in_thread(lambda: packed.encode(compression=self._compression))
        try:
            await create(place.storage, place.key(entry.number), entry.content, shield=False)
        except ObjectExistsError as error:
            raise _conflict(place, await _fenced_by(place, entry.number)) from error
        except IntegrityError as error:
            # It came, and is gone before this writer had looked: a process that ended the writer took it up.
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

    # -- for the manifest ---------------------------------------------------------------------------------------------

    def committed(self, shards: Collection[str], flushed: int) -> None:
        """Note a commit: what the log has of these shards is void.

        ``flushed`` is the number up to which the log had come, as the commit says.
        """
        self.beats = 0
        self.ledger.committed(shards, flushed)
        for shard in shards:
            if (records := self.shards.pop(shard, None)) is not None:
                records.committed()
        self._changed()

    def _changed(self) -> None:
        """Note that the store has accepted something: some room is free, and some entries are not needed any more."""
        self.changed = anyio.current_time()
        self.room.account()
        self._answer()
        self.sweeper.wake()

    def stop(self, error: Exception) -> None:
        """Flush nothing more, because of an error."""
        if self.error is None:
            self.error, self._stored = error, self.ledger.stored
        self._answer_all(self.error)
        self.room.on_full()  # each open shard flushes, and gets the error
        self._wake()

    async def end(self) -> None:
        """Delete all entries: the writer has ended, and all its records are committed."""
        self.ledger.end()
        self.room.account()
        await self.sweeper.sweep()


async def _fenced_by(place: FlushPlace, number: int) -> str:
    """Return which process made the fence of this number; empty if the number has something else, or nothing."""
    key = place.key(number)
    try:
        data = await place.storage.get(key, max_bytes=4 * MOST_ENTRY)
    except ObjectNotFoundError:
        return ""
    return (await in_thread(lambda: parse_flush_entry(data, name=key))).fenced_by


def _conflict(place: FlushPlace, by: str) -> ConflictError:
    return ConflictError(
        f"{place.path}: another process{f' ({by})' if by else ''} has declared the writer {place.writer} dead and "
        "recovered what it had flushed; later records are not safe: write them again with a new writer",
        ended=True,
    )


def fence_of(writer: str, number: int, *, by: str) -> bytes:
    """Make a fence, unlike any other."""
    return FlushEntry(writer=writer, since=number, fenced_by=f"{by} {secrets.token_hex(8)}").encode()
