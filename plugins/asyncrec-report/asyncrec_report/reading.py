"""`read_part` reads a shard, or stretches of a shard, for a report, and passes on the records in blocks.

The blocks, their boundaries and the findings at the end of a shard depend only on the shard.
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

# The maximum size of an index that is read to locate a record. Such an index has more than a million lines.
_INDEX_BYTES = 32 << 20
_LINE_BYTES = 30
# The maximum number of faults to report for a shard.
MOST_FAULTS = 100
# The number of records or bytes at which a block is full. The fixed cost of such a block is small.
_BLOCK_RECORDS = 2048
_BLOCK_BYTES = 2 << 20


@dataclass(frozen=True, slots=True)
class Part:
    """The part of a shard to read.

    Attributes:
        place: the index of the shard among all shards.
        stretches: the number of the first record, and the number of records, of each stretch; `None` to read from the
            beginning. If the shard has no index, ``most`` records are read from the beginning instead.
        most: the maximum number of records to read from the beginning; `None` for all.
        room: the maximum size in bytes of each stretch, or of the records from the beginning. At least one record is
            always read.
    """

    place: int
    shard: SelectedShard
    stretches: Sequence[tuple[int, int]] | None = None
    most: int | None = None
    room: int | None = None


@dataclass(frozen=True, slots=True)
class Block:
    """Consecutive records.

    Attributes:
        first: the number of the first record in its shard; `None` after damage.
        columns: the decoded records; `None` unless they are Examples that can be decoded together.
    """

    records: list[bytes]
    first: int | None
    columns: Columns | None


@dataclass(slots=True)
class PartRead:
    """The findings about a part.

    Attributes:
        ended: whether the end of the shard was reached.
        from_beginning: whether records were read from the beginning, because the shard has no index to locate
            stretches.
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
    """A way to read a part and pass on its blocks in turn.

    Attributes:
        options: the options for reading the part.
        info: the version of the shard, set once reading has begun. If the shard is reopened, it must be the same
            version.
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
        """Return the next records, or an empty list at the end."""
        return await anext(batches, [])

    async def give(self, records: list[bytes], first: int | None) -> None:
        await self._take(self.part, Block(records, first, await self.columns_of(records)))

    async def columns_of(self, records: list[bytes]) -> Columns | None:
        """Return the columns of the next block to pass on."""
        return await in_thread(decode_columns, records)

    def stretch_ends(self) -> None:
        """Report that the rest of the pulled records will not be passed on."""


async def read_part(selection: Selection, part: Part, way: InTurn) -> PartRead:
    """Pass on the records of a part by means of ``way``. Return the findings about the part.

    Raises:
        StorageError: the store failed, or the shard's version differs from that of ``way``.
        FormatError: the shard is damaged, and ``way`` reads with ``on_corrupt="raise"``.
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
    """Pass on at least one record, but at most ``most`` records, and at most as many bytes as ``part.room``."""
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
                    del batch, records  # release these records before reading the next
                await _give(way, collected.rest())
            finally:
                way.info = reader.info
                read.read += collected.taken
                read.payload += collected.size
                _note(read, path, reader.damage)
    except FormatError as error:
        if way.options["on_corrupt"] == "raise":
            raise
        await _give(way, collected.rest())  # salvaging also failed
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
    """A collector of records in blocks, whose boundaries do not depend on the batches in which records arrive.

    Attributes:
        taken, size: the number of records and their size in bytes.
    """

    def __init__(self, first: int) -> None:
        self.taken = self.size = 0
        self._first = first
        self._known = True
        self._records: list[bytes] = []
        self._room = _BLOCK_BYTES

    def add(self, records: Sequence[bytes], *, known: bool) -> Iterable[tuple[list[bytes], int | None]]:
        """Add records. Yield full blocks with the numbers of their first records.

        If not ``known``, that number cannot be derived from the count of records, and `None` is yielded instead.
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
        """Yield the records that have not yet been yielded."""
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
    """Add new damage to the faults. Several stretches may report the same damage."""
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
    """Return the first records, with a total size of at most ``room`` bytes."""
    for taken, record in enumerate(records):
        room -= len(record)
        if room < 0:
            return records[:taken]
    return records
