"""Runs a `Storage` whose client knows only asyncio under another event loop, on a portal thread of its own.

`BridgedStorage` starts one thread with an asyncio loop (`anyio.from_thread.start_blocking_portal`), opens the storage
there, and is itself a `Storage` to the loop it is used on. A call costs 0.2 to 0.5 ms, whatever the size of the bytes:
nothing beside a chunk of 8 MiB.

- What is entered there (the storage, a sink, a source) is entered, used and left by one asyncio task, so the inner
  storage may hold task groups and cancel scopes in its contexts as on its own loop.
- A cancelled call is cancelled over there, waited for in a shielded scope, and then raised again here. If it had
  succeeded in the meantime its result is returned, nothing is lost, and the cancellation comes with the next await.
- A context that is left on an exception is cancelled over there; its own clean-up must limit its time, as
  `Storage.open_sink` demands.
- Neither loop ever waits for the other: messages go both ways without blocking. The thread is started and joined from a
  worker thread, and none is left when the context has exited.
"""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Sequence
from concurrent.futures import Future
from contextlib import AbstractAsyncContextManager, AbstractContextManager, suppress
from functools import partial
from types import TracebackType
from typing import Any, Generic, TypeVar

import anyio
from anyio.from_thread import BlockingPortal, start_blocking_portal
from anyio.to_thread import run_sync

from asyncrec.storage._base import Buffer, ByteSink, ByteSource, ObjectInfo, Storage

__all__ = ["BridgedStorage", "on_asyncio"]

T = TypeVar("T")
R = TypeVar("R")

# Objects listed per call to the other loop: a page of the stores, so that no request is made for less than one.
LISTING_BATCH = 1_000


def on_asyncio() -> bool:
    """Whether the running event loop is asyncio's (else it is trio's)."""
    return anyio.get_cancelled_exc_class() is asyncio.CancelledError


class BridgedStorage(Storage):
    """The storage that ``open_factory`` opens, usable under any event loop. Use it as an async context manager.

    Args:
        open_factory: called on the portal thread; gives the context of the inner storage.
    """

    def __init__(self, open_factory: Callable[[], AbstractAsyncContextManager[Storage]]) -> None:
        self._open = open_factory

    async def __aenter__(self) -> BridgedStorage:
        self._portal: AbstractContextManager[BlockingPortal] = start_blocking_portal("asyncio", name="asyncrec-bridge")
        portal = await run_sync(self._portal.__enter__)
        try:
            self._loop = await run_sync(portal.call, _Loop)
            self._context = _Context(self._loop, self._open)
            self._inner = await self._context.enter()
        except BaseException:
            await self._join()
            raise
        self.root = self._inner.root
        self.read_ahead = self._inner.read_ahead
        self.flush_level = self._inner.flush_level
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        try:
            await self._context.leave(cancel=exc is not None)
        finally:
            await self._join()

    async def _join(self) -> None:
        with anyio.CancelScope(shield=True):
            await run_sync(self._portal.__exit__, None, None, None)

    def __repr__(self) -> str:
        return f"<BridgedStorage of {self._inner!r}>" if hasattr(self, "_inner") else "<BridgedStorage, not open>"

    def open_sink(self, key: str, *, exclusive: bool = False) -> AbstractAsyncContextManager[ByteSink]:
        return _BridgedSink(_Context(self._loop, partial(self._inner.open_sink, key, exclusive=exclusive)))

    def open_source(
        self, key: str, *, start: int = 0, end: int | None = None, etag: str | None = None
    ) -> AbstractAsyncContextManager[ByteSource]:
        opener = partial(self._inner.open_source, key, start=start, end=end, etag=etag)
        return _BridgedSource(_Context(self._loop, opener))

    async def list_objects(self, prefix: str = "", *, start_after: str = "") -> AsyncIterator[ObjectInfo]:
        # Each batch is a listing of its own, so that a listing left early leaves nothing on the other loop.
        while True:
            batch = await self._call(partial(_some, self._inner, prefix, start_after))
            for info in batch:
                yield info
            if len(batch) < LISTING_BATCH:
                return
            start_after = batch[-1].key

    async def head(self, key: str) -> ObjectInfo:
        return await self._call(partial(self._inner.head, key))

    async def delete(self, key: str) -> None:
        await self._call(partial(self._inner.delete, key))

    # Whole objects in one call, instead of three or four.

    async def get(self, key: str, *, max_bytes: int | None = None) -> bytes:
        return await self._call(partial(self._inner.get, key, max_bytes=max_bytes))

    async def put(self, key: str, data: Buffer, *, exclusive: bool = False) -> ObjectInfo:
        return await self._call(partial(self._inner.put, key, data, exclusive=exclusive))

    async def _call(self, operation: Callable[[], Awaitable[R]]) -> R:
        call = _Call(self._loop, operation)
        self._loop.soon(call.start)
        return await call.result()


