"""`read_parts` reads shards for a report, several at once, and hands on what they hold in order.

A shard is read, decompressed and checked in a task of its own, a block or two ahead of who counts, as far as there is
room: all of them share one, which does not grow with their number. What is handed on (which blocks, where each ends,
what is said of a shard behind its last) depends on the shards alone: not on how many of them are read at once, nor on
the clock.
"""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, ClassVar, TypeAlias

import anyio

from asyncrec import Damage, ObjectNotFoundError, RecordIndex
from asyncrec.errors import FormatError
from asyncrec.example import decode_columns
from asyncrec.storage import TaskScope, in_thread
from asyncrec.tools import SelectedShard, Selection, open_shard, shard_index

from .findings import Fault
from .profile import Columns

__all__ = ["MOST_FAULTS", "Block", "Part", "PartRead", "read_parts"]

# An index of this many bytes is read whole to find where a record is; it has a million lines and more.
_INDEX_BYTES = 32 << 20
_LINE_BYTES = 30
# Of one shard no more are told.
MOST_FAULTS = 100
# A block is full with so many records, or bytes: enough that what is done once for each costs little.
_BLOCK_RECORDS = 2048
_BLOCK_BYTES = 2 << 20
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


@dataclass(frozen=True, slots=True)
class Part:
    """What is to be read of one shard.

    Attributes:
        place: of the shard among all.
        stretches: the number of the first record of each, and how many; `None` reads from the beginning on. Without an
            index that is what is read, as many records as ``most`` says.
        most: records from the beginning on; `None` for all.
        room: bytes of records, of each stretch or from the beginning on; one record is read, however large.
    """

    place: int
    shard: SelectedShard
    stretches: Sequence[tuple[int, int]] | None = None
    most: int | None = None
    room: int | None = None


@dataclass(frozen=True, slots=True)
class Block:
    """Records that follow each other.

    Attributes:
        first: the number of the first of them in its shard; `None` behind damage.
        columns: what they hold, if they are Examples that can be decoded together.
    """

    records: list[bytes]
    first: int | None
    columns: Columns | None


@dataclass(slots=True)
class PartRead:
    """What is known when a part was read.

    Attributes:
        ended: there is nothing behind what was read.
        from_beginning: there was no index by which to find the stretches.
    """

    compression: str | None = None
    read: int = 0
    payload: int = 0
    ended: bool = True
    from_beginning: bool = False
    missing: bool = False
    faults: list[Fault] = field(default_factory=list)


Take: TypeAlias = Callable[[Part, Block], Awaitable[None]]


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
            if not end(part, await _read_part(selection, part, _InTurn(part, take))):
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


class _InTurn:
    """How a part is read, and its blocks are handed on: one after the other.

    Attributes:
        options: to read it with.
    """

    options: dict[str, Any]
    _SALVAGE: ClassVar[dict[str, Any]] = {"on_corrupt": "skip"}

    def __init__(self, part: Part, take: Take) -> None:
        self.part = part
        self.options = self._SALVAGE
        self._take = take

    async def pull(self, batches: AsyncIterator[list[bytes]]) -> list[bytes]:
        """The next records; none at the end."""
        return await anext(batches, [])

    async def give(self, records: list[bytes], first: int | None) -> None:
        await self._take(self.part, await _block(records, first))

    def stretch_ends(self) -> None:
        """Note that of what was pulled nothing more is given."""


class _Ahead(_InTurn):
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
            return await _read_part(self._selection, self.part, self)
        except FormatError as error:
            error.__traceback__ = error.__cause__ = error.__context__ = None  # whose frames keep records
            self.stretch_ends()
        await self._turn.wait()
        self.options = self._SALVAGE
        self._again = self._records
        return await _read_part(self._selection, self.part, self)

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


async def _read_part(selection: Selection, part: Part, way: _InTurn) -> PartRead:
    read = PartRead()
    if part.stretches is None:
        await _read(selection, part, read, way, first=0, index=None, most=part.most)
        return read
    index = await _index_of(selection, part.shard)
    if index is None:
        read.from_beginning = True
        await _read(selection, part, read, way, first=0, index=None, most=part.most)
        return read
    for first, count in part.stretches:
        if not read.missing:
            await _read(selection, part, read, way, first=first, index=index, most=count)
    return read


async def _index_of(selection: Selection, shard: SelectedShard) -> RecordIndex | None:
    if shard.entry is None or shard.entry.records * _LINE_BYTES > _INDEX_BYTES:
        return None
    return await shard_index(selection, shard)


