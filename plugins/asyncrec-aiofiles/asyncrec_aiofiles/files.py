"""`Files` is a folder accessed through aiofiles. The module's functions run in its threads."""

from __future__ import annotations

import math
import os
import stat
from collections.abc import Awaitable, Iterator
from concurrent.futures import Executor
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from typing import Any, TypeVar

import aiofiles
import aiofiles.os
import anyio

from asyncrec.errors import (
    ArgumentValueError,
    ObjectExistsError,
    ObjectNotFoundError,
    StorageError,
    StoragePermissionError,
)
from asyncrec.storage import ObjectInfo, check_key, local_path, sheltered

T = TypeVar("T")


async def settled(call: Awaitable[T]) -> T:
    """Return the result of ``call``, which is never cancelled. A cancellation is raised at the next checkpoint instead.

    aiofiles runs each call in a thread, which cannot be cancelled. If an ordinary `await` were cancelled, it would
    return while the write continued. A caller could then close or unlink the file during the write, or reuse the
    buffers and corrupt the written data.

    If the call fails, the cancellation is raised immediately. If the call may be cancelled before it begins, place a
    checkpoint before it.
    """
    return await sheltered(call, limit=math.inf)


class Files:
    """The folder at a URL, accessed through the threads of ``executor``."""

    def __init__(self, url: str, executor: Executor) -> None:
        self.root = url
        self.folder = os.path.abspath(local_path(url))
        self._executor = executor

    def path_of(self, key: str) -> str:
        """Return the path of the file for ``key``.

        Raises:
            ValueError: the key is not usable as a file name.
        """
        check_key(key)
        parts = key.split("/")
        if "" in parts or is_partial(parts[-1]):
            raise ArgumentValueError(
                f"the key {key!r} cannot be a file name: it has an empty segment, or the form of an unfinished "
                "file's name"
            )
        return os.path.join(self.folder, *parts)

    async def call(self, function: Any, *args: Any) -> Any:
        """Call ``function(*args)`` in a thread of the executor. The call can be cancelled only before it begins."""
        await anyio.lowlevel.checkpoint()
        return await settled(aiofiles.os.wrap(function)(*args, executor=self._executor))

    async def open(self, path: str, mode: str, **options: Any) -> Any:
        """Open an aiofiles file. The caller must pass a checkpoint first."""
        return await settled(aiofiles.open(path, mode, executor=self._executor, **options))  # type: ignore[call-overload]

    @contextmanager
    def mapped(self, operation: str, key: str) -> Iterator[None]:
        """Convert operating system errors raised in the block to asyncrec's errors."""
        try:
            yield
        except StorageError:
            raise
        except OSError as error:
            absent: tuple[type[OSError], ...] = (FileNotFoundError,)
            if operation in ("open", "look at"):
                absent += (NotADirectoryError, IsADirectoryError)  # a file in place of a folder, or a folder
            kind: type[StorageError] = StorageError
            if isinstance(error, FileExistsError):
                kind = ObjectExistsError
            elif isinstance(error, absent):
                kind = ObjectNotFoundError
            elif isinstance(error, PermissionError):
                kind = StoragePermissionError
            raise kind(f"{self.root}: cannot {operation} {key}: {error.strerror or error}") from error


# Run in threads ------------------------------------------------------------------------------------------------------


def scan(path: str, base: str, prefix: str, start_after: str) -> list[tuple[str, ObjectInfo | None]]:
    """Return the matching entries of one folder, sorted by key. The keys of folders end in a slash."""
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
                elif key.startswith(prefix) and os.fsencode(key) > first and not is_partial(entry.name):
                    try:
                        found.append((key, info_of(key, entry.stat())))
                    except FileNotFoundError:
                        continue  # deleted since the scan, or not a regular file
    except (FileNotFoundError, NotADirectoryError):
        return []
    return sorted(found, key=lambda item: os.fsencode(item[0]))


def info_of(key: str, status: os.stat_result) -> ObjectInfo:
    if not stat.S_ISREG(status.st_mode):
        raise FileNotFoundError(f"{key} is not a file")
    etag = f"{status.st_ino:x}-{status.st_size:x}-{status.st_mtime_ns:x}"
    return ObjectInfo(key, status.st_size, etag, None, datetime.fromtimestamp(status.st_mtime, UTC))


def is_partial(name: str) -> bool:
    return name.startswith(".") and name.endswith(".partial")


def unlink(path: str) -> None:
    with suppress(FileNotFoundError, NotADirectoryError, IsADirectoryError):  # the object does not exist
        os.unlink(path)


def make_folder(path: str) -> None:
    """Create a folder and its parents. Sync each parent, because a file is only as durable as its folders' names."""
    if not os.path.isdir(path):
        parent = os.path.dirname(path)
        make_folder(parent)
        with suppress(FileExistsError):
            os.mkdir(path)
        sync_folder(parent)


def sync_folder(path: str) -> None:
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY)  # noqa: TID251  # only a folder can be opened
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
