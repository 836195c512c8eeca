"""`open_shard` reads one shard of a `Selection`, from its beginning or, with the index, starting at any record.

`open_committed` reads only the shard that was committed, and `check_read` compares it at its end. `ShardKeys` reads the
keys of a shard.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, nullcontext
from typing import Any

from asyncrec._concurrency.tasks import in_thread
from asyncrec._path_log import PathLog
from asyncrec._records.index import RecordIndex
from asyncrec._records.position import BEGINNING, Position
from asyncrec._records.reading.reader import RecordReader, open_reader_at
from asyncrec._records.writing.write_batch import KEY_BYTES, PAIR_BYTES, fitted
from asyncrec._sampling.random_access.indexes import read_index
from asyncrec._sampling.random_access.shard_files import check_content, check_version, refuse_unless_damaged
from asyncrec._shards.manifest.manifest import naming_lost_shards
from asyncrec.errors import ArgumentValueError, DatasetError, ObjectNotFoundError
from asyncrec.storage._base import ObjectInfo, Storage
from asyncrec.storage._checksums import stored_crc32c
from asyncrec.storage._prefixed import folder_at
from asyncrec.storage._resuming_source import ResumingSource, receive_exactly
from asyncrec.tools._selection import SelectedShard, Selection

_path_log = PathLog("asyncrec.tools")


@asynccontextmanager
async def open_shard(
    selection: Selection, shard: SelectedShard, *, first: int = 0, index: RecordIndex | None = None, **options: Any
) -> AsyncIterator[RecordReader]:
    """Open a reader of one shard. Its errors contain the shard's display path.

    What is read is not compared with the manifest, so that the intact records of a damaged shard can be read.

    Args:
        first: the number of the first record to read; any number except 0 requires the index.
        index: the index of the shard, as returned by `shard_index`.
        options: options of `asyncrec.open_reader`, such as ``on_corrupt`` and ``verify``. By default,
            ``max_record_bytes`` is the limit of the shard.
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


@asynccontextmanager
async def open_committed(selection: Selection, shard: SelectedShard) -> AsyncIterator[RecordReader]:
    """Open a reader of one shard that must be the one in the manifest, if a manifest lists it.

    Raises:
        ObjectChangedError: as for `check_opened`.
        StorageError: the shard cannot be opened.
    """
    async with open_shard(selection, shard) as reader:
        await check_opened(selection.storage, shard, reader.info)
        yield reader


async def check_opened(storage: Storage, shard: SelectedShard, info: ObjectInfo) -> None:
    """Check that an object that was opened is the shard in the manifest, if a manifest lists it.

    Raises:
        ObjectChangedError: another shard has the name of the shard in the manifest.
        StorageError: the store failed.
    """
    if shard.entry is not None:
        check_version(shard.display_path, shard.entry, info)
        with naming_lost_shards():
            await check_content(storage, shard.display_path, shard.entry, info)


async def check_read(storage: Storage, shard: SelectedShard, records: int, checksum: int | None) -> None:
    """Check that a shard that was read to its end is the one in the manifest, if a manifest lists it.

    Args:
        checksum: the checksum of the bytes that were read, or `None` if it is unknown. If a part arrived damaged and
            was read again, the checksum is wrong, so the whole shard is then read again.

    Raises:
        DatasetError: as for `check_count`.
        ObjectChangedError: another shard has the name of the shard in the manifest.
        StorageError: the store failed.
    """
    check_count(shard, records)
    if shard.entry is not None and shard.entry.crc32c not in (None, checksum):
        await check_stored(storage, shard)


async def check_stored(storage: Storage, shard: SelectedShard) -> None:
    """Check that a stored object is the shard in the manifest, by its whole content if the store keeps no checksum.

    Raises:
        ObjectChangedError: another shard has the name of the shard in the manifest.
        StorageError: the store failed.
    """
    entry = shard.entry
    assert entry is not None, "a manifest lists the shard"
    with naming_lost_shards():
        info = await storage.head(shard.key)
    await check_opened(storage, shard, info)
    if (
        entry.crc32c is not None
        and info.crc32c is None
        and await stored_crc32c(storage, shard.key, info=info) != entry.crc32c
    ):
        await refuse_unless_damaged(storage, shard.display_path, entry, info)


