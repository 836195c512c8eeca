"""`read_parts` reads several shards concurrently for a report, and passes on their records in order.

Each shard has its own task, which reads, decompresses and checks the shard one or two blocks ahead of the consumer, if
there is room in memory. All shards share this room, which does not grow with their number. The blocks depend only on
the shards, and not on concurrency or timing.
"""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence
from itertools import islice
from typing import TypeAlias

import anyio

from asyncrec.errors import FormatError
from asyncrec.example import decode_columns
from asyncrec.storage import TaskScope, in_thread
from asyncrec.tools import Selection

from .profile import Columns
from .reading import Block, InTurn, Part, PartRead, Take, read_part

# The total number of bytes that all concurrent parts may buffer. A single record may have as many.
_AHEAD_BYTES = 256 << 20
# A larger record is read only in its part's turn. Otherwise, each part might have to buffer a record of 256 MiB, whose
# size is known only after it has been read.
_AHEAD_RECORD = 4 << 20
# A reader returns at most 4 MiB of decompressed data and one further record at a time, and copies both to split them.
_BATCH_BYTES = 2 * ((4 << 20) + _AHEAD_RECORD)
# Columns of strings or floats are as large as their records, and columns of one-byte integers are eight times as large.
# Short strings and many features take more memory, which is known only after decoding.
_COLUMN_TIMES = 8
# The memory that a record or string needs in addition to its bytes, for the object and its slots in lists.
_OBJECT_BYTES = 64


