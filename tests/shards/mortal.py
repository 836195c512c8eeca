"""Simulate a killed process, as its disk and its store see it: none of its later requests have any effect.

Its objects stay as they were, and its locks are released, as the operating system would. (`test_torture` kills real
processes.)
"""

from __future__ import annotations

import errno
import os
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import asyncrec
from asyncrec.errors import StorageError, StoragePermissionError
from asyncrec.storage import Buffer, ObjectInfo, Storage
from asyncrec.storage._local.storage import LocalStorage
from asyncrec.testing import FlakyStorage

_CHANGES = {
    "fchmod", "fsync", "ftruncate", "link", "mkdir", "pwrite", "replace", "rmdir", "unlink", "write", "writev",
}  # fmt: skip


class Killed(Exception):
    """Raised to end the body of a writer whose process is killed."""


class Process:
    """A simulated process that can reach a storage only until it is killed.

    Args:
        at: kill the process when it creates a small object with this text in its key; call `kill` for other moments.
        done: whether the object is created before the kill.
        after: kill the process after this many changes to its disk or requests to its store.

    Attributes:
        storage: the storage that the process must use instead of the given one.
        late: the key and the content of the object at which the process was killed; not set for a disk.
    """

    def __init__(
        self, storage: Storage, at: str | None = None, *, done: bool = False, after: int | None = None
    ) -> None:
        self.dead = False
        self.late: tuple[str, bytes] | None = None
        self.at = at
        self.done = done
        self.after = after
        self.storage: Storage = (
            LocalStorage(storage.folder, chunk_size=storage.chunk_size, system=_System(self))
            if isinstance(storage, LocalStorage)
            else _Store(self, storage)
        )

    def kill(self) -> None:
        self.dead = True

    def step(self) -> None:
        """Count one more step, and kill the process if it was the last one allowed."""
        if self.after is not None:
            self.after -= 1
            self.dead = self.dead or self.after < 0

    def is_killed_at(self, key: str) -> bool:
        return not self.dead and self.at is not None and self.at in key


class _System:
    """A replacement for `os` whose changing functions fail once the process is dead."""

    def __init__(self, process: Process) -> None:
        self._process = process

    def __getattr__(self, name: str) -> Any:
        return partial(self._change, name) if name in _CHANGES else getattr(os, name)

    def _change(self, name: str, *args: Any, **options: Any) -> Any:
        self._process.step()
        killed = name in ("link", "replace") and self._process.is_killed_at(str(args[1]))
        if killed and self._process.done:
            getattr(os, name)(*args, **options)
        if killed:
            self._process.kill()
        if self._process.dead:
            raise OSError(errno.EIO, "the process was killed")
        return getattr(os, name)(*args, **options)


class _Store(FlakyStorage):
    """A store whose requests fail once the process is dead."""

    def __init__(self, process: Process, storage: Storage) -> None:
        super().__init__(storage)
        self._process = process

    async def put(self, key: str, data: Buffer, *, exclusive: bool = False) -> ObjectInfo:
        if self._process.is_killed_at(key):
            if self._process.done:
                await self._storage.put(key, data, exclusive=exclusive)
            self._process.late = key, bytes(data)
            self._process.kill()
        return await self.perform("put", key, partial(self._storage.put, key, data, exclusive=exclusive))

    async def perform(self, operation, key, call, *, short=None):  # type: ignore[no-untyped-def]  # as inherited
        self._process.step()
        if self._process.dead:
            raise StoragePermissionError("the process was killed")  # an error that is never retried
        return await call()


@asynccontextmanager
async def killed(storage: Storage, name: str = "pages", **options: Any) -> AsyncIterator[asyncrec.ShardedWriter]:
    """Open a writer whose process is killed at the end of the body."""
    process = Process(storage)
    with pytest.raises((Killed, StorageError)):
        async with asyncrec.open_sharded_writer(name, storage=process.storage, on_error="discard", **options) as writer:
            yield writer
            process.kill()
            raise Killed


async def dies(storage: Storage, name: str = "pages", **options: Any) -> None:
    """Open a writer, and kill its process before it has written anything."""
    async with killed(storage, name, **options):
        pass


@contextmanager
def elsewhere(monkeypatch: pytest.MonkeyPatch, folder: Path) -> Iterator[None]:
    """Run the body as if on another machine, about which this machine knows nothing."""
    folder.mkdir(exist_ok=True)
    with monkeypatch.context() as patches:
        patches.setenv("XDG_RUNTIME_DIR", str(folder))
        patches.setattr(socket, "gethostname", lambda: "elsewhere")
        yield
