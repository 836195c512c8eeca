"""`read_parts` reads shards for a report, several at once, and hands on what they hold in order.

A shard is read, decompressed and checked in a task of its own, a block or two ahead of who counts, as far as there is
room: all of them share one, which does not grow with their number. What is handed on depends on the shards alone: not
on how many of them are read at once, nor on the clock.
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

# What all parts hold together that are read side by side: as much as one record may have by itself.
_AHEAD_BYTES = 256 << 20
# A larger record is not read ahead of its turn. Without such a limit any part may come upon one of 256 MiB, and how
# large it is is known when it is there.
_AHEAD_RECORD = 4 << 20
# What a reader gives at once is at most 4 MiB decompressed and one record more, and while it cuts that there is a copy.
_BATCH_BYTES = 2 * ((4 << 20) + _AHEAD_RECORD)
# Columns are as long as the records that they are made of, where those are strings or floats, and eight times as long
# where they are integers of a byte each. Short strings and many features make more, which is known when they are there.
_COLUMN_TIMES = 8
# Of a record, or a string, beside its bytes: the object, and its place in lists.
_OBJECT_BYTES = 64


async def read_parts(
    selection: Selection,
    parts: Sequence[Part],
    take: Take,
    end: Callable[[Part, PartRead], bool],
    *,
    jobs: int,
) -> None:
    """Await ``take`` for each block, and call ``end`` behind the last one of a part, all in the order of the parts.

    Where ``end`` returns false, no later part is taken.

    With several ``jobs`` so many parts are read side by side, each up to two blocks ahead, and hold `_AHEAD_BYTES`
    together, whatever ``jobs`` is, and one block of the part whose turn it is: that one is read on also where there is
    no room, so that it ends. Half of that is for what is on its way from a store that is read ahead; the more parts
    there are the less each of them may have on its way. Beside that each reader has the chunk that it works on, of half
    a MiB. A part in which there is damage, or a record larger than
    `_AHEAD_RECORD`, is read up to there, and then waits for its turn and is opened again and read from its beginning,
    the same version. Indexes, by which stretches are found, are not in that room.

    Raises:
        StorageError: a store failed: that of the first part of which it did.
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
                    del block  # before the next one comes
                    first.counted()
                if not end(first.part, first.result()):
                    break
                ahead.popleft().blocks.close()
            scope.cancel()
        finally:
            for each in ahead:
                each.blocks.close()


class _Ahead(InTurn):
    """A part that is read by a task of its own, which waits when a block of it is to be taken, or there is no room."""

    def __init__(self, selection: Selection, part: Part, room: _Room, read_ahead: int) -> None:
        self._send, self.blocks = anyio.create_memory_object_stream[Block](1)
        super().__init__(part, self._send_on)
        self._selection = selection
        self._room = room
        self._read_ahead = read_ahead
        self._turn = anyio.Event()
        self._pulled = 0  # bytes of room: of what was pulled, and is not given yet
        self._given: deque[int] = deque()  # of each block that is given, and not counted yet
        self._records = 0  # that were given
        self._again = 0  # of these are still to come again
        self._read: PartRead | None = None
        self._error: Exception | None = None

    @property
    def must_go_on(self) -> bool:
        """Whether everybody waits for it."""
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
            error.__traceback__ = error.__cause__ = error.__context__ = None  # whose frames keep records
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
            size = await in_thread(_bytes_of, batch)  # of 262,144 empty records, 6 ms
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
        """Note that its blocks are taken now."""
        self._turn.set()
        self._room.give(0)

    def counted(self) -> None:
        """Note that the first of its blocks is no longer held."""
        self._room.give(self._given.popleft())

    async def _send_on(self, part: Part, block: Block) -> None:
        await self._send.send(block)

    def result(self) -> PartRead:
        """What is known; for whoever took the last block."""
        if self._error is not None:
            raise self._error
        assert self._read is not None, "its last block comes before its end"
        return self._read


class _Room:
    """Bytes that parts hold together. Who asks first is let in first, and at once whoever must go on.

    Records leave a quarter of it to columns: whoever waits for those holds records.

    Attributes:
        used: bytes held now.
    """

    def __init__(self, limit: int) -> None:
        self.used = 0
        self._limit = limit
        self._for_records: list[_Asked] = []
        self._for_columns: list[_Asked] = []

    async def take_for_records(self, part: _Ahead, size: int) -> None:
        """Wait until so many may be held, or nothing is, and hold them. Cancelled, it is of no more use."""
        await self._take(self._for_records, part, size)

    async def take_for_columns(self, part: _Ahead, size: int) -> None:
        """Wait until so many may be held beside the records, and hold them. Cancelled, it is of no more use."""
        await self._take(self._for_columns, part, size)

    def give(self, size: int) -> None:
        """Hold so many less, and let in who can be."""
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
    """What records hold, and the bytes of that."""
    columns = decode_columns(records)
    if columns is None:
        return None, 0
    return columns, sum(
        counts.nbytes + (_bytes_of(flat) if isinstance(flat, list) else flat.nbytes)
        for _, flat, counts in columns.values()
    )


def _bytes_of(strings: Sequence[bytes]) -> int:
    return sum(map(len, strings)) + _OBJECT_BYTES * len(strings)
