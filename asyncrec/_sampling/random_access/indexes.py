"""`Indexes` returns the positions of the records in each shard. An index is read and checked when it is first needed.

An index matches its shard if it has as many records as the manifest says, begins at 0, has no gaps and ends where the
shard ends. For a GZIP shard, the members must instead be in order and within the shard. If an index does not match or
is missing, a new index is made by reading the lengths of all records in the shard. The new index is not stored, because
only writers change a data set.
"""

from __future__ import annotations

import logging
from functools import partial

import numpy as np
from crc32c import crc32c

from asyncrec._concurrency.lru_cache import AsyncLRUCache
from asyncrec._concurrency.tasks import TaskScope, in_thread
from asyncrec._framing.frames import MAX_RECORD_BYTES
from asyncrec._path_log import PathLog
from asyncrec._records.index import RecordIndex, parse_index
from asyncrec._records.reading.frame_scan import FrameScan, scan_object, scan_source
from asyncrec._sampling.random_access.shard_files import ShardFiles, check_version
from asyncrec._shards.manifest.loading import in_thread_unless
from asyncrec._shards.manifest.names import index_key
from asyncrec._shards.manifest.segment import ShardEntry
from asyncrec.errors import DatasetError, FormatError, ObjectNotFoundError
from asyncrec.storage._base import Storage
from asyncrec.storage._cached import expect
from asyncrec.storage._url import join

_log = logging.getLogger("asyncrec.sampling")
_path_log = PathLog("asyncrec.sampling")

# The maximum size of all indexes in memory. This is enough for 60 million records, or for 110 million in shards without
# records above 32 KiB.
_HELD_BYTES = 256 << 20
# The maximum length of a line (three numbers of at most 20 digits), and the minimum size of a frame. If the number of
# records is not known, it is limited by the size of the shard, so that no index of unlimited length is read. A
# compressed shard may have more records than that; a new index is then made.
_MOST_LINE = 64
_LEAST_FRAME = 16
# Parsing this many bytes takes 0.15 ms. A thread hop takes as long, or several milliseconds if other threads are busy.
_LITTLE_TEXT = 64 << 10


class Indexes:
    """The indexes of a data set's shards, by the number of the shard. Recently used indexes stay in memory."""

    def __init__(self, folder: Storage, files: ShardFiles) -> None:
        self._folder = folder
        self._files = files
        self._cache: AsyncLRUCache[int, RecordIndex] = AsyncLRUCache(_HELD_BYTES, _weight)
        self._read = set[int]()
        self._told = False

    def held(self, shard: int) -> RecordIndex | None:
        """Return the index of one shard if the index is in memory, else `None`. Any thread may call this."""
        return self._cache.held(shard)

    async def get(self, shard: int) -> RecordIndex:
        """Return the index of one shard.

        Raises:
            FormatError: no stored index matches the shard, and the shard is damaged.
            DatasetError: the number of records in the shard differs from the number in the manifest.
        """

        async def make() -> RecordIndex:
            entry = self._files.shards[shard]
            async with TaskScope() as scope:  # the checksum and the index are needed before any record can be read
                scope.start_soon(self._files.ask_for_checksum, shard)
                found = await read_index(self._folder, entry)
            if found is None:
                try:
                    found = await make_index(self._files, shard)
                except FormatError:
                    if not await self._files.drop_damaged(shard):
                        raise
                    found = await make_index(self._files, shard)
                self._files.check_count(shard, len(found))
            self._note(shard)
            return found

        return await self._cache.get(shard, make)

    def _note(self, shard: int) -> None:
        """If this index was read before, warn once that the indexes do not fit in the cache."""
        if shard in self._read and not self._told:
            self._told = True
            path = self._files.display_path(shard)
            _path_log.warning(
                path,
                "the index of this shard is read again, because the indexes of all %s shards do not fit in the "
                "cache of %d MiB; random reads are slow. Read records in order, in blocks, or from fewer shards",
                f"{len(self._files.shards):,}",
                _HELD_BYTES >> 20,
                shards=len(self._files.shards),
                kept_bytes=_HELD_BYTES,
            )
        self._read.add(shard)


def _weight(index: RecordIndex) -> int:
    return index.nbytes + 1000


