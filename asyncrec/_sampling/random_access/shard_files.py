"""`ShardFiles` opens a data set's shards, and always the same version of them.

The first bytes read of a shard say which version it is; all later reads are pinned to it. A shard is refused if its
size is not the manifest's. So is another one of the same size: told by the checksum that the store keeps, which it is
asked for once if an answer to a range does not have it, or by that of its end if the store keeps none and a read costs
no waiting. One that is only damaged is not: its records say where.
Of a shard that no manifest lists any version is refused but the one that was found.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from datetime import datetime

import anyio

from asyncrec._framing.crc import crc32c
from asyncrec._records.reading.frame_scan import scan_object
from asyncrec._sampling.shard_versions import is_version, version_in
from asyncrec._shards.manifest.manifest import naming_lost_shards
from asyncrec._shards.manifest.segment import ShardEntry
from asyncrec.errors import DatasetError, FormatError, ObjectChangedError, StorageError
from asyncrec.storage._base import ObjectInfo, Storage
from asyncrec.storage._cached import CachedStorage, by_content
from asyncrec.storage._checksums import end_crc32c
from asyncrec.storage._chunk_writer import END_BYTES
from asyncrec.storage._local.open_files import OpenFile
from asyncrec.storage._resuming_source import ResumingSource, receive_exactly
from asyncrec.storage._url import join

_REMEDY = (
    ". If the data set was rewritten, open it again. If only this file changed, restore the file that the "
    "manifest lists, for example with 'asyncrec copy' from another copy, and check the result with 'asyncrec "
    "verify'"
)


class ShardFiles:
    """The shard files of a data set.

    Args:
        folder: where they are; paths in ``shards`` are keys in it.
        shards: in the order of their records.

    Attributes:
        remote: whether a read of the store costs waiting.
        cached: whether they are read through a local cache.
    """

    def __init__(self, folder: Storage, shards: Sequence[ShardEntry]) -> None:
        self.folder = folder
        self.shards = shards
        self.remote = folder.read_ahead > 0
        self.cached = isinstance(folder, CachedStorage)
        self._versions: dict[int, ObjectInfo] = {}
        # A cache compares the whole shard when it has it.
        self._asks_for_checksums = self.remote and not self.cached
        self._asking: dict[int, anyio.Lock] = {}
        self._told: dict[int, ObjectInfo] = {}

    def display_path(self, shard: int) -> str:
        """The shard's path, for messages."""
        return join(self.folder.root, self.shards[shard].path)

    @asynccontextmanager
    async def opened(self, shard: int, start: int = 0, end: int | None = None) -> AsyncIterator[ResumingSource]:
        """The bytes ``[start, end)`` of a shard.

        Raises:
            ObjectNotFoundError: the shard is gone, and what may be done about it.
            ObjectChangedError: it is not the version that was read before, or not the manifest's.
        """
        async with AsyncExitStack() as stack:
            with naming_lost_shards():
                source = await self._open(stack, shard, start, end)
                yield source  # which may find it lost when it is read
            # Only now: a first answer that nothing has confirmed must not decide for all reads to come.
            self._versions.setdefault(shard, source.info)

    def pin(self, shard: int, file: OpenFile) -> bool:
        """Whether all reads are pinned to this file; they are from now on, if to none yet. In any thread. Blocks."""
        entry, info = self.shards[shard], file.info
        if shard not in self._versions:
            if not _is_of(entry, info):
                return False
            if version_in(entry) is None and entry.end_crc32c is not None:
                size = min(entry.bytes, END_BYTES)
                if crc32c(file.read(size, entry.bytes - size)) != entry.end_crc32c:
                    return False
        return self._versions.setdefault(shard, info).etag == info.etag

    async def read(self, shard: int, start: int, end: int) -> bytes:
        """The bytes ``[start, end)``, fewer where the shard ends before."""
        async with self.opened(shard, start, end) as source:
            return await receive_exactly(source, end - start)

    async def drop_damaged(self, shard: int) -> bool:
        """Whether a damaged record was read from a cached copy, and may be intact in the store.

        A copy that is not what came from the store any more is dropped.
        """
        info = self.version(shard)
        if info is None or not isinstance(self.folder, CachedStorage):
            return False
        return await self.folder.drop_damaged(self.shards[shard].path, info)

    def check_count(self, shard: int, records: int) -> None:
        """Raise DatasetError unless the shard holds what the manifest says."""
        if records != self.shards[shard].records:
            raise DatasetError(
                f"{self.display_path(shard)} has {records:,} records, but the manifest says "
                f"{self.shards[shard].records:,}; the shard was changed, or the manifest belongs to another data set"
            )

    async def _open(self, stack: AsyncExitStack, shard: int, start: int, end: int | None) -> ResumingSource:
        entry, version = self.shards[shard], self.version(shard)
        source = ResumingSource(
            self.folder,
            entry.path,
            start=start,
            end=end,
            info=version,
            # A range is asked for at once and whole; a shard is read through, and read ahead as the store likes it.
            read_ahead=None if end is None else 0,
        )
        await stack.enter_async_context(source)
        self._check(shard, source.info)
        if shard not in self._versions:
            await self._check_content(shard, source.info)
        return source

    def version(self, shard: int) -> ObjectInfo | None:
        """The version that all reads of a shard are pinned to, if to one yet."""
        known = self._versions.get(shard)
        if known is not None or not self.cached:
            return known
        entry = self.shards[shard]
        packed = version_in(entry)
        if packed is None:
            return by_content(self.folder, entry.path, entry.bytes, entry.crc32c)
        size, checksum, etag, modified = packed
        return ObjectInfo(entry.path, size, etag, checksum, datetime.fromisoformat(modified))

    async def check(self, shard: int, info: ObjectInfo) -> None:
        """Refuse what a reader opened by itself, with `version`, if it is not the shard.

        Raises:
            ObjectChangedError: as `opened`.
        """
        self._check(shard, info)
        if shard not in self._versions:
            await self._check_content(shard, info)

    async def ask_for_checksum(self, shard: int) -> None:
        """Ask a store for what the first read of a shard would ask it for by a request of its own, if that is so."""
        entry = self.shards[shard]
        if shard not in self._versions and self._asks_for_checksums and entry.crc32c is not None:
            with suppress(StorageError):  # which the read will raise
                await self._with_checksum(shard)

    def keep(self, shard: int, info: ObjectInfo) -> None:
        """Pin all reads to this version, which was read to its end.

        Raises:
            ObjectChangedError: they were pinned to another one meanwhile.
        """
        if self._versions.setdefault(shard, info).etag != info.etag:
            raise ObjectChangedError(f"{self.display_path(shard)} was replaced while it was being read; open it again")

    def _check(self, shard: int, info: ObjectInfo) -> None:
        check_version(self.display_path(shard), self.shards[shard], info)

    async def _check_content(self, shard: int, info: ObjectInfo) -> None:
        """Refuse another shard of the same size. One that is damaged is let through: its records say where."""
        entry = self.shards[shard]
        if version_in(entry) is not None:
            return
        if entry.crc32c is not None and info.crc32c is None and self._asks_for_checksums:
            known = await self._with_checksum(shard)
            info = known if known.etag == info.etag else info
        if None not in (entry.crc32c, info.crc32c):
            agrees = entry.crc32c == info.crc32c
        elif self.remote or entry.end_crc32c is None:
            return
        else:
            agrees = await end_crc32c(self.folder, info) == entry.end_crc32c
        if agrees or not await self._is_whole(entry):
            self._versions.setdefault(shard, info)
            return
        raise ObjectChangedError(
            f"{self.display_path(shard)}: this is not the shard that the manifest lists: the size is the same and "
            f"all records are intact, but the checksum differs{_REMEDY}"
        )

    async def _with_checksum(self, shard: int) -> ObjectInfo:
        """Ask a store for the checksum that its answer to a range does not have (S3); once for a shard."""
        async with self._asking.setdefault(shard, anyio.Lock()):
            known = self._versions.get(shard) or self._told.get(shard)
            if known is None:
                known = self._told[shard] = await self.folder.head(self.shards[shard].path)
                # A store that tells none of one object has none of any.
                self._asks_for_checksums = known.crc32c is not None
            return known

    async def _is_whole(self, entry: ShardEntry) -> bool:
        """Whether nothing in a shard is damaged. It is read through."""
        try:
            await scan_object(self.folder, entry.path, compression=entry.compression, verify=True, sizes=False)
        except FormatError:
            return False
        return True


def check_version(path: str, entry: ShardEntry, info: ObjectInfo) -> None:
    """Raise ObjectChangedError where a shard has another size than the manifest says, or is another than was found."""
    if _is_of(entry, info):
        return
    if version_in(entry) is not None:
        raise ObjectChangedError(
            f"{path}: the shard was replaced after the data set was opened: it now has {info.size:,} bytes (etag "
            f"{info.etag}), not {entry.bytes:,}; open the data set again"
        )
    raise ObjectChangedError(f"{path}: the shard has {info.size:,} bytes, but {entry.bytes:,} are expected{_REMEDY}")


def _is_of(entry: ShardEntry, info: ObjectInfo) -> bool:
    version = version_in(entry)
    return info.size == entry.bytes if version is None else is_version(version, info)
