"""`read_parts` reads shards for a report, several at once, and hands on what they hold in order.

A shard is read, decompressed and checked in a task of its own, a block or two ahead of who counts, as far as there is
room: all of them share one, which does not grow with their number. What is handed on depends on the shards alone: not
on how many of them are read at once, nor on the clock.
"""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from itertools import islice
from typing import Any, ClassVar

import anyio

from asyncrec.errors import FormatError
from asyncrec.storage import TaskScope
from asyncrec.tools import Selection

from .reading import Block, InTurn, Part, PartRead, Take, read_part

__all__ = ["read_parts"]

# What all parts hold together that are read side by side: as much as one record may have by itself.
_AHEAD_BYTES = 256 << 20
# A larger record is not read ahead of its turn. Without such a limit any part may come upon one of 256 MiB, and how
# large it is is known when it is there.
_AHEAD_RECORD = 4 << 20
# What a reader gives at once is at most 4 MiB decompressed and one record more.
_BATCH_BYTES = (4 << 20) + _AHEAD_RECORD
# Of a record there are its bytes, and once more as much in columns: strings and floats are as long there as they are
# stored. Integers may be eight times as long, but are seldom most of a record.
_TIMES = 2
# Of a record without a byte: the object, and its place in lists.
_RECORD_BYTES = 64


async def read_parts(
    selection: Selection,
    parts: Iterable[Part],
    take: Take,
    end: Callable[[Part, PartRead], bool],
    *,
    jobs: int,
) -> None:
    """Await ``take`` for each block, and call ``end`` behind the last one of a part, all in the order of the parts.

    Where ``end`` returns false, no later part is taken.

    With several ``jobs`` so many parts are read side by side, each up to two blocks ahead, and hold `_AHEAD_BYTES`
    together, whatever ``jobs`` is, and one block of the part whose turn it is: that one is read on also where there is
    no room, so that it ends. A part in which there is damage, or a record larger than `_AHEAD_RECORD`, is read up to
    there, and then waits for its turn and is read again. Indexes, by which stretches are found, are not in that room.

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
    room = _Room(_AHEAD_BYTES)
    async with TaskScope() as scope:
        try:
            while True:
                for part in islice(coming, jobs - len(ahead)):
                    ahead.append(_Ahead(selection, part, room))
                    scope.start_soon(ahead[-1].run)
                if not ahead:
                    return
                first = ahead[0]
                first.begin_turn()
                async for block in first.blocks:
                    await take(first.part, block)
                    first.counted(block)
                    del block  # before the next one comes
                if not end(first.part, first.result()):
                    break
                ahead.popleft().blocks.close()
            scope.cancel()
        finally:
            for each in ahead:
                each.blocks.close()


class _Ahead(InTurn):
    """A part that is read by a task of its own, which waits when a block of it is to be taken, or there is no room."""

    _CAREFUL: ClassVar[dict[str, Any]] = {"on_corrupt": "raise", "max_record_bytes": _AHEAD_RECORD}

    def __init__(self, selection: Selection, part: Part, room: _Room) -> None:
        self._send, self.blocks = anyio.create_memory_object_stream[Block](1)
        super().__init__(part, self._send_on)
        self._selection = selection
        self._room = room
        self._turn = anyio.Event()
        self._pulled = 0  # bytes of room: of what was pulled, and is not given yet
        self._given = 0  # of what is given, and not counted yet
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
        self.options = self._CAREFUL
        try:
            return await read_part(self._selection, self.part, self)
        except FormatError as error:
            error.__traceback__ = error.__cause__ = error.__context__ = None  # whose frames keep records
            self.stretch_ends()
        await self._turn.wait()
        self.options = self._SALVAGE
        self._again = self._records
        return await read_part(self._selection, self.part, self)

    async def pull(self, batches: AsyncIterator[list[bytes]]) -> list[bytes]:
        taken = _TIMES * _BATCH_BYTES
        await self._room.take(self, taken)
        size = 0
        try:
            batch = await super().pull(batches)
            size = _room_of(batch)
            return batch
        finally:
            self._pulled += size
            self._room.give(taken - size)

    async def give(self, records: list[bytes], first: int | None) -> None:
        again = min(self._again, len(records))
        if again:
            self._again -= again
            size = _room_of(records[:again])
            self._pulled -= size
            self._room.give(size)
            records, first = records[again:], None if first is None else first + again
        if records:
            self._records += len(records)
            size = _room_of(records)
            self._pulled -= size
            self._given += size
            await super().give(records, first)

    def stretch_ends(self) -> None:
        self._room.give(self._pulled)
        self._pulled = 0

    def begin_turn(self) -> None:
        """Note that its blocks are taken now."""
        self._turn.set()
        self._room.give(0)

    def counted(self, block: Block) -> None:
        """Note that a block is no longer held."""
        size = _room_of(block.records)
        self._given -= size
        self._room.give(size)

    def result(self) -> PartRead:
        """What is known; for whoever took the last block."""
        if self._error is not None:
            raise self._error
        assert self._read is not None, "its last block comes before its end"
        return self._read

    async def _send_on(self, part: Part, block: Block) -> None:
        await self._send.send(block)


class _Room:
    """Bytes that parts hold together. Who asks first is let in first, and at once whoever must go on.

    Attributes:
        used: bytes held now.
    """

    def __init__(self, limit: int) -> None:
        self.used = 0
        self._limit = limit
        self._waiting: list[tuple[_Ahead, int, anyio.Event]] = []

    async def take(self, part: _Ahead, size: int) -> None:
        """Wait until so many may be held, or nothing is, and hold them. Cancelled, it is of no more use."""
        granted = anyio.Event()
        self._waiting.append((part, size, granted))
        self.give(0)
        await granted.wait()

    def give(self, size: int) -> None:
        """Hold so many less, and let in who can be."""
        self.used -= size
        waiting, self._waiting = self._waiting, []
        for part, wanted, granted in waiting:
            fits = not self.used or self.used + wanted <= self._limit
            if part.must_go_on or (fits and not self._waiting):
                self.used += wanted
                granted.set()
            else:
                self._waiting.append((part, wanted, granted))


def _room_of(records: Sequence[bytes]) -> int:
    return _TIMES * sum(map(len, records)) + _RECORD_BYTES * len(records)
