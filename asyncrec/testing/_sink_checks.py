"""Checks of a `ByteSink`, without pytest. `StorageConformance` runs the same checks.

Each check takes ``open_sink``, a function that opens a sink, and functions that bypass the sink's storage, so that a
bug in the storage cannot hide itself. ``read`` returns the object stored under a key, or `None`. ``unfinished`` returns
the unfinished objects in the store. Each check raises `AssertionError` with the expected result, or the sink's own
error.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection
from contextlib import AbstractAsyncContextManager

import anyio

from asyncrec.errors import StorageError
from asyncrec.storage._base import ByteSink
from asyncrec.testing._cancellation import cancel_at_checkpoint, cancel_at_every_checkpoint
from asyncrec.testing._checks import Read, check_equal, check_info, content, pieces, send_all

OpenSink = Callable[[str], AbstractAsyncContextManager[ByteSink]]
Unfinished = Callable[[], Awaitable[Collection[str]]]

_CANCELLED_PASSES = 10


async def check_sink(open_sink: OpenSink, *, read: Read, unfinished: Unfinished, flush_level: str = "buffered") -> None:
    """Check the complete contract of a `ByteSink`.

    ``open_sink(key)`` opens a sink. All keys begin with ``check-``.
    """
    await check_sizes(open_sink, read=read)
    await check_buffers_reused(open_sink, read=read)
    await check_abort(open_sink, read=read, unfinished=unfinished)
    await check_cancellation(open_sink, read=read, unfinished=unfinished)
    await check_send_given_up(open_sink, read=read, unfinished=unfinished)
    await check_concurrent_sinks(open_sink, read=read)
    await check_closed_sink(open_sink)
    await check_flush(open_sink, read=read, unfinished=unfinished, flush_level=flush_level)


async def check_sizes(open_sink: OpenSink, *, read: Read) -> None:
    """Check that objects of zero bytes, one byte, or about one or two chunks are stored, and `published` is set."""
    chunk = await _chunk_size(open_sink)
    for size in sorted({0, 1, chunk - 1, chunk, chunk + 1, 2 * chunk, 2 * chunk + chunk // 2}):
        key, data = f"check-size-{size}", content(size)
        async with open_sink(key) as sink:
            assert sink.published is None, "published is set before the context exits"
            await send_all(sink, data)
            check_equal(await read(key), None, f"{key}, before its context exits")
        check_equal(await read(key), data, key)
        assert sink.published is not None, "published is not set after a clean exit"
        check_info(sink.published, key, data)


async def check_buffers_reused(open_sink: OpenSink, *, read: Read) -> None:
    """Check that buffers may be overwritten once `send` has returned, even if the object has only one short chunk."""
    for key, chunks in (("check-reuse", 3), ("check-reuse-short", 1)):
        expected = bytearray()
        async with open_sink(key) as sink:
            for n in range(1, chunks + 1):
                buffer = bytearray(content(sink.chunk_size if n < chunks else sink.chunk_size // 2 + 1, seed=n))
                expected += buffer
                view = memoryview(buffer)
                half = len(buffer) // 2
                await sink.send([view[:half], view[half:]] if half else [view])
                view[:] = bytes(len(view))
        check_equal(await read(key), bytes(expected), f"{key}, whose buffers were overwritten after send returned")


class _Stop(Exception):
    """An error that a check raises in a sink's body and expects to be re-raised."""


async def check_abort(open_sink: OpenSink, *, read: Read, unfinished: Unfinished) -> None:
    """Check that a sink re-raises an exception from the body unchanged, stores nothing, and keeps an older object."""
    chunk = await _chunk_size(open_sink)
    await _write(open_sink, "check-abort-over", b"older")
    for key, before in (("check-abort", None), ("check-abort-over", b"older")):
        for size in (0, 1, chunk, chunk + 1, 2 * chunk):
            stop = _Stop()
            raised: Exception | None = None
            try:
                async with open_sink(key) as sink:
                    await send_all(sink, content(size))
                    raise stop
            except Exception as error:
                raised = error
            assert raised is stop, f"the exit did not re-raise the body's exception unchanged, but raised {raised!r}"
            assert sink.published is None, "published is set although the context exited with an exception"
            check_equal(await read(key), before, f"{key}, after an exception when {size} bytes were sent")
            left = await unfinished()
            assert not left, f"left behind by an exception when {size} bytes were sent: {sorted(left)}"


async def check_cancellation(open_sink: OpenSink, *, read: Read, unfinished: Unfinished) -> None:
    """Check that a sink cancelled at any await stores nothing, or stores the entire object and sets `published`.

    At least one await while opening, sending or exiting must allow cancellation.
    """
    key, data = "check-cancel", content(await _chunk_size(open_sink) + 1)
    before: bytes | None = None
    sinks: list[ByteSink] = []
    sent = False
    given_up = 0

    async def write() -> None:
        nonlocal sent
        sinks.clear()
        sent = False
        async with open_sink(key) as sink:
            sinks.append(sink)
            await send_all(sink, data)
            sent = True

    async def whole_or_nothing() -> None:
        nonlocal before, given_up
        found = await read(key)
        published = sinks[0].published if sinks else None
        given_up += published is None
        if not sent:
            check_equal(found, before, f"{key}, cancelled in the body")
        if published is None:
            check_equal(found, before, f"{key}, though published is None")
        else:
            check_equal(found, data, f"{key}, though published is set")
        left = await unfinished()
        assert not left, f"left behind: {sorted(left)}"
        if found == data:  # cancelled too late: put back an older object with different bytes
            before = b"older"
            await _write(open_sink, key, before)

    # A storage that does its work in a thread may finish before the cancellation reaches it.
    for _ in range(_CANCELLED_PASSES):
        checkpoints = await cancel_at_every_checkpoint(write, after=whole_or_nothing)
        if given_up or not checkpoints:
            return
    raise AssertionError("writing cannot be cancelled: it continued to the end at every checkpoint")


