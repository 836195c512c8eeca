"""`ShardFiles` opens a data set's shards, and pins each shard to one version.

The first read of a shard determines its version, and all later reads are pinned to that version. A shard is rejected if
its size differs from the size in the manifest. A different shard of the same size is also rejected. It is recognised by
the store's checksum, which is requested once if the response to a range request does not include it. If a local store
keeps no checksums, the checksum of the shard's last bytes is compared instead. A damaged shard is not rejected, because
reading its records shows where the damage is. If no manifest lists a shard, only the version that was found when the
data set was opened is accepted.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from datetime import datetime

import anyio

from asyncrec._framing.crc import crc32c
from asyncrec._framing.frames import MAX_RECORD_BYTES
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
        folder: the folder of the shards; the paths in ``shards`` are keys in this folder.
        shards: the entries of the shards, in the order of their records.

    Attributes:
        remote: whether a read has to wait for a remote store.
        cached: whether the shards are read through a local cache.
    """

    def __init__(self, folder: Storage, shards: Sequence[ShardEntry]) -> None:
        self.folder = folder
        self.shards = shards
        self.remote = folder.read_ahead > 0
        self.cached = isinstance(folder, CachedStorage)
        self._versions: dict[int, ObjectInfo] = {}
        # A cache checks the entire shard once it has been downloaded.
        self._asks_for_checksums = self.remote and not self.cached
        self._asking: dict[int, anyio.Lock] = {}
        self._told: dict[int, ObjectInfo] = {}

    def display_path(self, shard: int) -> str:
        """Return the path of a shard, for messages."""
        return join(self.folder.root, self.shards[shard].path)

    @asynccontextmanager
    async def opened(self, shard: int, start: int = 0, end: int | None = None) -> AsyncIterator[ResumingSource]:
        """Open the bytes ``[start, end)`` of a shard.

        Raises:
            ObjectNotFoundError: the shard no longer exists. The message suggests a remedy.
            ObjectChangedError: the shard is not the version that was read before, or not the shard in the manifest.
        """
        async with AsyncExitStack() as stack:
            with naming_lost_shards():
                source = await self._open(stack, shard, start, end)
                yield source  # inside the `with`, because reading may show that the shard no longer exists
            # Pin the version only now, because an unconfirmed first response must not determine all later reads.
            self._versions.setdefault(shard, source.info)

    def pin(self, shard: int, file: OpenFile) -> bool:
        """Pin all reads of a shard to this file, unless they are already pinned to another version or file.

        Return whether the reads are now pinned to this file. A file that is not the shard in the manifest is never
        pinned. Any thread may call this. Blocks.
        """
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
        """Return the bytes ``[start, end)`` of a shard, or fewer if the shard ends before ``end``."""
        async with self.opened(shard, start, end) as source:
            return await receive_exactly(source, end - start)

    async def drop_damaged(self, shard: int) -> bool:
        """Return whether a damaged record was read from a cached copy, and may be intact in the store.

        If the copy no longer has the bytes that the store sent, remove it from the cache.
        """
        info = self.version(shard)
        if info is None or not isinstance(self.folder, CachedStorage):
            return False
        return await self.folder.drop_damaged(self.shards[shard].path, info)

    def check_count(self, shard: int, records: int) -> None:
        """Raise DatasetError if ``records`` is not the shard's number of records in the manifest."""
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
            # A range is requested in one piece. A complete shard is read ahead as the store prefers.
            read_ahead=None if end is None else 0,
        )
        await stack.enter_async_context(source)
        self._check(shard, source.info)
        if shard not in self._versions:
            await self._check_content(shard, source.info)
        return source

    def version(self, shard: int) -> ObjectInfo | None:
        """Return the version to which all reads of a shard are pinned, or `None` if none is known yet."""
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
        """Check the metadata of a shard that a reader opened itself, at the version that `version` returned.

        Raises:
            ObjectChangedError: as for `opened`.
        """
        self._check(shard, info)
        if shard not in self._versions:
            await self._check_content(shard, info)

    async def ask_for_checksum(self, shard: int) -> None:
        """Request the checksum of a shard from the store, if the first read would otherwise have to request it."""
        entry = self.shards[shard]
        if shard not in self._versions and self._asks_for_checksums and entry.crc32c is not None:
            with suppress(StorageError):  # reading the shard will raise the error
                await self._with_checksum(shard)

    def keep(self, shard: int, info: ObjectInfo) -> None:
        """Pin all reads of a shard to this version, which has been read to the end.

        Raises:
            ObjectChangedError: the reads have been pinned to a different version in the meantime.
        """
        if self._versions.setdefault(shard, info).etag != info.etag:
            raise ObjectChangedError(f"{self.display_path(shard)} was replaced while it was being read; open it again")

    def _check(self, shard: int, info: ObjectInfo) -> None:
        check_version(self.display_path(shard), self.shards[shard], info)

    async def _check_content(self, shard: int, info: ObjectInfo) -> None:
        """Raise ObjectChangedError for a different shard of the same size, but accept a damaged shard."""
        entry = self.shards[shard]
        if version_in(entry) is not None:
            return
        if entry.crc32c is not None and info.crc32c is None and self._asks_for_checksums:
            known = await self._with_checksum(shard)
            info = known if known.etag == info.etag else info
        if await check_content(self.folder, self.display_path(shard), entry, info):
            self._versions.setdefault(shard, info)

    async def _with_checksum(self, shard: int) -> ObjectInfo:
        """Request a shard's checksum once, because the response to a range request may lack it (on S3)."""
        async with self._asking.setdefault(shard, anyio.Lock()):
            known = self._versions.get(shard) or self._told.get(shard)
            if known is None:
                known = self._told[shard] = await self.folder.head(self.shards[shard].path)
                # A store that keeps no checksum for one object keeps none for any object.
                self._asks_for_checksums = known.crc32c is not None
            return known


def check_version(path: str, entry: ShardEntry, info: ObjectInfo) -> None:
    """Raise ObjectChangedError unless a shard has the manifest's size or, if unlisted, the version found on opening."""
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


async def check_content(storage: Storage, path: str, entry: ShardEntry, info: ObjectInfo) -> bool:
    """Compare the checksums of a shard of the right size, without a request if the store is remote.

    Return whether anything was compared. A damaged shard is accepted.

    Raises:
        ObjectChangedError: a different shard now has the name of the shard in the manifest.
        StorageError: the store failed.
    """
    if None not in (entry.crc32c, info.crc32c):
        agrees = entry.crc32c == info.crc32c
    elif storage.read_ahead > 0 or entry.end_crc32c is None:
        return False
    else:
        agrees = await end_crc32c(storage, info) == entry.end_crc32c
    if not agrees:
        await refuse_unless_damaged(storage, path, entry, info)
    return True


async def refuse_unless_damaged(storage: Storage, path: str, entry: ShardEntry, info: ObjectInfo) -> None:
    """Read an entire shard whose checksum differs from the manifest's, and accept the shard if it is damaged.

    Raises:
        ObjectChangedError: all records are intact, so this is a different shard.
        StorageError: the store failed.
    """
    limit = max(MAX_RECORD_BYTES, entry.max_record_bytes)
    try:
        await scan_object(
            storage, info.key, compression=entry.compression, verify=True, sizes=False, max_record_bytes=limit
        )
    except FormatError:
        return
    raise ObjectChangedError(
        f"{path}: this is not the shard that the manifest lists: the size is the same and all records are intact, but "
        f"the checksum differs{_REMEDY}"
    )
