"""`LocalSource` reads one file, in the version that was opened.

If the file is replaced, reading continues from the old inode. If the file grows, it is read up to its size on opening.
If the file is truncated, reading raises `ObjectChangedError`.
"""

from __future__ import annotations

import os
import stat
from collections import deque
from types import TracebackType

import anyio

from asyncrec.errors import ArgumentValueError, ObjectChangedError, ObjectNotFoundError, StorageError
from asyncrec.storage._base import ByteSource, ObjectInfo
from asyncrec.storage._local.disk import NOWAIT, Disk, Place, mapped_errors, object_info, read_at, tells_what_is_cached
from asyncrec.storage._local.opening import open_object

# The maximum number of bytes copied from the page cache on the event loop at a time. It takes about 80 us, less than a
# thread hop.
_MOST_ON_LOOP = 512 << 10
# The same limit for a filesystem in memory, from which blocks are read without another copy. Reading 1 MiB takes 130 to
# 200 us.
_MOST_FROM_MEMORY = 1 << 20
# If the page cache cannot be queried, each thread hop reads at most this many bytes into the source's buffer.
_MOST_AHEAD = 1 << 20
# A read below this size is assumed to be a frame's header, and reads nothing ahead.
_SMALL = 4 << 10
# The number of thread hops after a cache miss before the cache is queried again. By then, the kernel has begun to read
# ahead.
_HOPS_AFTER_MISS = 8

_NOWAIT = NOWAIT