def check_count(shard: SelectedShard, records: int) -> None:
    """Check the number of records that were read from a whole shard.

    Raises:
        DatasetError: a manifest lists the shard with another number of records.
    """
    if shard.entry is not None and records != shard.entry.records:
        raise DatasetError(
            f"{shard.display_path}: the shard has {records:,} records, but the manifest says "
            f"{shard.entry.records:,}. Run 'asyncrec verify' for details"
        )


async def shard_index(selection: Selection, shard: SelectedShard) -> RecordIndex | None:
    """Return the complete index of a shard, or `None` if the shard has no index or the index does not match it.

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
        raise ArgumentValueError(
            f"the shard's index is needed to find record {first:,}; pass the index that shard_index returns"
        )
    return Position(*index.beginning(first), first)


def key_bytes_of(*selections: Selection) -> int:
    """Return the size of the digests of one record, which include a content digest if any shard has content digests."""
    entries = (shard.entry for selection in selections for shard in selection.shards if shard.entry is not None)
    return PAIR_BYTES if any(entry.key_bytes == PAIR_BYTES for entry in entries) else KEY_BYTES


# The maximum number of keys to skip at once.
_PASSED_AT_ONCE = 1 << 16


class ShardKeys:
    """A reader of a shard's keys, which returns empty keys if there is no keys file. An async context manager."""

    def __init__(self, selection: Selection, shard: SelectedShard, *, width: int = KEY_BYTES) -> None:
        """``width`` is the size of the digests of one record: `KEY_BYTES`, or `PAIR_BYTES` with content digests."""
        self._shard = shard
        self._width = width
        self._stored = (shard.entry.key_bytes if shard.entry else 0) or KEY_BYTES
        sidecar = shard.entry.keys if shard.entry else None
        name = None if sidecar is None else sidecar.path
        self._taken = 0
        # No read-ahead task is needed, because keys files are small and are read together with the shard.
        self._source = None if name is None else ResumingSource(selection.storage, shard.folder + name, read_ahead=0)

    async def __aenter__(self) -> ShardKeys:
        if self._source is not None:
            try:
                await self._source.__aenter__()
            except ObjectNotFoundError as error:
                if self._shard.dataset is not None:
                    raise
                # With a pattern, the remaining files of a damaged data set can still be read.
                self._source = None
                _path_log.warning(self._shard.display_path, "the records are read without their keys: %s", error)
        return self

    async def __aexit__(self, *error: Any) -> None:
        if self._source is not None:
            await self._source.__aexit__(*error)

    async def take(self, count: int) -> list[bytes]:
        data = await self.joined(count)
        return [data[at : at + self._width] for at in range(0, len(data), self._width)]

    async def of(self, numbers: Sequence[int | None]) -> list[bytes]:
        """Return the keys of records by their numbers, which must ascend from call to call; an empty key for `None`."""
        known = [number for number in numbers if number is not None]
        keys: dict[int, bytes] = {}
        if known:
            while (left := known[0] - self._taken) > 0:
                await self.joined(min(left, _PASSED_AT_ONCE))
            keys = dict(enumerate(await self.take(known[-1] + 1 - known[0]), known[0]))
        return [bytes(self._width) if number is None else keys[number] for number in numbers]

    async def joined(self, count: int) -> bytes:
        self._taken += count
        if self._source is None:
            return bytes(self._width * count)
        data = await receive_exactly(self._source, count * self._stored)
        if len(data) < count * self._stored:
            raise DatasetError(
                f"{self._shard.display_path}: the shard has fewer keys than records; run 'asyncrec verify' for details"
            )
        return data if self._stored == self._width else await in_thread(fitted, data, count, self._width)
