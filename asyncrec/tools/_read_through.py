"""`read_through` reads one shard to its end, and returns its properties and a description of any damage.

In the usual case of an intact shard, the records are only scanned, without creating an object for each record. A
damaged shard is read again by a reader that skips and reports the damage, so all damage is reported by the same code.
This reader uses a `ChecksummedStorage`, which computes the CRC32C of the shard as it is read.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import numpy as np
from crc32c import crc32c
from numpy.typing import NDArray

from asyncrec._concurrency.tasks import in_thread
from asyncrec._framing.damage import Damage
from asyncrec._framing.frames import FRAME_OVERHEAD
from asyncrec._records.index import RecordIndex
from asyncrec._records.position import BEGINNING
from asyncrec._records.reading.frame_scan import scan_object
from asyncrec._records.reading.reader import RecordReader, open_reader_at
from asyncrec.errors import FormatError
from asyncrec.storage._base import ByteSource, ObjectInfo, ReadOnlyStorage, Storage
from asyncrec.storage._resuming_source import KeepsCopies
from asyncrec.tools._selection import SelectedShard

Advance = Callable[[int], None]


@dataclass(slots=True, kw_only=True)
class ReadThrough:
    """The result of `read_through`.

    Attributes:
        records: the number of complete records in the shard.
        info: the store's description of the shard.
        crc32c: the checksum of the shard's bytes; `None` if the shard was not read to its end.
        damage: the damaged ranges that were skipped.
        error: the error that stopped even the reader that skips damage, or `None`.
        index: a function that returns the index. It blocks, and may be called only if ``sizes`` was true.
    """

    records: int
    compression: str
    info: ObjectInfo | None
    crc32c: int | None
    damage: list[Damage] = field(default_factory=list)
    error: FormatError | None = None
    index: Callable[[], RecordIndex]


async def read_through(storage: Storage, shard: SelectedShard, *, sizes: bool, advance: Advance) -> ReadThrough:
    """Read a shard, and verify every checksum.

    Args:
        sizes: whether to keep the sizes of the records, which the index requires.
        advance: called with the number of bytes read since the last call.

    Raises:
        ObjectNotFoundError, StorageError: the store did not return the shard.
    """
    done = 0

    def on(size: int) -> None:
        nonlocal done
        done += size
        advance(size)

    try:
        scan, info = await scan_object(
            storage, shard.key, verify=True, sizes=sizes, max_record_bytes=shard.max_record_bytes, advance=on
        )
        return ReadThrough(
            records=scan.records, compression=scan.compression, info=info, crc32c=scan.crc32c, index=scan.index
        )
    except FormatError:
        pass  # the reader below reports the range of the damage, and reads the records after it
    return await _skipping(storage, shard, sizes=sizes, advance=_behind(done, advance))


def _behind(done: int, advance: Advance) -> Advance:
    """Return a function that calls ``advance`` for all but the first ``done`` bytes, which were reported before."""
    left = done

    def on(size: int) -> None:
        nonlocal left
        known = min(left, size)
        left -= known
        if size > known:
            advance(size - known)

    return on


async def _skipping(storage: Storage, shard: SelectedShard, *, sizes: bool, advance: Advance) -> ReadThrough:
    passing = ChecksummedStorage(storage)
    counts = _Counts(sizes=sizes)
    damage: list[Damage] = []
    failed: FormatError | None = None
    try:
        reader = await open_reader_at(
            passing,
            shard.key,
            BEGINNING,
            path=shard.display_path,
            on_corrupt="skip",
            warns=False,
            max_record_bytes=shard.max_record_bytes,
        )
        try:
            await counts.read(reader, passing, advance)
            damage = reader.damage
        finally:
            await reader.aclose()
    except FormatError as error:
        failed = error
    info = passing.info
    return ReadThrough(
        records=counts.records,
        compression=counts.compression,
        info=info,
        crc32c=passing.crc32c if info is not None and passing.position == info.size else None,
        damage=damage,
        error=failed,
        index=counts.index,
    )


class _Counts:
    """Counts the records that a reader returns and, with ``sizes``, notes the length of each record."""

    def __init__(self, *, sizes: bool) -> None:
        self.records = 0
        self.compression = ""
        self._wants_sizes = sizes
        self._sizes: list[NDArray[np.int64]] = []
        self._members: list[tuple[int, int]] = []

    async def read(self, reader: RecordReader, passing: ChecksummedStorage, advance: Advance) -> None:
        seen = 0
        while batch := await reader.next_batch():
            self.records += len(batch.records)
            if self._wants_sizes:
                self._members += batch.members
                self._sizes.append(np.fromiter(map(len, batch.records), np.int64, len(batch.records)))
            if passing.position - seen:
                advance(passing.position - seen)
                seen = passing.position
        self.compression = reader.compression

    def index(self) -> RecordIndex:
        """Return the index of a shard that seemed damaged in the first scan, but was intact when read again."""
        sizes = np.concatenate(self._sizes) + FRAME_OVERHEAD if self._sizes else np.empty(0, np.int64)
        if self.compression != "GZIP" or not len(sizes):
            return RecordIndex.of_sizes(sizes)
        starts = np.concatenate([np.zeros(1, np.int64), np.cumsum(sizes)])
        return RecordIndex.of_sizes(sizes, [(byte, int(starts[first])) for first, byte in sorted(set(self._members))])


# The checksum of this many bytes takes about 50 us. Larger blocks are checksummed in a worker thread.
_MOST_ON_LOOP = 1 << 20


class ChecksummedStorage(ReadOnlyStorage):
    """Wraps a storage backend to compute the checksum of one object while it is read from its beginning.

    Only one reader may read at a time. A range that is read again because it arrived damaged counts only once.

    Attributes:
        crc32c: the checksum of the bytes ``[0, position)``.
        position: the number of bytes that have been read.
        info: the store's description of the object; `None` until the object is opened.
    """

    why = "this storage is only used to compute a checksum"

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self.root = storage.root
        self.read_ahead = storage.read_ahead
        self.flush_level = storage.flush_level
        self.lists_by_pages = storage.lists_by_pages
        self.crc32c = 0
        self.position = 0
        self.info: ObjectInfo | None = None

    @property
    def whole_crc32c(self) -> int | None:
        """The checksum of the object; `None` if not all of it was read."""
        return self.crc32c if self.info is not None and self.position == self.info.size else None

    @asynccontextmanager
    async def open_source(
        self, key: str, *, start: int = 0, end: int | None = None, info: ObjectInfo | None = None
    ) -> AsyncIterator[ByteSource]:
        async with self._storage.open_source(key, start=start, end=end, info=info) as source:
            self.info = source.info
            yield _Source(self, source, start)

    async def head(self, key: str) -> ObjectInfo:
        return await self._storage.head(key)

    async def drop_damaged(self, key: str, info: ObjectInfo) -> bool:
        return isinstance(self._storage, KeepsCopies) and await self._storage.drop_damaged(key, info)

    async def passed(self, start: int, block: bytes) -> None:
        """Add ``block``, which was read at the offset ``start``, to the checksum."""
        new = self.position - start
        if not 0 <= new < len(block):
            return  # the block has already been counted, or follows a gap, where the checksum ends
        rest = memoryview(block)[new:]
        if len(rest) > _MOST_ON_LOOP:
            await in_thread(self.add, rest)
        else:
            self.add(rest)

    def add(self, block: memoryview) -> None:
        """Add the next bytes of the object to the checksum. Blocks if there are many."""
        self.crc32c = crc32c(block, self.crc32c)
        self.position += len(block)


class _Source(ByteSource):
    def __init__(self, storage: ChecksummedStorage, source: ByteSource, start: int) -> None:
        self._storage = storage
        self._source = source
        self._at = start
        self._block = b""  # bytes received but not yet returned, which are kept if the call is cancelled
        self.info = source.info

    @property
    def buffered(self) -> int:  # type: ignore[override]
        return len(self._block) + self._source.buffered

    @property
    def flowing(self) -> bool:  # type: ignore[override]
        return self._source.flowing

    async def receive(self, max_bytes: int) -> bytes:
        if not self._block:
            self._block = await self._source.receive(max_bytes)
        await self._storage.passed(self._at, self._block)
        block, self._block = self._block[:max_bytes], self._block[max_bytes:]
        self._at += len(block)
        return block
