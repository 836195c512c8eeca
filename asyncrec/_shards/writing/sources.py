"""`Sources`: records that come from queues are taken with their positions, each once.

A consumer that dies reads a message again. The naive way is to write it again, and to deduplicate by a key. Here each
record says its source and its position there; what is at or below the position that was taken is dropped. All of one
source go through one queue, so that its records are stored, and committed, in the order of their positions; and all
records of one position become durable together: they go into one batch, or into neighbouring ones that no flush and no
end of a shard comes between.

Before the first record of a source, its turn is taken: the last owner has ended by then, and says the position.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from itertools import cycle

import anyio

from asyncrec._concurrency.tasks import in_thread
from asyncrec._framing.frames import FRAME_OVERHEAD
from asyncrec._records.record_size import as_record, check_size
from asyncrec._records.writing.intake import Intake
from asyncrec._records.writing.record_encoder import Record, RecordEncoder
from asyncrec._records.writing.write_batch import BATCH_BYTES, BATCH_RECORDS, Key, Positions, WriteBatch, framed
from asyncrec._records.writing.write_queue import WriteQueue
from asyncrec._shards.writing.job import Job
from asyncrec._shards.writing.keys import NO_KEY, KeySet, digest_of
from asyncrec._shards.writing.open_shards import OpenShards
from asyncrec.errors import ArgumentTypeError, ArgumentValueError

# Takes a source's next turn, behind the end of its last owner: the number of the turn, and the last position stored, or
# -1 if none is.
Take = Callable[[str], Awaitable[tuple[int, int]]]

# Makes the `Take` of a job.
turns: Callable[[Job], Take] | None = None

MOST_POSITION = (1 << 63) - 1
_MOST_NAME = 512
# What a checkpoint reads without effort, and more than the partitions of a large cluster.
MOST_SOURCES = 100_000


class _Source:
    """A source whose records this writer takes.

    Attributes:
        calls: those that take a position, and wait.
        lock: held, in the order of the calls, while a call that takes a position waits.
        turn: the number of its turn; 0 before it has one.
        position: the last that was taken.
        written: the last that was taken with a record; or what was stored, if none was.
        ticket: of the last record that was taken.
    """

    __slots__ = ("calls", "lock", "position", "queue", "ticket", "turn", "written")

    def __init__(self, queue: WriteQueue) -> None:
        self.queue = queue
        self.calls = 0
        self.lock = anyio.Lock(fast_acquire=True)
        self.turn = 0
        self.position = self.written = -1
        self.ticket = 0


class Sources:
    """The sources of one writer.

    Attributes:
        dropped: records that were not taken, because their position was.
    """

    def __init__(
        self,
        shards: OpenShards,
        take: Take | None,
        tickets: Callable[[int], int],
        max_record_bytes: int,
        *,
        keys: KeySet | None,
        encoder: RecordEncoder | None,
    ) -> None:
        """Without ``take``, no source is taken. ``tickets`` gives the first of so many tickets."""
        self.dropped = 0
        self._shards = shards
        self._take = take
        self._tickets = tickets
        self._max_record_bytes = max_record_bytes
        self._keys = keys
        self._encoder = encoder
        self._budget = shards.budget
        self._most = min(max_record_bytes, BATCH_BYTES)  # what is longer is looked at alone
        self._intake = Intake(shards.budget, shards.check)
        self._sources: dict[str, _Source] = {}
        self._ahead: dict[str, _Source] = {}  # those whose last position had no record, perhaps
        self._queues_in_turn = cycle(shards.queues)
        shards.job.manifest.progress.lift = self._lifted

    @property
    def progress(self) -> dict[str, int]:
        """The last position of each source that was taken, or stored before."""
        return {name: source.position for name, source in self._sources.items() if source.turn}

    def write_now(self, record: Record, source: str | None, position: int | None, ticket: int) -> bool:
        """Take one record without waiting, if nothing has to be looked at; returns whether that was done."""
        found = self._sources.get(source) if type(source) is str else None
        if found is None or found.calls or not found.turn or type(position) is not int or type(record) is not bytes:
            return False
        budget = self._budget
        used = budget.used + len(record) + FRAME_OVERHEAD
        if (
            used > budget.bound
            or not found.position < position <= MOST_POSITION
            or len(record) > self._most
            or self._encoder is not None
        ):
            return False
        budget.used = used
        found.position = found.written = position
        found.ticket = ticket
        found.queue.append(record, ticket, None, source, (found.turn, position))
        return True

    async def write(
        self,
        records: Iterable[Record],
        source: str | None,
        position: int | None,
        *,
        key: str | bytes | None = None,
        partition: object = None,
    ) -> int:
        """Take the records of one position; returns the ticket of the last, or of what has come as far.

        If it is cancelled, or raises an error, none of them was taken.

        Raises:
            TypeError, ValueError: the source or the position, or that they are given.
        """
        source, position = _checked(source, position)
        if partition is not None:
            raise ArgumentValueError("source= cannot be combined with partition=, because the source chooses the shard")
        found = self._sources.get(source)
        if found is None:
            found = self._begin(source)
        found.calls += 1
        try:
            return await self._write(found, records, source, position, key)
        finally:
            found.calls -= 1

    async def _write(
        self, found: _Source, records: Iterable[Record], source: str, position: int, key: str | bytes | None
    ) -> int:
        async with found.lock:  # the order of the calls is that of the positions
            if not found.turn:
                await self._open(source, found)
            if position <= found.position:
                self.dropped += len(list(records))
                return found.ticket
            if taken := await self._taken(records, key):
                await self._append(found, {source: (found.turn, position)}, taken)
            found.position = position
            if found.position > found.written:
                self._ahead[source] = found
            return found.ticket

    def _begin(self, source: str) -> _Source:
        if self._take is None:
            raise ArgumentValueError(
                f"{self._shards.path}: source= requires a writer that appends rolling shards, without partition_by and "
                "without on_error='discard'"
            )
        if len(self._sources) >= MOST_SOURCES:
            raise ArgumentValueError(
                f"{self._shards.path}: a data set has at most {MOST_SOURCES:,} sources; a source is a partition of a "
                "queue, not a message"
            )
        found = self._sources[source] = _Source(next(self._queues_in_turn))
        return found

    async def _open(self, name: str, source: _Source) -> None:
        assert self._take is not None, "else no source is begun"
        self._shards.check()
        self._shards.job.manifest.progress.is_used = True
        turn, position = await self._take(name)
        self._shards.check()
        source.turn, source.position, source.written = turn, position, position

    async def _taken(self, records: Iterable[Record], key: str | bytes | None) -> list[tuple[bytes, bytes | None]]:
        """The records as they are stored, each with the digest of its key."""
        taken: list[tuple[bytes, bytes | None]] = []
        for record in records:
            data, own = (
                (record if type(record) is bytes else await as_record(record), key)
                if self._encoder is None
                else await self._encoder.take(record, key)
            )
            check_size(len(data), self._max_record_bytes, self._shards.path)
            taken.append((data, None if own is None else digest_of(own)))
        return taken

    def _without_known(self, taken: list[tuple[bytes, bytes | None]]) -> list[tuple[bytes, bytes | None]]:
        """Those whose key was not written before."""
        keys = self._keys
        if keys is None:
            return taken
        seen: set[bytes] = set()
        kept = []
        for record, digest in taken:
            if digest is None or not (digest in keys or digest in seen):
                kept.append((record, digest))
            if digest is not None:
                seen.add(digest)
        return kept

    async def _append(self, source: _Source, positions: Positions, taken: list[tuple[bytes, bytes | None]]) -> None:
        """Put records into the source's queue, all of them or, with an error, none."""
        budget = self._budget
        size = _size(taken)
        await self._intake.take(size)
        try:
            while True:
                batches: list[WriteBatch] = []
                kept = self._without_known(taken)
                records = [record for record, _ in kept]
                keyed = any(digest is not None for _, digest in kept)
                if _size(kept) <= BATCH_BYTES and len(kept) <= BATCH_RECORDS:  # so none is large
                    break
                batches = await in_thread(framed, records, [each or NO_KEY for _, each in kept] if keyed else None)
                self._shards.check()
                if len(self._without_known(kept)) == len(kept):  # else another task wrote one of the keys meanwhile
                    break
        except BaseException:
            budget.give(size)
            raise
        # From here on nothing waits.
        self.dropped += len(taken) - len(kept)
        if len(kept) < len(taken):
            budget.give(size - _size(kept))
        if not kept:
            return
        if self._keys is not None:
            for _, digest in kept:
                if digest is not None:
                    self._keys.add(digest)
        first = self._tickets(len(kept))
        source.ticket = first + len(kept) - 1
        ((_, source.written),) = positions.values()
        if batches:
            now = anyio.current_time()
            for batch in batches:
                batch.first, batch.last, batch.time = first, first + batch.count - 1, now
                batch.goes_on = batch is not batches[-1]
                first += batch.count
            batches[-1].positions = positions
            source.queue.append_sealed(*batches)
        else:
            keys: list[Key] | None = [bytearray(each or NO_KEY) for _, each in kept] if keyed else None
            source.queue.append_many(records, _size(kept), first, keys=keys, positions=positions)

    def _lifted(self, positions: Positions) -> Positions:
        """What a commit says beside its shards': positions without a record, behind which nothing is open."""
        stated = self._shards.job.manifest.progress.stated
        lifted = dict(positions)
        for name, source in self._ahead.items():
            if source.position > source.written:
                turn, last = positions.get(name, stated.get(name, (0, -1)))
                if source.ticket == 0 or (turn == source.turn and last >= source.written):
                    lifted[name] = source.turn, source.position
        return lifted


