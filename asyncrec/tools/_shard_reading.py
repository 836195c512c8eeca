"""`open_shard` reads one shard of a `Selection` from its beginning, or by its index from any record on."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, nullcontext
from typing import Any

from asyncrec._records.index import RecordIndex
from asyncrec._records.position import BEGINNING, Position
from asyncrec._records.reading.reader import RecordReader, open_reader_at
from asyncrec._sampling.random_access.indexes import read_index
from asyncrec._shards.manifest.manifest import naming_lost_shards
from asyncrec.errors import ArgumentValueError
from asyncrec.storage._prefixed import folder_at
from asyncrec.tools._selection import SelectedShard, Selection


@asynccontextmanager
async def open_shard(
    selection: Selection, shard: SelectedShard, *, first: int = 0, index: RecordIndex | None = None, **options: Any
) -> AsyncIterator[RecordReader]:
    """The records of one shard, with its path in errors.

    Args:
        first: the number of the record to begin with; any but 0 needs the index.
        index: the shard's, from `shard_index`.
        options: as for `asyncrec.open_reader`: ``on_corrupt``, ``verify``, ... ``max_record_bytes`` is the shard's.
    """
    options.setdefault("max_record_bytes", shard.max_record_bytes)
    with nullcontext() if shard.entry is None else naming_lost_shards():
        reader = await open_reader_at(
            selection.storage, shard.key, _position(first, index), path=shard.display_path, warns=False, **options
        )
    try:
        yield reader
    finally:
        await reader.aclose()


async def shard_index(selection: Selection, shard: SelectedShard) -> RecordIndex | None:
    """Where the records of a shard begin: its index, read whole; `None` where it has none, or one that is another's.

    Raises:
        StorageError: the store failed.
    """
    if shard.entry is None or not shard.entry.index:
        return None
    return await read_index(folder_at(selection.storage, shard.folder), shard.entry)


def _position(first: int, index: RecordIndex | None) -> Position:
    if first == 0:
        return BEGINNING
    if index is None:
        raise ArgumentValueError(f"record {first:,} is found by the shard's index: give it, from shard_index")
    if index.members is None:
        return Position(int(index.offsets[first]), 0, first)
    member = index.members[first]
    return Position(int(member), first - int(index.members.searchsorted(member)), first)