class LocalSource(ByteSource):
    """An open file and a position in it.

    Bytes in the page cache are copied on the event loop, because ``RWF_NOWAIT`` guarantees that the copy does not wait
    for the disk. Copying 256 KiB takes a quarter of the time of a thread hop. Bytes of a filesystem in memory are also
    copied on the loop. All other bytes, including those of a filesystem that does not report its cached bytes (FUSE,
    NFS), are read in a thread, several blocks per hop, which halves the time. A block of more than 1 MiB is read by
    itself, without a copy.
    """

    def __init__(self, disk: Disk, place: Place, *, start: int, end: int | None, info: ObjectInfo | None) -> None:
        self._disk = disk
        self._place = place
        self._position = start
        self._wanted_end = end
        self._end = start
        self._known = info
        self._fd = -1
        self._ahead: deque[bytes] = deque()  # blocks read ahead, at most _MOST_AHEAD bytes and a header
        self._taken = 0  # bytes of the first block already returned
        self._blocks = 1  # the number of blocks to read in the next hop
        self._header = 0  # the size of the last small read
        self._in_memory = False
        self._hops = 0  # the number of hops left before the cache is queried again; -1: never

    async def __aenter__(self) -> LocalSource:
        try:
            with mapped_errors("opening", self._place.shown):
                status = await self._disk.in_thread(self._open)
            check_regular(status, self._place.shown)
            self.info = object_info(self._place.key, status)
            if self._known is not None and self._known.etag != self.info.etag:
                raise ObjectChangedError(
                    f"{self._place.shown} was replaced since it was opened; open it again and read from the start"
                )
        except BaseException:
            self._close()
            raise
        size = self.info.size
        self._end = size if self._wanted_end is None else min(self._wanted_end, size)
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._ahead.clear()
        fd, self._fd = self._fd, -1
        if fd < 0:
            return
        if exc_type is GeneratorExit or self._closes_at_once(fd):  # garbage-collected: nothing can be awaited any more
            os.close(fd)
        else:
            await self._disk.surely_in_thread(lambda: os.close(fd))

    async def receive(self, max_bytes: int) -> bytes:
        if self._fd < 0:
            raise anyio.ClosedResourceError
        if max_bytes < 1:
            raise ArgumentValueError(f"max_bytes must be at least 1, not {max_bytes}")
        await anyio.lowlevel.checkpoint()
        wanted = min(max_bytes, self._end - self._position)
        if wanted <= 0:
            return b""
        block = self._held(wanted) or self._cached(wanted)
        if block is None:
            with mapped_errors("reading", f"{self._place.shown}, offset {self._position:,}"):
                self._ahead = await self._disk.in_thread(self._read, self._position, wanted)
            block = self._held(wanted)
        if not block:
            raise ObjectChangedError(
                f"{self._place.shown}: the file was truncated from {self.info.size:,} to {self._position:,} bytes "
                "while it was being read; open it again"
            )
        self._position += len(block)
        return block

    def _held(self, wanted: int) -> bytes | None:
        """Return bytes of the blocks read ahead, or `None` if no block was read ahead."""
        if not self._ahead:
            return None
        block = self._ahead[0]  # empty if the file has been truncated
        begin, end = self._taken, self._taken + wanted
        if end < len(block):
            self._taken = end
            return block[begin:end]
        self._taken = 0
        self._ahead.popleft()
        return block[begin:] if begin else block

    def _cached(self, wanted: int) -> bytes | None:
        """Return bytes from the page cache without waiting, or `None` if it lacks them or cannot be queried."""
        if self._in_memory and wanted <= _MOST_FROM_MEMORY:
            with mapped_errors("reading", f"{self._place.shown}, offset {self._position:,}"):
                return self._read_whole(self._position, wanted) or None
        if self._hops:
            self._hops -= self._hops > 0
            return None
        if wanted > _MOST_ON_LOOP:
            return None
        with memoryview(self._disk.buffer(_MOST_ON_LOOP)) as whole, whole[:wanted] as view:
            try:
                size = self._disk.system.preadv(self._fd, [view], self._position, _NOWAIT)
            except BlockingIOError:
                self._hops = _HOPS_AFTER_MISS
                return None
            except OSError:
                # The read in a thread will raise this error again.
                self._hops = -1
                return None
            if size < wanted:
                self._hops = _HOPS_AFTER_MISS
            self._blocks = 1
            return bytes(view[:size]) or None

    def _open(self) -> os.stat_result:
        self._fd = self._opened()
        status: os.stat_result = self._disk.system.fstat(self._fd)
        self._in_memory = self._disk.lives_in_memory(status.st_dev)
        if not (_NOWAIT and tells_what_is_cached(self._fd, self._disk.system)):
            self._hops = -1
        return status

    def _opened(self) -> int:
        return open_object(self._place.path, system=self._disk.system)

    def _closes_at_once(self, fd: int) -> bool:
        """Return whether closing the file never waits.

        Closing the last descriptor of a removed file frees its blocks. On a filesystem that does not report its cached
        bytes (FUSE, NFS), closing may have to notify another process or machine.
        """
        try:
            return (self._in_memory or self._hops >= 0) and self._disk.system.fstat(fd).st_nlink > 0
        except OSError:
            return False

    def _read(self, position: int, wanted: int) -> deque[bytes]:
        """Read ``wanted`` bytes, and more blocks of this size if it is worth reading them ahead. Blocks."""
        blocks: deque[bytes] = deque()
        if wanted < _SMALL:
            self._header = wanted
            block = self._read_whole(position, wanted)
            return deque([block] if block else [])
        most = min(self._end, position + wanted * max(1, min(self._blocks, _MOST_AHEAD // wanted)))
        self._blocks = min(self._blocks * 2, 64)
        while position < most:
            size = min(wanted, most - position)
            block = self._read_whole(position, size)
            if block:
                blocks.append(block)
            if len(block) < size:
                break
            position += size
        if wanted >= _MOST_ON_LOOP and self._header and most == position < self._end:
            # After the body of a large frame, the caller reads the next header. Read it now, to save a thread hop.
            blocks.append(self._read_whole(position, min(self._header, self._end - position)))
        return blocks

    def _read_whole(self, position: int, size: int) -> bytes:
        """Read until the block is complete, because one call returns at most 2 GiB on Linux, or less after a signal."""
        return read_at(self._fd, size, position, self._disk.system)

    def _close(self) -> None:
        self._ahead.clear()
        if self._fd >= 0:
            fd, self._fd = self._fd, -1
            os.close(fd)


def check_regular(status: os.stat_result, shown: str) -> None:
    """Raise an error if a path is not a regular file."""
    if stat.S_ISDIR(status.st_mode):
        raise ObjectNotFoundError(f"{shown} is a folder, not an object")
    if not stat.S_ISREG(status.st_mode):
        raise StorageError(f"{shown} is not a regular file but a pipe, a device or a socket")