def _size(records: Iterable[tuple[bytes, bytes | None]]) -> int:
    """How many bytes their frames take."""
    return sum(len(record) + FRAME_OVERHEAD for record, _ in records)


def _checked(source: str | None, position: int | None) -> tuple[str, int]:
    """Raise if that is not a source and a position."""
    if source is None or position is None:
        raise ArgumentValueError("source= and position= belong together: pass both, or neither")
    _check_source(source)
    if type(position) is not int:
        raise ArgumentTypeError(f"position={position!r:.80}: must be an int, not {type(position).__name__}")
    if not 0 <= position <= MOST_POSITION:
        raise ArgumentValueError(f"position={position}: must be between 0 and 2**63-1")
    return source, position


def _check_source(source: str) -> None:
    if not isinstance(source, str):
        raise ArgumentTypeError(f"source={source!r:.80}: must be a str, not {type(source).__name__}")
    try:
        size = len(source.encode())
    except UnicodeEncodeError as error:
        raise ArgumentValueError(f"source={source!r:.80}: must be valid Unicode") from error
    if not 1 <= size <= _MOST_NAME:
        raise ArgumentValueError(f"source={source!r:.80}: must be 1 to {_MOST_NAME} bytes long, not {size}")
    if any(each < " " or each == "\x7f" for each in source):
        raise ArgumentValueError(f"source={source!r:.80}: must not contain control characters")
