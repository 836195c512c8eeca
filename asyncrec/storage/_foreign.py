"""Use an object that has only ``open(path)`` and ``directory_check(path)`` as a `Storage`.

tensorboardX calls such an object a writer factory. ``open`` returns a file object with ``write(bytes)``, ``close()``
and, optionally, ``flush()`` and ``abort()`` or ``discard()``. Coroutine functions are awaited, and other functions run
in worker threads. Paths are passed to the factory exactly as the user wrote them, and its errors propagate unchanged.

On a clean exit, the file is closed. On an exception, the file is aborted or discarded if it supports that; otherwise it
is never closed, and whether the bytes already written are visible depends on the file object. This is the documented
exception to "all or nothing". Such a storage can only write, so reading, listing and deleting raise
`io.UnsupportedOperation`.
"""

from __future__ import annotations

import inspect
import io
import logging
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from datetime import UTC, datetime
from typing import Any, NoReturn, Protocol

import anyio

from asyncrec._concurrency.tasks import in_thread
from asyncrec.errors import StorageError
from asyncrec.storage._base import Buffer, ByteSink, ByteSource, ObjectInfo, Storage
from asyncrec.storage._sink_state import SinkState
from asyncrec.storage._url import join, redact

logger = logging.getLogger("asyncrec.storage")

# The chunk size is small, because the buffers of a chunk are joined on the loop (``write`` accepts one object).
_CHUNK_SIZE = 1 << 20
# Time limits in seconds for closing and aborting, which are shielded from cancellation.
_CLOSING = 60.0
_ABORTING = 20.0


class ForeignFactory(Protocol):
    """A simple factory that `asyncrec.storage.register_writer_factory` accepts in place of a `StorageFactory`."""

    def open(self, path: str, /) -> Any: ...
    def directory_check(self, path: str, /) -> Any: ...


async def call(func: Callable[..., Any], *args: Any) -> Any:
    """Return the result of ``func(*args)``. Await an async function; run any other function in a worker thread."""
    result = func(*args) if inspect.iscoroutinefunction(func) else await in_thread(func, *args)
    return await result if inspect.isawaitable(result) else result


class ForeignStorage(Storage):
    """A storage that writes with a `ForeignFactory`. It is its own context manager, with nothing to open or close."""

    def __init__(self, root: str, factory: ForeignFactory) -> None:
        self.root = redact(root)
        self._root = root
        self._factory = factory

    async def __aenter__(self) -> ForeignStorage:
        return self

    async def __aexit__(self, *error: object) -> None:
        return None

    def open_sink(self, key: str, *, exclusive: bool = False) -> AbstractAsyncContextManager[ByteSink]:
        if exclusive:
            self._refuse("cannot create a file exclusively", key)
        return _ForeignSink(self._factory, join(self._root, key), key)

    def open_source(
        self, key: str, *, start: int = 0, end: int | None = None, info: ObjectInfo | None = None
    ) -> AbstractAsyncContextManager[ByteSource]:
        self._refuse("cannot read", key)

    def list_objects(self, prefix: str = "", *, start_after: str = "") -> AsyncIterator[ObjectInfo]:
        self._refuse("cannot list", prefix)

    async def head(self, key: str) -> ObjectInfo:
        self._refuse("cannot look up a file", key)

    async def delete(self, key: str) -> None:
        self._refuse("cannot delete", key)

    def _refuse(self, what: str, key: str) -> NoReturn:
        raise io.UnsupportedOperation(
            f"{join(self.root, key)}: the factory registered for this prefix {what}, because it can only write; "
            "register a StorageFactory instead"
        )


class _ForeignSink(ByteSink):
    def __init__(self, factory: ForeignFactory, path: str, key: str) -> None:
        self.chunk_size = _CHUNK_SIZE
        self._factory = factory
        self._path = path
        self._key = key
        self._size = 0
        self._flushed = 0  # bytes of the next chunk, already written by a flush
        self._state = SinkState(redact(path))

    async def __aenter__(self) -> _ForeignSink:
        with self._state.entering():
            self._file = await call(self._factory.open, self._path)
        return self

    async def send(self, buffers: Sequence[Buffer]) -> None:
        with self._state.working():
            await self._write(buffers)
        self._flushed = 0

    async def flush(self, tail: Sequence[Buffer]) -> int:
        flush = getattr(self._file, "flush", None)
        if flush is None:
            return 0
        with self._state.working():
            await self._write(tail)
            self._flushed = sum(memoryview(buffer).nbytes for buffer in tail)
            await call(flush)
        return self._flushed

    async def __aexit__(self, exc_type: object, exc: BaseException | None, traceback: object) -> None:
        publish = False
        try:
            publish = self._state.leave(exc)
        finally:
            if not publish:
                await self._abort()
        if not publish:
            return
        with anyio.fail_after(_CLOSING, shield=True):
            await call(self._file.close)
        # The etag is synthetic, because the file object provides none.
        self.published = ObjectInfo(self._key, self._size, f"written-{self._size}", None, datetime.now(UTC))

    async def _write(self, buffers: Sequence[Buffer]) -> None:
        data = b"".join(buffers)[self._flushed :]
        while data:
            written = await call(self._file.write, data)
            self._size += len(data)
            # Most file objects return None or the full length; a raw file may accept less.
            rest = len(data) - written if isinstance(written, int) else 0
            if not 0 <= rest < len(data):
                raise StorageError(f"{redact(self._path)}: write() accepted only {written} of {len(data):,} bytes")
            self._size -= rest
            data = data[len(data) - rest :]

    async def _abort(self) -> None:
        abort = getattr(self._file, "abort", None) or getattr(self._file, "discard", None)
        if abort is None:
            return
        try:
            with anyio.fail_after(_ABORTING, shield=True):
                await call(abort)
        except Exception as error:  # log it, because it must not replace the original error
            logger.warning(
                "%s: the file could not be aborted: %r", redact(self._path), error, extra={"path": redact(self._path)}
            )