class _BridgedSink(ByteSink):
    """A sink of the other loop, and its context."""

    def __init__(self, context: _Context[ByteSink]) -> None:
        self._context = context

    async def __aenter__(self) -> ByteSink:
        self._inner = await self._context.enter()
        self.chunk_size = self._inner.chunk_size
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
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
    """A source of the other loop, and its context."""

    def __init__(self, context: _Context[ByteSource]) -> None:
        self._context = context

    async def __aenter__(self) -> ByteSource:
        self._inner = await self._context.enter()
        self.info = self._inner.info
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self._context.leave(cancel=exc is not None)

    async def receive(self, max_bytes: int) -> bytes:
        return await self._context.call(lambda: self._inner.receive(max_bytes))


class _Loop:
    """The asyncio loop of the thread it is made in, for other threads."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        # Without it a callback would run in its caller's context, in which the library in use is the other one.
        self._context = contextvars.copy_context()

    def soon(self, func: Callable[..., object], *args: object) -> None:
        """Call ``func`` on the loop. In order, from any thread, without waiting."""
        self._loop.call_soon_threadsafe(func, *args, context=self._context)


class _Call(Generic[T]):
    """One operation on the asyncio loop, its outcome, and a way to cancel it."""

    def __init__(self, loop: _Loop, operation: Callable[[], Awaitable[T]]) -> None:
        self._loop = loop
        self._operation = operation
        self._scope: anyio.CancelScope | None = None
        self._cancelled = False
        self.outcome: Future[T] = Future()

    def start(self) -> None:
        """Run as a task of its own. On the asyncio loop."""
        self._task = asyncio.create_task(self.run())  # the loop itself keeps no strong reference

    async def run(self) -> None:
        """Run to the end; only `outcome` tells how it ended. On the asyncio loop."""
        with anyio.CancelScope() as self._scope:
            if self._cancelled:
                self._scope.cancel()
            try:
                result = await self._operation()
            except asyncio.CancelledError:
                self.outcome.cancel()
                raise
            except BaseException as error:
                self.outcome.set_exception(error)
            else:
                self.outcome.set_result(result)

    def cancel(self) -> None:
        """From the caller's thread; it has ended when `outcome` says so."""
        self._loop.soon(self._cancel)

    def _cancel(self) -> None:
        self._cancelled = True
        if self._scope is not None:
            self._scope.cancel()

    async def result(self) -> T:
        """Wait for the outcome, on the caller's loop; when cancelled, cancel it and wait all the same.

        Raises:
            ClosedResourceError: it was cancelled from within: what it was running in has ended.
        """
        try:
            await _done(self.outcome)
        except anyio.get_cancelled_exc_class():
            self.cancel()
            with anyio.CancelScope(shield=True):
                await _done(self.outcome)
            if self.outcome.cancelled() or self.outcome.exception() is not None:
                raise
        if self.outcome.cancelled():
            raise anyio.ClosedResourceError
        return self.outcome.result()


