"""`read_part` reads one shard for a report, or stretches of it, and hands on what it holds in blocks.

Which blocks there are, where each ends, and what is said of a shard behind its last, depends on the shard alone.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, TypeAlias

from asyncrec import Damage, ObjectNotFoundError, RecordIndex
from asyncrec.errors import FormatError
from asyncrec.example import decode_columns
from asyncrec.storage import ObjectInfo, in_thread
from asyncrec.tools import SelectedShard, Selection, open_shard, shard_index

from .findings import Fault
from .profile import Columns

# An index of this many bytes is read whole to find where a record is; it has a million lines and more.
_INDEX_BYTES = 32 << 20
_LINE_BYTES = 30
# Of one shard no more are told.
MOST_FAULTS = 100
# A block is full with so many records, or bytes: enough that what is done once for each costs little.
_BLOCK_RECORDS = 2048
_BLOCK_BYTES = 2 << 20


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


class InTurn:
    """How a part is read, and its blocks are handed on: one after the other.

    Attributes:
        options: to read it with.
        info: of the version that is read, once some of it was: whatever is opened later is that one.
    """

    options: dict[str, Any]
    info: ObjectInfo | None
    _SALVAGE: ClassVar[dict[str, Any]] = {"on_corrupt": "skip"}

    def __init__(self, part: Part, take: Take) -> None:
        self.part = part
        self.options = self._SALVAGE
        self.info = None
        self._take = take

    async def pull(self, batches: AsyncIterator[list[bytes]]) -> list[bytes]:
        """The next records; none at the end."""
        return await anext(batches, [])

    async def give(self, records: list[bytes], first: int | None) -> None:
        await self._take(self.part, Block(records, first, await self.columns_of(records)))

    async def columns_of(self, records: list[bytes]) -> Columns | None:
        """What a block holds, that is given now."""
        return await in_thread(decode_columns, records)

    def stretch_ends(self) -> None:
        """Note that of what was pulled nothing more is given."""


async def read_part(selection: Selection, part: Part, way: InTurn) -> PartRead:
    """Hand on what there is of a part, by its ``way``, and give what is known then.

    Raises:
        StorageError: the store failed, or has another version than the one of which the ``way`` has read before.
        FormatError: there is damage, and the ``way`` reads with ``on_corrupt="raise"``.
    """
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
    way: InTurn,
    *,
    first: int,
    index: RecordIndex | None,
    most: int | None,
) -> None:
    """Hand on up to ``most`` records of up to the part's room of bytes, but one at least."""
    path = part.shard.display_path
    collected = _Collected(first)
    try:
        opening = open_shard(selection, part.shard, first=first, index=index, info=way.info, **way.options)
        async with opening as reader:
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
                way.info = reader.info
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
        read.faults.append(Fault(path, "is missing"))
    way.stretch_ends()


async def _give(way: InTurn, blocks: Iterable[tuple[list[bytes], int | None]]) -> None:
    for records, first in blocks:
        await way.give(records, first)


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
    "data": "the data of a record does not match its checksum",
    "too_large": "a record is larger than the limit",
    "truncated": "the file ends too early",
    "compression": "the file cannot be decompressed",
    "ambiguous": "these records were found by searching and may be part of a record that was lost",
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
    asked = "; check that this is a TFRecord file" if damage.is_at_the_beginning else ""
    return Fault(path, f"{text}, after {damage.records_before:,} records{asked}")


def _within(records: list[bytes], room: int) -> list[bytes]:
    """The first of them that have no more bytes together."""
    for taken, record in enumerate(records):
        room -= len(record)
        if room < 0:
            return records[:taken]
    return records
