"""`S3Storage`: a bucket, or a prefix in one; opened by entering it.

It owns the tasks that upload parts, so sinks may be opened and closed in any order, by any task. It belongs to the
process and the event loop that opened it: used from another, as after a fork, it raises instead of hanging.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from types import TracebackType
from typing import Any, NoReturn

import anyio
import anyio.lowlevel

from asyncrec.errors import ArgumentTypeError, ArgumentValueError
from asyncrec.storage import ByteSink, ByteSource, ObjectInfo, Storage, TaskScope, check_key

from .bucket import Bucket, bare
from .buffers import Buffers
from .client import connect
from .exclusion import excludes_parts
from .listing import Listing
from .options import Options
from .parts import MIB
from .sink import S3Sink
from .source import S3Source

__all__ = ["S3Storage", "Slots"]


class Slots:
    """Room for parts on their way, in pieces of one chunk, shared by all sinks of a storage.

    A part that has grown takes as many as it is chunks long, and all of them where it is longer.
    """

    def __init__(self, count: int, chunk_size: int) -> None:
        self._count = count
        self._chunk = chunk_size
        self._free = anyio.Semaphore(count)
        # One takes at a time: two that each held half would wait for each other.
        self._turn = anyio.Lock()

    @property
    def waiting(self) -> bool:
        """Whether somebody waits for room."""
        return self._turn.statistics().locked

    def of(self, size: int) -> int:
        """Count the slots that a part of ``size`` bytes takes."""
        return min(self._count, -(-size // self._chunk))

    async def acquire(self, slots: int) -> None:
        """Wait for so many slots; cancelled, take none."""
        async with self._turn:
            taken = 0
            try:
                while taken < slots:
                    await self._free.acquire()
                    taken += 1
            except BaseException:
                self.release(taken)
                raise

    def release(self, slots: int) -> None:
        for _ in range(slots):
            self._free.release()


class S3Storage(Storage):
    """A bucket, or a prefix in one, as a `Storage`. Attributes beyond `Storage` are for its sinks and sources."""

    flush_level = "buffered"
    # Half of it is asked for at a time: a request of 8 MiB is on its way while the last one's bytes are worked on.
    read_ahead = 16 * MIB

    def __init__(self, options: Options) -> None:
        self.options = options
        self.root = options.root
        self.bucket: Bucket
        self.slots = Slots(options.max_concurrency, options.chunk_size)
        self.buffers = Buffers(options.chunk_size)
        # For copies and checksums; own ones, so that a user's blocking work cannot starve uploads.
        self.threads = anyio.CapacityLimiter(options.max_concurrency)
        self.tasks = TaskScope()
        self._stack = AsyncExitStack()
        self._owner: tuple[int, object] | None = None
        self._closed = False

    def __repr__(self) -> str:
        return f"S3Storage({self.root!r})"

    def __reduce__(self) -> NoReturn:
        raise ArgumentTypeError(
            f"{self!r} belongs to this process: open one in each, with open_storage and its options"
        )

    async def __aenter__(self) -> S3Storage:
        if self._owner is not None:
            raise RuntimeError(f"{self!r} is entered once")
        self._owner = (os.getpid(), anyio.lowlevel.current_token())
        async with AsyncExitStack() as stack:
            connection = await stack.enter_async_context(connect(self.options.client()))
            self.bucket = Bucket(connection, self.options)
            await stack.enter_async_context(self.tasks)
            self._stack = stack.pop_all()
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._closed = True
        await self._stack.__aexit__(exc_type, exc, traceback)

    def check(self) -> None:
        """Raise unless it can be used here and now.

        Raises:
            RuntimeError: opened in another process or on another event loop.
            anyio.ClosedResourceError: not open.
        """
        if self._owner is None or self._closed:
            raise anyio.ClosedResourceError(f"{self!r} is not open")
        if self._owner[0] != os.getpid():
            raise RuntimeError(
                f"{self!r} was opened in another process: a fork cannot use its connections. Open another"
            )
        if self._owner[1] != anyio.lowlevel.current_token():
            raise RuntimeError(f"{self!r} was opened on another event loop: open one on each")

    async def settle(self, job: Callable[[], Awaitable[None]]) -> None:
        """Run ``job`` to its end in a task of this storage, whatever happens to the caller, and only then go on.

        ``job`` keeps its own errors and limits its own time. An interruption of the caller is raised afterwards.
        """
        done = anyio.Event()

        async def run() -> None:
            try:
                await job()
            finally:
                done.set()

        self.tasks.start_soon(run)
        interruption: BaseException | None = None
        while not done.is_set():
            try:
                with anyio.CancelScope(shield=True):
                    await done.wait()
            except BaseException as error:  # asyncio's own cancellation, which knows no shield
                interruption = error
        if interruption is not None:
            raise interruption

    # The contract ------------------------------------------------------------------------------------------------

    def open_sink(self, key: str, *, exclusive: bool = False) -> AbstractAsyncContextManager[ByteSink]:
        return S3Sink(self, check_key(key), exclusive=exclusive)

    def open_source(
        self, key: str, *, start: int = 0, end: int | None = None, etag: str | None = None
    ) -> AbstractAsyncContextManager[ByteSource]:
        if start < 0 or (end is not None and end < 0):
            raise ArgumentValueError(f"start and end count from the beginning: [{start}, {end})")
        return S3Source(self, check_key(key), start, end, etag)

    def list_objects(self, prefix: str = "", *, start_after: str = "") -> AsyncIterator[ObjectInfo]:
        self.check()
        root = self.options.prefix
        listing = self.bucket.objects(root + prefix, root + start_after if start_after else "")
        return _Infos(self, root + prefix, listing, _object)

    async def head(self, key: str) -> ObjectInfo:
        self.check()
        return (await self.bucket.head(self.options.prefix + check_key(key), shown=key)).info

    async def delete(self, key: str) -> None:
        self.check()
        await self.bucket.delete(self.options.prefix + check_key(key))

    # UnfinishedUploads -------------------------------------------------------------------------------------------

    def list_unfinished(self, prefix: str = "") -> AsyncIterator[ObjectInfo]:
        """List the multipart uploads neither completed nor aborted; ``size`` is 0, for S3 does not say it here."""
        self.check()
        return _Infos(self, self.options.prefix + prefix, self.bucket.uploads(self.options.prefix + prefix), _upload)

    async def remove_unfinished(self, upload: ObjectInfo) -> None:
        self.check()
        await self.bucket.abort(self.options.prefix + check_key(upload.key), upload.etag)

    # ExclusiveParts ----------------------------------------------------------------------------------------------

    async def excludes_parts(self, key: str) -> bool:
        """Try, with eight requests, whether the store honours the condition of a multipart completion."""
        self.check()
        return await excludes_parts(self.bucket, self.options.prefix + check_key(key))


class _Infos:
    """The entries of a listing as `ObjectInfo`, with keys relative to the storage."""

    def __init__(
        self, storage: S3Storage, prefix: str, listing: Listing, info: Callable[[str, dict[str, Any]], ObjectInfo]
    ) -> None:
        self._storage = storage
        self._prefix = prefix
        self._listing = listing
        self._info = info

    def __aiter__(self) -> _Infos:
        return self

    async def __anext__(self) -> ObjectInfo:
        self._storage.check()
        async for entry in self._listing:
            # Stores made of folders take "a//" for "a/"; that is not what was asked for. And a "folder" made by a
            # console is an object whose key is the prefix itself.
            key = entry["Key"][len(self._storage.options.prefix) :]
            if key and entry["Key"].startswith(self._prefix):
                return self._info(key, entry)
        raise StopAsyncIteration


def _object(key: str, entry: dict[str, Any]) -> ObjectInfo:
    return ObjectInfo(key, int(entry["Size"]), bare(entry["ETag"]), None, entry["LastModified"])


def _upload(key: str, entry: dict[str, Any]) -> ObjectInfo:
    return ObjectInfo(key, 0, entry["UploadId"], None, entry["Initiated"])
