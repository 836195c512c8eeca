"""`FrameScan` measures the records of one object without extracting them; `scan_object` scans an entire object.

The computation is done in worker threads, in C code that releases the GIL, so several objects are scanned in parallel,
each on its own core.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from asyncrec._concurrency.tasks import in_thread, surely_in_thread
from asyncrec._framing.compression import CompressionType, Decompressor, detect_compression
from asyncrec._framing.crc import crc32c
from asyncrec._framing.frames import FRAME_OVERHEAD, HEADER_BYTES, MAX_RECORD_BYTES
from asyncrec._framing.measuring import FrameMeter
from asyncrec._numpy import np
from asyncrec._records.index import RecordIndex
from asyncrec.errors import ObjectChangedError
from asyncrec.storage._base import ByteSource, ObjectInfo, Storage
from asyncrec.storage._local.disk import mapped_errors
from asyncrec.storage._local.open_files import OpenFile
from asyncrec.storage._local.storage import local_folder, open_file
from asyncrec.storage._resuming_source import ResumingSource, receive_exactly

Advance = Callable[[int], None]

# For a local file: the number of bytes that one call in a thread reads and scans, and the size of the blocks in which
# it reads them. For each block, the thread releases the GIL three times, and may have to wait to reacquire it.
_HOP_BYTES = 16 << 20
_BLOCK_BYTES = 2 << 20
# A call that would take longer (a slow disk, data that decompresses to a thousand times its size) is split, so that a
# cancelled scan stops within this time.
_HOP_SECONDS = 0.05
# For other stores: the size of one read, which is scanned in one call. A scan keeps two such blocks in memory.
_READ_BYTES = 2 << 20
# Compressed data is read in smaller blocks, and decompressed in steps that stay in the processor's cache.
_READ_COMPRESSED = 1 << 20
_INFLATE_STEP = 256 << 10


def _no_progress(size: int) -> None:
    """Ignore the progress of the scan."""


def _any(info: ObjectInfo) -> None:
    """Accept any version of the object."""


class FrameScan:
    """A scan of an object's records, whose bytes are fed in order. Call its methods in a worker thread.

    Args:
        verify: whether to check every checksum and compute `crc32c`. If false, only the checksums of lengths are
            checked.
        sizes: whether to store the size of every record, in 8 bytes each, for `index`.
        max_record_bytes: as for `FrameDecoder`.

    Attributes:
        compression: the object's compression.
        records: the number of records scanned so far.
        bytes: the number of stored bytes fed so far.
        crc32c: the CRC-32C of the bytes fed so far; 0 without ``verify``.
    """

    def __init__(
        self, compression: str, *, verify: bool, sizes: bool = True, max_record_bytes: int = MAX_RECORD_BYTES
    ) -> None:
        self.compression = compression
        self.bytes = 0
        self.crc32c = 0
        self._verify = verify
        self._meter = FrameMeter(verify=verify, max_record_bytes=max_record_bytes)
        self._decompressor = Decompressor(compression) if compression else None
        self._sizes: list[np.ndarray[tuple[int], np.dtype[np.int64]]] | None = [] if sizes else None
        self._members = [(0, 0)]  # the compressed and decompressed offset of each member

    @property
    def records(self) -> int:
        return self._meter.records

    def feed(self, block: bytes) -> None:
        """Process the next bytes of the object.

        Raises:
            FormatError: the object is damaged. The error's path is not filled in.
        """
        self.bytes += len(block)
        if self._verify:
            self.crc32c = crc32c(block, self.crc32c)
        if self._decompressor is None:
            self._measure(block)
            return
        self._decompressor.feed(block)
        while output := self._decompressor.read(_INFLATE_STEP):
            began = (self._decompressor.member_offset, self._decompressor.member_start)
            if began != self._members[-1]:
                self._members.append(began)
            self._measure(output)

    def finish(self) -> None:
        """Mark the end of the object.

        Raises:
            FormatError: the object ends inside a record or inside its compressed data.
        """
        if self._decompressor is not None:
            self._decompressor.finish()
        self._meter.finish()

    def index(self) -> RecordIndex:
        """Return the object's index. Only the index of a GZIP object has members."""
        assert self._sizes is not None, "sizes=True was passed"
        sizes = np.concatenate(self._sizes) if self._sizes else np.empty(0, np.int64)
        return RecordIndex.of_sizes(sizes, self._members if self.compression == "GZIP" else None)

    def _measure(self, data: bytes) -> None:
        lengths = self._meter.measure(data)
        if self._sizes is not None and len(lengths):
            self._sizes.append(lengths + FRAME_OVERHEAD)
        if self._meter.error is not None:
            raise self._meter.error