async def check_send_given_up(open_sink: OpenSink, *, read: Read, unfinished: Unfinished) -> None:
    """Check that a clean exit publishes nothing if a send was cancelled and the body swallowed the cancellation."""
    chunk = content(await _chunk_size(open_sink))
    for n in range(1, 1_000):
        given_up = False
        raised: Exception | None = None
        try:
            async with open_sink("check-given-up") as sink:

                async def send(sink: ByteSink = sink) -> None:
                    nonlocal given_up
                    given_up = True
                    await sink.send(pieces(chunk))
                    given_up = False

                reached = await cancel_at_checkpoint(send, n)
        except StorageError as error:
            raised = error
        found = await read("check-given-up")
        if given_up:
            assert raised is not None, f"a send was cancelled at checkpoint {n}, but the exit raised no error"
            check_equal(found, None, "check-given-up, of which a send was cancelled")
            left = await unfinished()
            assert not left, f"left behind after a send was cancelled: {sorted(left)}"
        elif not reached:
            check_equal(found, chunk, "check-given-up")
            return
        elif found is not None:
            return  # from this checkpoint on, a cancelled send still completes
    raise AssertionError("send is still waiting after 1,000 awaits")


async def check_concurrent_sinks(open_sink: OpenSink, *, read: Read) -> None:
    """Check that concurrent sinks do not mix their data, and that if two have the same key, the last to exit wins."""
    bodies = {f"check-together-{n}": content(1 + n * 40_000, seed=n) for n in range(8)}
    started = 0
    all_open = anyio.Event()

    async def write(key: str, data: bytes) -> None:
        nonlocal started
        async with open_sink(key) as sink:
            started += 1
            if started == len(bodies):
                all_open.set()
            await all_open.wait()
            await send_all(sink, data)

    async with anyio.create_task_group() as group:
        for key, data in bodies.items():
            group.start_soon(write, key, data)
    for key, data in bodies.items():
        check_equal(await read(key), data, key)

    async with open_sink("check-twice") as first:
        await send_all(first, b"first")
        await _write(open_sink, "check-twice", b"second")
    check_equal(await read("check-twice"), b"first", "check-twice, whose first writer exited last")


async def check_closed_sink(open_sink: OpenSink) -> None:
    """Check that `send` raises `ClosedResourceError` before the context is entered and after it exits."""
    opening = open_sink("check-closed")
    if isinstance(opening, ByteSink):  # the sink is its own context manager
        await _check_refusal(opening, "before the context was entered")
    async with opening as sink:
        await send_all(sink, b"x")
    await _check_refusal(sink, "after the context exited")


async def _check_refusal(sink: ByteSink, when: str) -> None:
    try:
        await sink.send([b"y"])
    except anyio.ClosedResourceError:
        return
    raise AssertionError(f"send {when} did not raise ClosedResourceError")


async def check_flush(
    open_sink: OpenSink, *, read: Read, unfinished: Unfinished, flush_level: str = "buffered"
) -> None:
    """Check that `flush` neither publishes nor loses data, and check what is left if the body then raises.

    If the flush level is ``"spooled"``, an unfinished file must be left, otherwise nothing.
    """
    chunk = await _chunk_size(open_sink)
    data = content(chunk + chunk // 2 + 1)
    head, tail = data[:chunk], data[chunk:]

    async with open_sink("check-flush") as sink:
        for sent, held in ((b"", head[: chunk // 2]), (head, b""), (b"", tail)):
            if sent:
                await sink.send(pieces(sent))
            durable = await sink.flush(pieces(held))
            assert 0 <= durable <= len(held), f"flush of {len(held)} bytes reported {durable} durable bytes"
            if flush_level == "spooled":
                assert durable == len(held), (
                    f"flush reported the level spooled, but only {durable} of {len(held)} bytes are durable"
                )
            if durable:
                assert await unfinished(), (
                    f"flush reported {durable} bytes as stored outside this process, but the store has no "
                    "unfinished object; if flush keeps nothing, it must return 0"
                )
            check_equal(await read("check-flush"), None, "check-flush, flushed but not published")
        await sink.send(pieces(tail))
    check_equal(await read("check-flush"), data, "check-flush")

    try:
        async with open_sink("check-flush-abort") as sink:
            await sink.send(pieces(head))
            await sink.flush(pieces(tail))
            raise _Stop
    except _Stop:
        pass
    check_equal(await read("check-flush-abort"), None, "check-flush-abort, flushed and then aborted")
    left = await unfinished()
    if flush_level == "spooled":
        assert left, "flushed bytes were lost: no unfinished file was kept for recovery"
    else:
        assert not left, f"left behind by an exception after a flush: {sorted(left)}"


async def _write(open_sink: OpenSink, key: str, data: bytes) -> None:
    async with open_sink(key) as sink:
        await send_all(sink, data)


async def _chunk_size(open_sink: OpenSink) -> int:
    async with open_sink("check-chunk-size") as sink:
        assert sink.chunk_size > 0, f"chunk_size is {sink.chunk_size}"
        return sink.chunk_size