async def read_parts(
    selection: Selection,
    parts: Sequence[Part],
    take: Take,
    end: Callable[[Part, PartRead], bool],
    *,
    jobs: int,
) -> None:
    """Await ``take`` for each block, and call ``end`` after the last block of each part, in the order of the parts.

    If ``end`` returns False, no further part is passed on.

    With several ``jobs``, that many parts are read concurrently, each up to two blocks ahead. In total, they buffer at
    most `_AHEAD_BYTES`, regardless of ``jobs``, and one block of the current part, which must continue even without
    room. Up to half of the room is for data in transit from a store, divided among the parts. In addition, each reader
    has a chunk of half a MiB. A part with damage, or with a record larger than `_AHEAD_RECORD`, is read up to that
    point. In its turn, the same version is reopened and read from its beginning. The room does not include the indexes
    that locate stretches.

    Raises:
        StorageError: a store failed. The error is that of the first part, in order, that failed.
    """
    if jobs == 1:
        for part in parts:
            if not end(part, await read_part(selection, part, InTurn(part, take))):
                return
        return
    coming = iter(parts)
    ahead: deque[_Ahead] = deque()
    side_by_side = min(jobs, max(1, len(parts)))
    read_ahead = min(selection.storage.read_ahead, _AHEAD_BYTES // 2 // side_by_side)
    room = _Room(_AHEAD_BYTES - side_by_side * read_ahead)
    async with TaskScope() as scope:
        try:
            while True:
                for part in islice(coming, jobs - len(ahead)):
                    ahead.append(_Ahead(selection, part, room, read_ahead))
                    scope.start_soon(ahead[-1].run)
                if not ahead:
                    return
                first = ahead[0]
                first.begin_turn()
                async for block in first.blocks:
                    await take(first.part, block)
                    del block  # release this block before the next one arrives
                    first.counted()
                if not end(first.part, first.result()):
                    break
                ahead.popleft().blocks.close()
            scope.cancel()
        finally:
            for each in ahead:
                each.blocks.close()


class _Ahead(InTurn):
    """A part with its own reading task, which waits until the previous block has been taken and there is room."""

    def __init__(self, selection: Selection, part: Part, room: _Room, read_ahead: int) -> None:
        self._send, self.blocks = anyio.create_memory_object_stream[Block](1)
        super().__init__(part, self._send_on)
        self._selection = selection
        self._room = room
        self._read_ahead = read_ahead
        self._turn = anyio.Event()
        self._pulled = 0  # the bytes of room for records pulled but not yet passed on
        self._given: deque[int] = deque()  # the bytes of room for each block passed on but not yet counted
        self._records = 0  # the number of records passed on
        self._again = 0  # the number of these that a second reading has yet to reach
        self._read: PartRead | None = None
        self._error: Exception | None = None

    @property
    def must_go_on(self) -> bool:
        """Whether all other parts are waiting for this one."""
        return self._turn.is_set() and not self._given

    async def run(self) -> None:
        try:
            self._read = await self._whole()
        except Exception as error:
            self._error = error
        finally:
            self._send.close()

    async def _whole(self) -> PartRead:
        ahead = {"read_ahead": self._read_ahead}
        self.options = ahead | {"on_corrupt": "raise", "max_record_bytes": _AHEAD_RECORD}
        try:
            return await read_part(self._selection, self.part, self)
        except FormatError as error:
            error.__traceback__ = error.__cause__ = error.__context__ = None  # their frames keep records in memory
            self.stretch_ends()
        await self._turn.wait()
        self.options = ahead | self._SALVAGE
        self._again = self._records
        return await read_part(self._selection, self.part, self)

    async def pull(self, batches: AsyncIterator[list[bytes]]) -> list[bytes]:
        await self._room.take_for_records(self, _BATCH_BYTES)
        size = 0
        try:
            batch = await super().pull(batches)
            size = await in_thread(_bytes_of, batch)  # 6 ms for 262,144 empty records
            return batch
        finally:
            self._pulled += size
            self._room.give(_BATCH_BYTES - size)

    async def give(self, records: list[bytes], first: int | None) -> None:
        again = min(self._again, len(records))
        if again:
            self._again -= again
            size = _bytes_of(records[:again])
            self._pulled -= size
            self._room.give(size)
            records, first = records[again:], None if first is None else first + again
        if records:
            self._records += len(records)
            await super().give(records, first)

    async def columns_of(self, records: list[bytes]) -> Columns | None:
        size = _bytes_of(records)
        likely = _COLUMN_TIMES * size
        await self._room.take_for_columns(self, likely)
        columns, held = await in_thread(_columns_of, records)
        self._pulled -= size
        self._given.append(size + held)
        self._room.give(likely - held)
        return columns

    def stretch_ends(self) -> None:
        self._room.give(self._pulled)
        self._pulled = 0

    def begin_turn(self) -> None:
        """Begin this part's turn, in which the consumer takes its blocks."""
        self._turn.set()
        self._room.give(0)

    def counted(self) -> None:
        """Release the room of the oldest block, which the consumer has counted."""
        self._room.give(self._given.popleft())

    async def _send_on(self, part: Part, block: Block) -> None:
        await self._send.send(block)

    def result(self) -> PartRead:
        """Return the findings, or raise the task's error. Call this after the last block."""
        if self._error is not None:
            raise self._error
        assert self._read is not None, "the task has ended"
        return self._read


class _Room:
    """The memory that all parts share. Requests are granted in order, except that a part that must continue comes
    first.

    The last quarter is reserved for columns, because a part that waits for room for columns already has records.

    Attributes:
        used: the number of bytes in use.
    """

    def __init__(self, limit: int) -> None:
        self.used = 0
        self._limit = limit
        self._for_records: list[_Asked] = []
        self._for_columns: list[_Asked] = []

    async def take_for_records(self, part: _Ahead, size: int) -> None:
        """Reserve ``size`` bytes, waiting until they fit or no bytes are in use.

        After a cancellation, the room must not be used again.
        """
        await self._take(self._for_records, part, size)

    async def take_for_columns(self, part: _Ahead, size: int) -> None:
        """Reserve ``size`` bytes for columns, waiting until they fit or no bytes are in use.

        After a cancellation, the room must not be used again.
        """
        await self._take(self._for_columns, part, size)

    def give(self, size: int) -> None:
        """Release ``size`` bytes and grant the waiting requests that now fit."""
        self.used -= size
        self._let_in(self._for_columns, self._limit)
        self._let_in(self._for_records, self._limit - self._limit // 4)

    async def _take(self, waiting: list[_Asked], part: _Ahead, size: int) -> None:
        granted = anyio.Event()
        waiting.append((part, size, granted))
        self.give(0)
        await granted.wait()

    def _let_in(self, waiting: list[_Asked], limit: int) -> None:
        asked, waiting[:] = waiting[:], []
        for part, size, granted in asked:
            fits = not self.used or self.used + size <= limit
            if part.must_go_on or (fits and not waiting):
                self.used += size
                granted.set()
            else:
                waiting.append((part, size, granted))


_Asked: TypeAlias = tuple[_Ahead, int, anyio.Event]


def _columns_of(records: list[bytes]) -> tuple[Columns | None, int]:
    """Return the columns of records, and their size in bytes."""
    columns = decode_columns(records)
    if columns is None:
        return None, 0
    return columns, sum(
        counts.nbytes + (_bytes_of(flat) if isinstance(flat, list) else flat.nbytes)
        for _, flat, counts in columns.values()
    )


def _bytes_of(strings: Sequence[bytes]) -> int:
    return sum(map(len, strings)) + _OBJECT_BYTES * len(strings)
