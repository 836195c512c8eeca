"""``mode="a"`` appends to a local file in place. Readers see the file grow.

This mode is for live TensorBoard event files, and is the only exception to "all or nothing". A crash leaves at most one
torn record or torn GZIP member at the end of the file, and a power cut may leave zeros there. This torn end is cut off
when the file is opened again, and when the context exits with an exception. Flushed records are kept. Damage anywhere
else is an error, and nothing is appended. (`asyncrec._records.torn_end` distinguishes a torn end from damage.)

Only one writer can append at a time, because it holds a lock on the file, which is released when its process ends
(`asyncrec.storage._local.lock`).
"""

from __future__ import annotations

import errno
import os
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from functools import partial

import anyio

from asyncrec._concurrency.tasks import acquire_in_thread, in_thread, surely_in_thread
from asyncrec._framing.compression import detect_compression
from asyncrec._framing.frames import HEADER_BYTES
from asyncrec._records.torn_end import whole_end, zeros_from
from asyncrec.errors import ArgumentValueError, ObjectNotFoundError, StorageError
from asyncrec.storage._base import Buffer, ByteSink, Storage
from asyncrec.storage._local.disk import Disk, read_at, write_at
from asyncrec.storage._local.lock import FileLock
from asyncrec.storage._local.opening import open_in_place
from asyncrec.storage._local.storage import LocalStorage, mapped_errors
from asyncrec.storage._local.unfinished import leads_to

# After an exception, the file is read once to cut off a torn end. The exit waits at most this long; otherwise, the torn
# end is cut off when the file is next opened.
_CLEAN_UP_SECONDS = 10


class _AppendSink(ByteSink):
    """A sink that appends to a local file."""

    chunk_size = 256 << 10

    def __init__(self, fd: int, end: int, name: str) -> None:
        self._fd = fd
        self._end = end
        self._name = name

    async def send(self, buffers: Sequence[Buffer]) -> None:
        await in_thread(self._write, buffers)
        self._end += sum(memoryview(buffer).nbytes for buffer in buffers)

    async def flush(self, tail: Sequence[Buffer]) -> int:
        await in_thread(self._write, tail)
        await in_thread(self.sync)
        return sum(memoryview(buffer).nbytes for buffer in tail)

    def _write(self, buffers: Sequence[Buffer]) -> None:
        with mapped_errors("append to", self._name):
            position = self._end
            for buffer in buffers:
                write_at(self._fd, buffer, position)
                position += memoryview(buffer).nbytes

    def sync(self) -> None:
        """Make the written bytes durable. Blocks."""
        with mapped_errors("sync", self._name):
            os.fsync(self._fd)
            if not leads_to(self._name, self._fd):
                raise ObjectNotFoundError(
                    f"{self._name}: the file was removed or renamed, together with its records; records since the "
                    "last flush are not safe"
                )


@asynccontextmanager
async def open_append_sink(storage: Storage, key: str, *, compression: str) -> AsyncIterator[ByteSink]:
    """Open a local file for appending, or create it.

    Raises:
        ValueError: the storage is not local, the file has a different compression, or the compression is ZLIB, because
            readers silently ignore all but the first ZLIB stream in a file.
        CorruptRecordError: the file is damaged before its end; repair it first.
        StorageError: another writer is appending to the file.
    """
    if not isinstance(storage, LocalStorage):
        raise ArgumentValueError(f"{storage.root}: only local files can be appended to; write a new shard instead")
    if compression == "ZLIB":
        raise ArgumentValueError(
            "a ZLIB file cannot be appended to, because readers stop after its first stream; use GZIP"
        )
    path = str(storage.path_of(key))
    lock, end = await acquire_in_thread(
        partial(_open, storage.disk, path, compression), lambda opened: opened[0].release()
    )
    sink = _AppendSink(lock.fd, end, path)
    try:
        yield sink
        await in_thread(sink.sync)
        sink.published = await storage.head(key)
    except BaseException:
        with anyio.CancelScope(shield=True, deadline=anyio.current_time() + _CLEAN_UP_SECONDS):
            await in_thread(_cut, lock.fd, path, compression)
        raise
    finally:
        # Closing a file after writing to it may block on a file server.
        await surely_in_thread(lock.release)


def _open(disk: Disk, path: str, compression: str) -> tuple[FileLock, int]:
    """Open and lock the file. Return the lock, and the offset of the next byte."""
    with mapped_errors("open", path):
        disk.make_folder(os.path.dirname(path))
        fd = open_in_place(path)
    try:
        lock = FileLock(fd, path)
    except StorageError as error:
        if error.errno != errno.EWOULDBLOCK:
            raise
        raise StorageError(f"{path}: another writer is appending to this file; close that writer first") from error
    try:
        with mapped_errors("open", path):
            # Without this, a power cut could remove a file that this process or another one has just created.
            disk.sync_folder(os.path.dirname(path))
        return lock, _cut(fd, path, compression)
    except BaseException:
        lock.release()
        raise


def _cut(fd: int, name: str, compression: str) -> int:
    """Cut off a torn end, and return the offset of the next byte."""
    with mapped_errors("read", name):
        size = os.fstat(fd).st_size
        head = read_at(fd, 64, 0)
        if zeros_from(fd, size) >= HEADER_BYTES and (found := detect_compression(head)) != compression:
            raise ArgumentValueError(f"{name} is {found or 'uncompressed'}; append to it with compression={found!r}")
        end, tail = whole_end(fd, size, name, compression)
        if end < size or tail:
            os.ftruncate(fd, end)
            write_at(fd, tail, end)
            os.fsync(fd)
        return end + len(tail)
