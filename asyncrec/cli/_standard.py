"""`StandardStreams` is the storage for the path ``-``, which reads stdin and writes stdout.

Tools may read at any position, and more than once. A pipe cannot do this, so stdin is copied to a temporary file.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import IO

from asyncrec.errors import ObjectNotFoundError, StorageError, UsageError
from asyncrec.storage import Buffer, ByteSink, ByteSource, ObjectInfo, Storage, in_thread

STANDARD = "-"
"""The path that means stdin or stdout."""

_BLOCK = 1 << 20


def standard_output(target: str) -> bool:
    """Return whether ``target`` is ``-``, which means stdout.

    Raises:
        UsageError: ``target`` is stdout, but stdout is a terminal.
    """
    if target != STANDARD:
        return False
    if sys.stdout.isatty():
        raise UsageError(
            "records can contain control characters for the terminal; redirect the output to a file or a program"
        )
    return True


class StandardStreams(Storage):
    """A storage with a single object ``-``, which is read from stdin. All objects are written to stdout."""

    root = STANDARD

    def __init__(self) -> None:
        self._file: IO[bytes] | None = None
        self._size = 0

    @asynccontextmanager
    async def open_sink(self, key: str, *, exclusive: bool = False) -> AsyncIterator[ByteSink]:
        sink = _Output()
        yield sink
        await in_thread(sys.stdout.buffer.flush)
        sink.published = ObjectInfo(key, sink.size, "1", None, datetime.now(UTC))

    @asynccontextmanager
    async def open_source(
        self, key: str, *, start: int = 0, end: int | None = None, info: ObjectInfo | None = None
    ) -> AsyncIterator[ByteSource]:
        info = await self.head(key)
        assert self._file is not None, "taken in"
        yield _Input(self._file.fileno(), info, start, info.size if end is None else min(end, info.size))

    async def list_objects(self, prefix: str = "", *, start_after: str = "") -> AsyncIterator[ObjectInfo]:
        return
        yield

    async def head(self, key: str) -> ObjectInfo:
        if key != STANDARD:
            raise ObjectNotFoundError(f"{key}: not found; standard input holds no other objects")
        if self._file is None:
            self._file = await in_thread(self._take_in)
        return ObjectInfo(key, self._size, "1", None, datetime.now(UTC))

    async def delete(self, key: str) -> None:
        raise StorageError("standard input cannot be deleted")

    def _take_in(self) -> IO[bytes]:
        if sys.stdin is None or sys.stdin.isatty():
            raise UsageError("'-' means standard input, but that is a terminal; pass a file, or use a pipe")
        file = tempfile.TemporaryFile(prefix="asyncrec-stdin-")  # noqa: SIM115  # it lives as long as the storage
        while block := sys.stdin.buffer.read(_BLOCK):
            file.write(block)
            self._size += len(block)
        file.flush()
        return file


class _Input(ByteSource):
    def __init__(self, descriptor: int, info: ObjectInfo, start: int, end: int) -> None:
        self.info = info
        self._descriptor = descriptor
        self._position = start
        self._end = end

    async def receive(self, max_bytes: int) -> bytes:
        size = max(0, min(max_bytes, _BLOCK, self._end - self._position))
        block = await in_thread(os.pread, self._descriptor, size, self._position)
        self._position += len(block)
        return block


class _Output(ByteSink):
    chunk_size = 64 << 10

    def __init__(self) -> None:
        self.size = 0

    async def send(self, buffers: Sequence[Buffer]) -> None:
        await in_thread(self._write, buffers)

    async def flush(self, tail: Sequence[Buffer]) -> int:
        await in_thread(sys.stdout.buffer.flush)
        return 0

    def _write(self, buffers: Sequence[Buffer]) -> None:
        try:
            for buffer in buffers:
                sys.stdout.buffer.write(buffer)
                self.size += len(buffer)
        except BrokenPipeError:
            raise
        except OSError as error:
            raise StorageError(f"standard output: {error.strerror}") from error
