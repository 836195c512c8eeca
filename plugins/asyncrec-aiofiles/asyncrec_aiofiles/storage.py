"""`FileStorage` is a storage whose objects are files, accessed through aiofiles in an executor's threads.

An object is written to ``.<name>.<random>.partial`` beside its target, synced, and renamed, so readers see either the
old file or the new one. With ``exclusive``, the file is linked instead, which fails if the target exists. Then the
folder is synced, so that the name also survives a crash.
"""

from __future__ import annotations

import logging
import os
import secrets
from collections.abc import AsyncIterator, Sequence
from concurrent.futures import Executor
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from types import TracebackType
from typing import Any

import anyio

from asyncrec.errors import IntegrityError, ObjectChangedError
from asyncrec.storage import Buffer, ByteSink, ByteSource, ObjectInfo, SinkState, Storage

from .files import Files, info_of, make_folder, scan, settled, sync_folder, unlink

logger = logging.getLogger("asyncrec.storage")


class FileStorage(Storage):
    """A folder as a `Storage`, opened by `asyncrec_aiofiles.open_files`. The caller must shut down ``executor``."""

    def __init__(self, url: str, *, executor: Executor, chunk_size: int = 1 << 20) -> None:
        self.root = url
        self._files = Files(url, executor)
        self._chunk_size = chunk_size

    def __repr__(self) -> str:
        return f"FileStorage({self.root!r})"

    def open_sink(self, key: str, *, exclusive: bool = False) -> AbstractAsyncContextManager[ByteSink]:
        return _FileSink(self._files, key, exclusive=exclusive, chunk_size=self._chunk_size)

    @asynccontextmanager
    async def open_source(
        self, key: str, *, start: int = 0, end: int | None = None, info: ObjectInfo | None = None
    ) -> AsyncIterator[ByteSource]:
        path = self._files.path_of(key)
        await anyio.lowlevel.checkpoint()
        with self._files.mapped("open", key):
            file = await self._files.open(path, "rb", buffering=0)
        source = _FileSource(self._files, key, file, start)
        try:
            with self._files.mapped("open", key):
                # Even if another file is renamed to this name, the descriptor still refers to the open file.
                source.info = info_of(key, await self._files.call(os.fstat, file.fileno()))
            if info is not None and info.etag != source.info.etag:
                raise ObjectChangedError(
                    f"{self.root}: {key} was replaced since it was opened; open it again and read from the start"
                )
            source.end = source.info.size if end is None else min(end, source.info.size)
            yield source
        finally:
            source.closed = True
            await settled(file.close())

    async def list_objects(self, prefix: str = "", *, start_after: str = "") -> AsyncIterator[ObjectInfo]:
        # A stack of entries to visit. A folder's key ends with a slash, and the root's key is "".
        pending: list[tuple[str, ObjectInfo | None]] = [("", None)]
        while pending:
            key, info = pending.pop()
            if info is not None:
                yield info
                continue
            folder = os.path.join(self._files.folder, key)
            with self._files.mapped("list", key):
                found = await self._files.call(scan, folder, key, prefix, start_after)
            pending.extend(reversed(found))

    async def head(self, key: str) -> ObjectInfo:
        with self._files.mapped("look at", key):
            return info_of(key, await self._files.call(os.stat, self._files.path_of(key)))

    async def delete(self, key: str) -> None:
        with self._files.mapped("delete", key):
            await self._files.call(unlink, self._files.path_of(key))


class _FileSink(ByteSink):
    def __init__(self, files: Files, key: str, *, exclusive: bool, chunk_size: int) -> None:
        self.chunk_size = chunk_size
        self._files = files
        self._key = key
        self._exclusive = exclusive
        self._path = files.path_of(key)
        folder, name = os.path.split(self._path)
        self._draft = os.path.join(folder, f".{name}.{secrets.token_hex(4)}.partial")
        self._sent = 0
        self._state = SinkState(f"{files.root}: {key}")

    async def __aenter__(self) -> ByteSink:
        with self._state.entering(), self._files.mapped("create", self._key):
            if self._exclusive and await self._files.call(os.path.lexists, self._path):
                raise FileExistsError("the file already exists")
            await self._files.call(make_folder, os.path.dirname(self._path))
            self._file = await self._files.open(self._draft, "xb")
        return self

    async def send(self, buffers: Sequence[Buffer]) -> None:
        with self._state.working(), self._files.mapped("write", self._key):
            await anyio.lowlevel.checkpoint()
            await settled(self._file.writelines(buffers))
            self._sent += sum(map(len, buffers))

    async def flush(self, tail: Sequence[Buffer]) -> int:
        """Pass the buffered bytes to the system. Return 0, because no unfinished file is kept for recovery."""
        with self._state.working(), self._files.mapped("flush", self._key):
            await anyio.lowlevel.checkpoint()
            await settled(self._file.flush())
        return 0

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        try:
            if self._state.leave(exc):
                await anyio.lowlevel.checkpoint()
                with self._files.mapped("publish", self._key):
                    # Settle the whole publication, so that a cancellation takes effect only before or after it.
                    self.published = await settled(self._publish())
        finally:
            if self.published is None:
                await settled(self._discard())

    async def _publish(self) -> ObjectInfo:
        call = self._files.call
        await self._file.flush()
        await call(os.fsync, self._file.fileno())
        status: os.stat_result = await call(os.fstat, self._file.fileno())
        if status.st_size != self._sent:
            raise IntegrityError(
                f"{self._draft}: {self._sent:,} bytes were written, but the file has {status.st_size:,}"
            )
        await self._file.close()
        if self._exclusive:
            await call(os.link, self._draft, self._path)
            await call(os.unlink, self._draft)
        else:
            await call(os.replace, self._draft, self._path)
        await call(sync_folder, os.path.dirname(self._path))
        return info_of(self._key, status)

    async def _discard(self) -> None:
        with suppress(OSError):
            await self._file.close()  # this flushes the buffer, which may fail again
        try:
            await self._files.call(unlink, self._draft)
        except OSError as error:  # log it, because the caller raises the first error
            logger.warning(
                "the unfinished file %s could not be removed: %s", self._draft, error, extra={"path": self._draft}
            )


class _FileSource(ByteSource):
    end: int

    def __init__(self, files: Files, key: str, file: Any, position: int) -> None:
        self.file = file
        self.closed = False
        self._files, self._key, self._position = files, key, position

    async def receive(self, max_bytes: int) -> bytes:
        if self.closed:
            raise anyio.ClosedResourceError
        size = min(max_bytes, self.end - self._position)
        if size <= 0:
            return b""
        with self._files.mapped("read", self._key):
            # Read at an explicit offset, so that a cancelled read does not move the position.
            block: bytes = await self._files.call(os.pread, self.file.fileno(), size, self._position)
        if not block:
            raise ObjectChangedError(
                f"{self._files.root}: {self._key} was truncated while it was being read; open it again"
            )
        self._position += len(block)
        return block
