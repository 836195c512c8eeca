"""`run` calls a user's generator and serializer without blocking the event loop.

A synchronous generator runs in one worker thread from its first example to its last, so objects that belong to a thread
(a database connection, a lock) stay in that thread. Its examples are serialized in the same thread, without switching
threads for each example. An asynchronous generator runs in the caller's task. Its examples are passed to a thread in
batches. An asynchronous serializer also runs in the caller's task.
"""

from __future__ import annotations

import inspect
import threading
from collections.abc import AsyncIterable, Awaitable, Callable, Iterable, Mapping
from functools import partial
from typing import Any, Protocol

import anyio
from anyio import from_thread

from asyncrec._concurrency.tasks import TaskScope, in_thread
from asyncrec.errors import ArgumentTypeError

Example = tuple[Any, Mapping[str, Any]]
Examples = Iterable[Example] | AsyncIterable[Example]
Serializer = Callable[[Mapping[str, Any]], bytes | Awaitable[bytes]]

# The number of examples in a batch from an asynchronous generator. It is large enough that the cost of a thread switch
# (0.1 ms) is negligible.
_BATCH = 256
# The maximum size of the records of a batch, estimated from earlier records.
_BATCH_BYTES = 1 << 20


class Receiver(Protocol):
    """Receives examples. ``prepare`` and ``take`` are called in worker threads, one call at a time."""

    @property
    def size(self) -> int:
        """The total size in bytes of the records received."""

    def prepare(self, item: Example) -> Example:
        """Check an example, and return it in the form that the serializer needs."""

    def take(self, example: Example, record: bytes) -> None:
        """Store the record of an example."""


async def run(
    generator: Callable[..., Examples | Awaitable[Examples]],
    kwargs: Mapping[str, Any],
    serializer: Serializer,
    sink: Receiver,
) -> None:
    """Pass every example of ``generator(**kwargs)`` to ``sink``.

    ``generator`` may be any callable, synchronous or asynchronous, that returns an iterable or an async iterable. A
    cancellation takes effect after the current example, because a synchronous generator cannot be interrupted.
    """
    if _is_async(generator):
        examples = generator(**kwargs)
    else:
        examples = await in_thread(partial(generator, **kwargs))  # the call may read files before the first example
    if inspect.isawaitable(examples):
        examples = await examples
    if isinstance(examples, AsyncIterable):
        await _run_async(examples, serializer, sink)
    elif isinstance(examples, Iterable):
        await _run_in_thread(examples, serializer, sink)
    else:
        raise ArgumentTypeError(
            f"the generator returned a {type(examples).__name__}; it must yield (key, features) pairs"
        )


async def _run_in_thread(examples: Iterable[Example], serializer: Serializer, sink: Receiver) -> None:
    given_up = threading.Event()
    ended = anyio.Event()

    def work() -> None:
        iterator = iter(examples)
        try:
            for item in iterator:
                if given_up.is_set():
                    return
                example = sink.prepare(item)
                sink.take(example, _serialised(serializer, example))
        finally:
            if (close := getattr(iterator, "close", None)) is not None:
                close()  # run the generator's `finally` blocks now, in the generator's own thread

    async def work_in_thread() -> None:
        try:
            await in_thread(work)
        finally:
            ended.set()

    async with TaskScope() as scope:
        scope.start_soon(work_in_thread)
        try:
            await ended.wait()
        except BaseException:
            given_up.set()
            raise


async def _run_async(examples: AsyncIterable[Example], serializer: Serializer, sink: Receiver) -> None:
    batch: list[Example] = []
    taken = 0

    def take_all(batch: list[Example]) -> None:
        for item in batch:
            example = sink.prepare(item)
            sink.take(example, _serialised(serializer, example))

    def keep_all(prepared: list[Example], records: list[bytes]) -> None:
        for example, record in zip(prepared, records, strict=True):
            sink.take(example, record)

    async def take_batch() -> None:
        nonlocal batch, taken
        full, batch = batch, []
        if _is_async(serializer):
            prepared = await in_thread(lambda: [sink.prepare(item) for item in full])
            records = [await _resolve(serializer(example[1])) for example in prepared]
            await in_thread(keep_all, prepared, records)
        else:
            await in_thread(take_all, full)
        taken += len(full)

    iterator = aiter(examples)
    try:
        async for item in iterator:
            batch.append(item)
            if len(batch) >= min(_BATCH, 1 + taken * _BATCH_BYTES // max(sink.size, 1)):
                await take_batch()
        if batch:
            await take_batch()
    finally:
        if (close := getattr(iterator, "aclose", None)) is not None:
            await close()


def _serialised(serializer: Serializer, example: Example) -> bytes:
    """Serialize an example. Call this in a worker thread."""
    record = serializer(example[1])
    if inspect.isawaitable(record):
        record = from_thread.run(_resolve, record)
    return record


async def _resolve(record: bytes | Awaitable[bytes]) -> bytes:
    return await record if inspect.isawaitable(record) else record


def _is_async(func: Callable[..., object]) -> bool:
    """Return whether ``func`` or its ``__call__`` is an async function or generator, so that a call never blocks."""
    while isinstance(func, partial):
        func = func.func
    return any(
        inspect.iscoroutinefunction(each) or inspect.isasyncgenfunction(each)
        for each in (func, getattr(func, "__call__", None))  # noqa: B004  # it is inspected, not called
    )