class _Context(Generic[T]):
    """A context on the asyncio loop: one task there enters it, makes the calls sent to it one by one, and leaves it."""

    def __init__(self, loop: _Loop, open_factory: Callable[[], AbstractAsyncContextManager[T]]) -> None:
        self._loop = loop
        self._open = open_factory
        self._entered: Future[T] = Future()
        self._inbox: asyncio.Queue[_Call[Any] | None] = asyncio.Queue()  # holds one: a sink or source has one user
        self._life = _Call(loop, self._live)
        self._left = False

    async def enter(self) -> T:
        """Enter the context and give what it yields; cancelled, it is left again."""
        self._loop.soon(self._life.start)
        try:
            await _done(self._entered)
        except anyio.get_cancelled_exc_class():
            await self.leave(cancel=True)
            raise
        return self._entered.result()

    async def call(self, operation: Callable[[], Awaitable[R]]) -> R:
        """Run ``operation`` in the task that entered the context.

        Raises:
            ClosedResourceError: the context was left.
            Exception: the context has ended by itself, with this.
        """
        if self._left:
            raise anyio.ClosedResourceError
        call = _Call(self._loop, operation)
        self._loop.soon(self._submit, call)
        try:
            return await call.result()
        except anyio.ClosedResourceError:
            if call.outcome.cancelled():
                # Not by us: the context is ending, or has ended.
                await _done(self._life.outcome)
                if not self._life.outcome.cancelled():
                    self._life.outcome.result()
            raise

    async def leave(self, *, cancel: bool) -> None:
        """Leave the context, cleanly or by cancelling it; what the latter raises is not the caller's concern."""
        self._left = True
        if cancel:
            self._life.cancel()
            with anyio.CancelScope(shield=True):
                await _done(self._life.outcome)
        else:
            self._loop.soon(self._submit, None)
            await self._life.result()

    async def _live(self) -> None:
        try:
            async with self._open() as thing:
                self._entered.set_result(thing)
                while (call := await self._inbox.get()) is not None:
                    await call.run()
        except BaseException as error:
            if not self._entered.done():
                self._entered.set_exception(error)
            raise
        finally:
            # What is submitted from now on finds no task that would run it.
            self._loop.soon(self._refuse)

    def _submit(self, call: _Call[Any] | None) -> None:
        self._inbox.put_nowait(call)
        if self._life.outcome.done():
            self._refuse()

    def _refuse(self) -> None:
        while not self._inbox.empty():
            call = self._inbox.get_nowait()
            if call is not None:
                call.outcome.cancel()


async def _some(storage: Storage, prefix: str, start_after: str) -> list[ObjectInfo]:
    """The first objects of a listing, at most `LISTING_BATCH`."""
    listing = storage.list_objects(prefix, start_after=start_after)
    found: list[ObjectInfo] = []
    try:
        async for info in listing:
            found.append(info)
            if len(found) == LISTING_BATCH:
                break
    finally:
        if isinstance(listing, AsyncGenerator):
            await listing.aclose()
    return found


async def _done(future: Future[Any]) -> None:
    """Wait, on the caller's loop, until a future of the asyncio thread is done."""
    event = anyio.Event()
    soon = _run_soon()

    def wake(_: object) -> None:
        with suppress(RuntimeError):  # the caller's loop has ended, and nobody waits
            soon(event.set)

    # It is called on the asyncio thread, or on this one if the future is done already: `soon` may be used from both.
    future.add_done_callback(wake)
    await event.wait()


def _run_soon() -> Callable[[Callable[[], object]], object]:
    """What runs a function on the current event loop from another thread, without waiting for it.

    anyio's own (`anyio.from_thread`) waits, and so would make each loop stand still for the other.
    """
    if on_asyncio():
        return asyncio.get_running_loop().call_soon_threadsafe
    import trio

    return trio.lowlevel.current_trio_token().run_sync_soon
