"""`FileStorage`: objects are files below a folder, reached through aiofiles in the threads of one executor.

An object is written to ``.<name>.<random>.partial`` beside its target, synced, and renamed onto it: readers see the
old file or the new one. With ``exclusive`` it is linked instead, which fails where a file is. Then the folder is
synced, so that the name, too, survives a crash.
"""

from __future__ import annotations

import logging
import os
import secrets
import stat
from collections.abc import AsyncIterator, Iterator, Sequence
from concurrent.futures import Executor
from contextlib import asynccontextmanager, contextmanager, suppress
from datetime import UTC, datetime
from typing import Any

import aiofiles
import aiofiles.os
import anyio

from asyncrec.errors import (
    ArgumentValueError,
    IntegrityError,
    ObjectChangedError,
    ObjectExistsError,
    ObjectNotFoundError,
    StorageError,
    StoragePermissionError,
)
from asyncrec.storage import Buffer, ByteSink, ByteSource, ObjectInfo, Storage, check_key, local_path
from asyncrec_aiofiles.settled import settled

__all__ = ["FileStorage"]

logger = logging.getLogger("asyncrec.storage")


class FileStorage(Storage):
    """See `asyncrec_aiofiles.open_files`, which makes it; ``executor`` stays the caller's to shut down."""

    def __init__(self, url: str, *, executor: Executor, chunk_size: int = 1 << 20) -> None:
        self.root = url
        self._folder = os.path.abspath(local_path(url))
        self._chunk_size = chunk_size
        self._executor = executor

    def __repr__(self) -> str:
        return f"FileStorage({self.root!r})"

    @asynccontextmanager
    async def open_sink(self, key: str, *, exclusive: bool = False) -> AsyncIterator[ByteSink]:
        path = self._path(key)
        folder, name = os.path.split(path)
        draft = os.path.join(folder, f".{name}.{secrets.token_hex(4)}.partial")
        with self._mapped("create", key):
            if exclusive and await self._call(os.path.lexists, path):
                raise FileExistsError("it is there already")
            await self._call(_make_folder, folder)
            file = await settled(aiofiles.open(draft, "xb", executor=self._executor))
        sink = _FileSink(self, key, file, self._chunk_size)
        try:
            yield sink
            sink.check_whole()
            await anyio.lowlevel.checkpoint()
            with self._mapped("publish", key):
                # One coroutine, settled as a whole: a cancellation is too late, or early enough, never in between.
                status = await settled(self._publish(sink, draft, path, exclusive))
            sink.published = _info(key, status)
        finally:
            sink.closed = True
            if sink.published is None:
                await settled(self._discard(sink, draft))

    async def _publish(self, sink: _FileSink, draft: str, path: str, exclusive: bool) -> os.stat_result:
        await sink.file.flush()
        await self._call(os.fsync, sink.file.fileno())
        status: os.stat_result = await self._call(os.fstat, sink.file.fileno())
        if status.st_size != sink.sent:
            raise IntegrityError(f"{draft}: {status.st_size:,} bytes on disk, {sink.sent:,} were sent")
        await sink.file.close()
        if exclusive:
            await self._call(os.link, draft, path)
            await self._call(os.unlink, draft)
        else:
            await self._call(os.replace, draft, path)
        await self._call(_sync_folder, os.path.dirname(path))
        return status

    async def _discard(self, sink: _FileSink, draft: str) -> None:
        with suppress(OSError):
            await sink.file.close()  # writes what it holds, which may fail once more
        try:
            await self._call(_unlink, draft)
        except OSError as error:  # the caller hears of what went wrong first
            logger.warning("%s is left behind: %s", draft, error)

    @asynccontextmanager
    async def open_source(
        self, key: str, *, start: int = 0, end: int | None = None, etag: str | None = None
    ) -> AsyncIterator[ByteSource]:
        path = self._path(key)
        await anyio.lowlevel.checkpoint()
        with self._mapped("open", key):
            file = await settled(aiofiles.open(path, "rb", buffering=0, executor=self._executor))
        source = _FileSource(self, key, file, start)
        try:
            with self._mapped("open", key):
                # The file that is open stays the one it is, whatever is renamed onto its name.
                source.info = _info(key, await self._call(os.fstat, file.fileno()))
            if etag not in (None, source.info.etag):
                raise ObjectChangedError(f"{self.root}: {key} is not the file it was: open it again from the start")
            source.end = source.info.size if end is None else min(end, source.info.size)
            yield source
        finally:
            source.closed = True
            await settled(file.close())

    async def list_objects(self, prefix: str = "", *, start_after: str = "") -> AsyncIterator[ObjectInfo]:
        # What is still to be visited, the next one last; a folder's key ends in a slash, and the root's is "".
        pending: list[tuple[str, ObjectInfo | None]] = [("", None)]
        while pending:
            key, info = pending.pop()
            if info is not None:
                yield info
                continue
            with self._mapped("list", key):
                found = await self._call(_scan, os.path.join(self._folder, key), key, prefix, start_after)
            pending.extend(reversed(found))

    async def head(self, key: str) -> ObjectInfo:
        with self._mapped("look at", key):
            return _info(key, await self._call(os.stat, self._path(key)))

    async def delete(self, key: str) -> None:
        with self._mapped("delete", key):
            await self._call(_unlink, self._path(key))

    def _path(self, key: str) -> str:
        check_key(key)
        parts = key.split("/")
        if "" in parts or _is_partial(parts[-1]):
            raise ArgumentValueError(f"{key!r} cannot be a file's: an empty segment, or the name of an unfinished file")
        return os.path.join(self._folder, *parts)

    async def _call(self, function: Any, *args: Any) -> Any:
        """``function(*args)`` in a thread of the executor, to its end, unless cancelled before it began."""
        await anyio.lowlevel.checkpoint()
        return await settled(aiofiles.os.wrap(function)(*args, executor=self._executor))

    @contextmanager
    def _mapped(self, operation: str, key: str) -> Iterator[None]:
        """Make the system's errors those of asyncrec."""
        try:
            yield
        except StorageError:
            raise
        except OSError as error:
            absent: tuple[type[OSError], ...] = (FileNotFoundError,)
            if operation in ("open", "look at"):
                absent += (NotADirectoryError, IsADirectoryError)  # a file where a folder should be, or a folder
            kind: type[StorageError] = StorageError
            if isinstance(error, FileExistsError):
                kind = ObjectExistsError
            elif isinstance(error, absent):
                kind = ObjectNotFoundError
            elif isinstance(error, PermissionError):
                kind = StoragePermissionError
            raise kind(f"{self.root}: cannot {operation} {key}: {error.strerror or error}") from error