async def read_index(folder: Storage, entry: ShardEntry, *, count_known: bool = True) -> RecordIndex | None:
    """Return the index stored with a shard, or `None` if it is missing, damaged, or does not match the shard."""
    sidecar = entry.index
    key = index_key(entry.path) if sidecar is None else sidecar.path
    try:
        most = entry.records if count_known else entry.bytes // _LEAST_FRAME
        if sidecar is not None:
            expect(folder, key, sidecar.bytes, sidecar.crc32c)
        text = await folder.get(key, max_bytes=_MOST_LINE * (most + 1))
        index, problem = await in_thread_unless(len(text) <= _LITTLE_TEXT, _parsed, text, entry, count_known)
    except ObjectNotFoundError:
        _log.info(
            "%s: the shard has no index; the whole shard is read to build one",
            entry.path,
            extra={"path": join(folder.root, entry.path)},
        )
        return None
    except ValueError as error:  # FormatError is a ValueError
        _log.warning(
            "%s: %s; the whole shard is read instead", key, error, extra={"path": join(folder.root, entry.path)}
        )
        return None
    if problem:
        _log.warning(
            "%s: %s; the index belongs to another version of the shard, so the whole shard is read instead",
            key,
            problem,
            extra={"path": join(folder.root, entry.path)},
        )
        return None
    if entry.compression == "ZLIB":
        return index.as_one_member()
    return index


def _parsed(text: bytes, entry: ShardEntry, count_known: bool) -> tuple[RecordIndex, str]:
    """Parse an index, and return it with the result of `_misfit`. If ``text`` is long, call this in a worker thread.

    Raises:
        ValueError: ``text`` is not an index, or does not match its checksum in the manifest.
    """
    if entry.index is not None and entry.index.crc32c not in (None, crc32c(text)):
        raise DatasetError("the index does not match its checksum in the manifest")
    index = parse_index(text)
    return index, _misfit(index, entry, count_known=count_known)


def _misfit(index: RecordIndex, entry: ShardEntry, *, count_known: bool) -> str:
    """Return a description of the first contradiction between an index and its shard, or ``""`` if they match."""
    if count_known and len(index) != entry.records:
        return f"the index has {len(index):,} records, but the shard has {entry.records:,}"
    if (index.members is None) == (entry.compression == "GZIP") and len(index):
        return "the index is for another compression"
    _, offsets, members = index.runs
    if entry.compression:
        if len(members) and (members[-1] >= entry.bytes or (np.diff(members) < 0).any()):
            return "the members in the index are not consecutive"
        return ""
    end = index.offsets[-1] + index.sizes[-1] if len(index) else 0
    if end != entry.bytes:
        return f"the index ends at byte {end:,}, but the shard has {entry.bytes:,} bytes"
    if len(offsets) > 1 or offsets.any():
        return "the records in the index are not consecutive"
    return ""


async def make_index(files: ShardFiles, shard: int) -> RecordIndex:
    """Make the index of a shard by reading the lengths of its records once.

    Raises:
        FormatError: the lengths or the compression of the shard are damaged. The records' data is not checked.
    """
    async with files.opened(shard) as source:
        try:
            entry = files.shards[shard]
            scan = await scan_source(
                source, compression=entry.compression, verify=False, max_record_bytes=entry.max_record_bytes
            )
        except FormatError as error:
            error.path = files.display_path(shard)
            raise
    index = await in_thread(scan.index)
    return index.as_one_member() if scan.compression == "ZLIB" else index


async def scan_shard(
    folder: Storage, entry: ShardEntry, *, sizes: bool = True, max_record_bytes: int = MAX_RECORD_BYTES
) -> FrameScan:
    """Read the lengths of the records in a shard once, for tools that count or index records without a data set.

    Raises:
        FormatError: as for `make_index`.
        ObjectChangedError: the shard does not have the size in ``entry``.
    """
    path = join(folder.root, entry.path)
    try:
        scan, _ = await scan_object(
            folder,
            entry.path,
            compression=entry.compression,
            verify=False,
            sizes=sizes,
            max_record_bytes=max_record_bytes,
            check=partial(check_version, path, entry),
        )
    except FormatError as error:
        error.path = path
        raise
    return scan
