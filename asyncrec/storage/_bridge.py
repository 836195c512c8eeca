"""Run a `Storage` whose client supports only asyncio in a separate thread, so that any event loop can use it.

`BridgedStorage` starts one thread with an asyncio loop (`anyio.from_thread.start_blocking_portal`), opens the storage
there, and is itself a `Storage` for the caller's loop. The bridge adds 0.2 to 0.5 ms to each call, regardless of the
number of bytes. That is little compared with the time to send a chunk of 8 MiB. `_other_loop` passes the calls from one
loop to the other. The portal thread is started and joined in a worker thread, so that the caller's loop does not block,
and it has ended by the time the context exits.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from functools import partial
from typing import TypeVar

import anyio
from anyio.from_thread import BlockingPortal, start_blocking_portal
from anyio.to_thread import run_sync

from asyncrec.storage import _listing
from asyncrec.storage._base import Buffer, ByteSink, ByteSource, ObjectInfo, Storage
from asyncrec.storage._other_loop import OtherCall, OtherContext, OtherLoop

R = TypeVar("R")


class BridgedStorage(Storage):
    """The storage that ``open_factory`` opens, usable under any event loop. Use it as an async context manager.

    Args:
        open_factory: called on the portal thread; returns the context of the inner storage.
    """

    def __init__(self, open_factory: Callable[[], AbstractAsyncContextManager[Storage]]) -> None:
        self._open = open_factory

    async def __aenter__(self) -> BridgedStorage:
        self._portal: AbstractContextManager[BlockingPortal] = start_blocking_portal("asyncio", name="asyncrec-bridge")
        portal = await run_sync(self._portal.__enter__)
        try:
            self._loop = await run_sync(portal.call, OtherLoop)
            self._context = OtherContext(self._loop, self._open)
            self._inner = await self._context.enter()
        except BaseException:
            await self._join()
            raise
        self.root = self._inner.root
        self.read_ahead = self._inner.read_ahead
        self.flush_level = self._inner.flush_level
        self.lists_by_pages = self._inner.lists_by_pages
        return self

    async def __aexit__(self, exc_type: object, exc: BaseException | None, traceback: object) -> None:
        try:
            await self._context.leave(cancel=exc is not None)
        finally:
            self._loop.refuse()
            await self._join()

    async def _join(self) -> None:
        with anyio.CancelScope(shield=True):
            await run_sync(self._portal.__exit__, None, None, None)

    def __repr__(self) -> str:
        return f"<BridgedStorage of {self._inner!r}>" if hasattr(self, "_inner") else "<BridgedStorage, not open>"

    def open_sink(self, key: str, *, exclusive: bool = False) -> AbstractAsyncContextManager[ByteSink]:
        return _BridgedSink(OtherContext(self._loop, partial(self._inner.open_sink, key, exclusive=exclusive)))

    def open_source(
        self, key: str, *, start: int = 0, end: int | None = None, info: ObjectInfo | None = None
    ) -> AbstractAsyncContextManager[ByteSource]:
        opener = partial(self._inner.open_source, key, start=start, end=end, info=info)
        return _BridgedSource(OtherContext(self._loop, opener))

    async def list_objects(self, prefix: str = "", *, start_after: str = "") -> AsyncIterator[ObjectInfo]:
        # Each batch is a separate listing, so that abandoning the iteration leaves no generator open on the other loop.
        while True:
            batch = await self._call(partial(_listing.list_some, self._inner, prefix, start_after))
            for info in batch:
                yield info
            if len(batch) < _listing.LISTED:
                return
            start_after = batch[-1].key

    async def head(self, key: str) -> ObjectInfo:
        return await self._call(partial(self._inner.head, key))

    async def delete(self, key: str) -> None:
        await self._call(partial(self._inner.delete, key))

    # Overridden so that an entire object is transferred in one call to the other loop instead of three or four.

    async def get(self, key: str, *, max_bytes: int | None = None) -> bytes:
        return await self._call(partial(self._inner.get, key, max_bytes=max_bytes))

    async def put(self, key: str, data: Buffer, *, exclusive: bool = False) -> ObjectInfo:
        return await self._call(partial(self._inner.put, key, data, exclusive=exclusive))

    async def _call(self, operation: Callable[[], Awaitable[R]]) -> R:
        call = OtherCall(self._loop, operation)
        self._loop.soon(call.start)
        return await call.result()


class _BridgedSink(ByteSink):
    """A proxy for a sink on the other loop. Entering and exiting it enters and exits the sink's context there."""

    def __init__(self, context: OtherContext[ByteSink]) -> None:
        self._context = context

    async def __aenter__(self) -> ByteSink:
        self._inner = await self._context.enter()
        self.chunk_size = self._inner.chunk_size
        return self

    async def __aexit__(self, exc_type: object, exc: BaseException | None, traceback: object) -> None:
        await self._context.leave(cancel=exc is not None)
        self.published = self._inner.published

    async def send(self, buffers: Sequence[Buffer]) -> None:
        await self._context.call(lambda: self._inner.send(buffers))
        self.chunk_size = self._inner.chunk_size

    async def flush(self, tail: Sequence[Buffer]) -> int:
        durable = await self._context.call(lambda: self._inner.flush(tail))
        self.chunk_size = self._inner.chunk_size
        return durable


class _BridgedSource(ByteSource):
    """A proxy for a source on the other loop. Entering and exiting it enters and exits the source's context there."""

    def __init__(self, context: OtherContext[ByteSource]) -> None:
        self._context = context

    async def __aenter__(self) -> ByteSource:
        self._inner = await self._context.enter()
        self.info = self._inner.info
        return self

    async def __aexit__(self, exc_type: object, exc: BaseException | None, traceback: object) -> None:
        await self._context.leave(cancel=exc is not None)

    async def receive(self, max_bytes: int) -> bytes:
        block = await self._context.call(lambda: self._inner.receive(max_bytes))
        self.buffered, self.flowing = self._inner.buffered, self._inner.flowing
        return block