class _FileSink(ByteSink):
    def __init__(self, storage: FileStorage, key: str, file: Any, chunk_size: int) -> None:
        self.chunk_size = chunk_size
        self.file = file
        self.sent = 0
        self.closed = False
        self._storage, self._key = storage, key
        self._sending = False

    async def send(self, buffers: Sequence[Buffer]) -> None:
        if self.closed:
            raise anyio.ClosedResourceError
        self.check_whole()
        self._sending = True
        with self._storage._mapped("write", self._key):
            await anyio.lowlevel.checkpoint()
            await settled(self.file.writelines(buffers))
        self._sending = False
        self.sent += sum(map(len, buffers))

    async def flush(self, tail: Sequence[Buffer]) -> int:
        """To the system, no further: this plugin keeps no unfinished files, so there is nothing to recover."""
        if self.closed:
            raise anyio.ClosedResourceError
        with self._storage._mapped("flush", self._key):
            await anyio.lowlevel.checkpoint()
            await settled(self.file.flush())
        return 0

    def check_whole(self) -> None:
        if self._sending:
            raise StorageError(f"{self._storage.root}: {self._key}: a write failed; the file can only be abandoned")


class _FileSource(ByteSource):
    end: int

    def __init__(self, storage: FileStorage, key: str, file: Any, position: int) -> None:
        self.file = file
        self.closed = False
        self._storage, self._key, self._position = storage, key, position

    async def receive(self, max_bytes: int) -> bytes:
        if self.closed:
            raise anyio.ClosedResourceError
        size = min(max_bytes, self.end - self._position)
        if size <= 0:
            return b""
        with self._storage._mapped("read", self._key):
            # By offset: a read that was cancelled has not moved anything.
            block: bytes = await self._storage._call(os.pread, self.file.fileno(), size, self._position)
        if not block:
            raise ObjectChangedError(f"{self._storage.root}: {self._key} was cut short while it was read")
        self._position += len(block)
        return block


# In threads ----------------------------------------------------------------------------------------------------------


def _scan(path: str, base: str, prefix: str, start_after: str) -> list[tuple[str, ObjectInfo | None]]:
    """What matters in one folder, in the order of the whole keys: a folder sorts as its name with the slash."""
    found: list[tuple[str, ObjectInfo | None]] = []
    first = os.fsencode(start_after)
    try:
        with os.scandir(path) as entries:
            for entry in entries:
                key = base + entry.name
                if entry.is_dir(follow_symlinks=False):
                    key += "/"
                    all_before = os.fsencode(key) < first and not start_after.startswith(key)
                    if not all_before and (key.startswith(prefix) or prefix.startswith(key)):
                        found.append((key, None))
                elif key.startswith(prefix) and os.fsencode(key) > first and not _is_partial(entry.name):
                    try:
                        found.append((key, _info(key, entry.stat())))
                    except FileNotFoundError:
                        continue  # deleted since, or neither file nor folder
    except (FileNotFoundError, NotADirectoryError):
        return []
    return sorted(found, key=lambda item: os.fsencode(item[0]))


def _info(key: str, status: os.stat_result) -> ObjectInfo:
    if not stat.S_ISREG(status.st_mode):
        raise FileNotFoundError(f"{key} is no file")
    etag = f"{status.st_ino:x}-{status.st_size:x}-{status.st_mtime_ns:x}"
    return ObjectInfo(key, status.st_size, etag, None, datetime.fromtimestamp(status.st_mtime, UTC))


def _is_partial(name: str) -> bool:
    return name.startswith(".") and name.endswith(".partial")


def _unlink(path: str) -> None:
    with suppress(FileNotFoundError, NotADirectoryError, IsADirectoryError):  # there is no such object
        os.unlink(path)


def _make_folder(path: str) -> None:
    """With its parents, each durable in its own parent: a file is no safer than the names that lead to it."""
    if not os.path.isdir(path):
        parent = os.path.dirname(path)
        _make_folder(parent)
        with suppress(FileExistsError):
            os.mkdir(path)
        _sync_folder(parent)


def _sync_folder(path: str) -> None:
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