async def scan_source(
    source: ByteSource,
    *,
    compression: str | None = None,
    verify: bool,
    sizes: bool = True,
    max_record_bytes: int = MAX_RECORD_BYTES,
    advance: Advance = _no_progress,
) -> FrameScan:
    """Scan a source to its end. For the arguments and errors, see `scan_object`."""
    head = b""
    if compression is None:
        head = await receive_exactly(source, HEADER_BYTES)
        compression = detect_compression(head)
    scan = FrameScan(compression, verify=verify, sizes=sizes, max_record_bytes=max_record_bytes)
    scan.feed(head)
    told = 0
    at_once = _READ_COMPRESSED if compression else _READ_BYTES
    while block := await source.receive(at_once):
        await in_thread(scan.feed, block)
        del block  # so that it is freed before the next block arrives
        advance(scan.bytes - told)
        told = scan.bytes
    await in_thread(scan.finish)
    return scan


async def scan_object(
    storage: Storage,
    key: str,
    *,
    compression: str | None = None,
    verify: bool,
    sizes: bool = True,
    max_record_bytes: int = MAX_RECORD_BYTES,
    check: Callable[[ObjectInfo], None] = _any,
    advance: Advance = _no_progress,
) -> tuple[FrameScan, ObjectInfo]:
    """Scan an entire object. Return the scan, and the store's description of the object.

    Args:
        compression: the object's compression; `None` to detect it.
        verify, sizes, max_record_bytes: as for `FrameScan`.
        check: called with the store's description before any byte is read; it may raise.
        advance: called with the number of bytes read since the last call.

    Raises:
        FormatError: the object is damaged. The error's path is not filled in.
        StorageError: the store failed.
    """
    folder = local_folder(storage)
    if folder is None:
        async with ResumingSource(storage, key) as source:
            check(source.info)
            scan = await scan_source(
                source,
                compression=compression,
                verify=verify,
                sizes=sizes,
                max_record_bytes=max_record_bytes,
                advance=advance,
            )
            return scan, source.info
    file = await in_thread(open_file, folder, key)
    try:
        check(file.info)
        if compression is None:
            compression = await in_thread(compression_of, file)
        scan = FrameScan(compression, verify=verify, sizes=sizes, max_record_bytes=max_record_bytes)
        while scan.bytes < file.info.size:
            told = scan.bytes
            await in_thread(_feed_from, file, scan)
            advance(scan.bytes - told)
        await in_thread(scan.finish)
    finally:
        await surely_in_thread(file.close)
    return scan, file.info


def compression_of(file: OpenFile) -> CompressionType:
    """Return a file's compression. Blocks.

    Raises:
        StorageError: the file cannot be read.
    """
    with mapped_errors("reading", file.shown):
        return detect_compression(file.read(HEADER_BYTES, 0))


def _feed_from(file: OpenFile, scan: FrameScan) -> None:
    """Read the next bytes of a file, and scan them. Blocks."""
    until = min(scan.bytes + _HOP_BYTES, file.info.size)
    deadline = time.perf_counter() + _HOP_SECONDS
    while scan.bytes < until:
        with mapped_errors("reading", f"{file.shown}, offset {scan.bytes:,}"):
            block = file.read(min(_BLOCK_BYTES, until - scan.bytes), scan.bytes)
        if not block:
            raise ObjectChangedError(
                f"{file.shown} was truncated from {file.info.size:,} to {scan.bytes:,} bytes while it was being read; "
                "read it again"
            )
        scan.feed(block)
        if time.perf_counter() > deadline:
            break