async def _read(
    selection: Selection,
    part: Part,
    read: PartRead,
    way: _InTurn,
    *,
    first: int,
    index: RecordIndex | None,
    most: int | None,
) -> None:
    """Hand on up to ``most`` records of up to the part's room of bytes, but one at least.

    Raises:
        FormatError: there is damage, and by the options of the ``way`` that ends it.
    """
    path = part.shard.display_path
    collected = _Collected(first)
    try:
        async with open_shard(selection, part.shard, first=first, index=index, **way.options) as reader:
            try:
                read.compression = reader.compression
                read.ended = True
                batches = reader.batches()
                while batch := await way.pull(batches):
                    records = batch if most is None else batch[: most - collected.taken]
                    if part.room is not None:
                        records = _within(records, part.room - collected.size) or records[: not collected.taken]
                    await _give(way, collected.add(records, known=not reader.damage))
                    if len(records) < len(batch) or collected.taken == most:
                        read.ended = False
                        break
                    del batch, records  # before the next ones come
                await _give(way, collected.rest())
            finally:
                read.read += collected.taken
                read.payload += collected.size
                _note(read, path, reader.damage)
    except FormatError as error:
        if way.options["on_corrupt"] == "raise":
            raise
        await _give(way, collected.rest())  # salvage gives up, too
        message = "; ".join([str(error.args[0]), *getattr(error, "__notes__", ())])
        read.faults.append(Fault(path, message))
    except ObjectNotFoundError:
        await _give(way, collected.rest())
        read.missing = True
        read.faults.append(Fault(path, "is not there"))
    way.stretch_ends()


async def _give(way: _InTurn, blocks: Iterable[tuple[list[bytes], int | None]]) -> None:
    for records, first in blocks:
        await way.give(records, first)


async def _block(records: list[bytes], first: int | None) -> Block:
    return Block(records, first, await in_thread(decode_columns, records))


class _Collected:
    """Records that become blocks, which end where these say, and not where those ended that they came in. Pure.

    Attributes:
        taken, size: records, and their bytes.
    """

    def __init__(self, first: int) -> None:
        self.taken = self.size = 0
        self._first = first
        self._known = True
        self._records: list[bytes] = []
        self._room = _BLOCK_BYTES

    def add(self, records: Sequence[bytes], *, known: bool) -> Iterable[tuple[list[bytes], int | None]]:
        """Yield blocks that are full, each with the number of its first record.

        ``known``: that is the number of those that were added before.
        """
        if known != self._known:
            yield from self.rest()
            self._known = known
        for record in records:
            self._records.append(record)
            self.taken += 1
            self.size += len(record)
            self._room -= len(record)
            if self._room <= 0 or len(self._records) == _BLOCK_RECORDS:
                yield from self.rest()

    def rest(self) -> Iterable[tuple[list[bytes], int | None]]:
        """Yield what was added and not yielded yet."""
        if self._records:
            yield self._records, self._first + self.taken - len(self._records) if self._known else None
            self._records, self._room = [], _BLOCK_BYTES


_REASONS = {
    "length": "a length does not match its checksum",
    "data": "the data of a record do not match their checksum",
    "too_large": "a record is larger than any that is read",
    "truncated": "it ends too soon",
    "compression": "it does not decompress",
    "ambiguous": "records were found by search, and may be the content of one that was lost",
}


def _note(read: PartRead, path: str, damage: list[Damage]) -> None:
    """Add what is new: two stretches may pass the same place."""
    for each in damage[:MOST_FAULTS]:
        fault = _fault(path, each)
        if fault not in read.faults and len(read.faults) < MOST_FAULTS:
            read.faults.append(fault)


def _fault(path: str, damage: Damage) -> Fault:
    where = "" if damage.member_offset is None else f" of the member at byte {damage.member_offset:,}"
    lost = "in doubt" if damage.reason == "ambiguous" else "lost"
    text = f"{_REASONS[damage.reason]}: {damage.length:,} bytes {lost} from byte {damage.offset:,}{where} on"
    return Fault(path, f"{text}, after {damage.records_before:,} records")


def _within(records: list[bytes], room: int) -> list[bytes]:
    """The first of them that have no more bytes together."""
    for taken, record in enumerate(records):
        room -= len(record)
        if room < 0:
            return records[:taken]
    return records
