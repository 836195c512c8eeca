"""The virtual clock skips hours at once, but waits for threads and sockets."""

from __future__ import annotations

import asyncio
import threading
import time

import anyio
import anyio.from_thread
import anyio.to_thread
import pytest

from asyncrec.testing import virtual_backend

pytestmark = [pytest.mark.anyio, pytest.mark.virtual_clock]


async def test_virtual_hour_passes_immediately() -> None:
    began = time.monotonic()
    start = anyio.current_time()
    await anyio.sleep(3600)
    assert anyio.current_time() - start == pytest.approx(3600)
    assert time.monotonic() - began < 5


async def test_sleepers_wake_in_order_and_on_time() -> None:
    woken = []

    async def sleeper(seconds: float) -> None:
        await anyio.sleep(seconds)
        woken.append((seconds, round(anyio.current_time() - start)))

    start = anyio.current_time()
    async with anyio.create_task_group() as group:
        for seconds in (300, 20, 1000, 1):
            group.start_soon(sleeper, seconds)
    assert woken == [(1, 1), (20, 20), (300, 300), (1000, 1000)]


async def test_virtual_deadline_expires() -> None:
    with pytest.raises(TimeoutError):
        with anyio.fail_after(86_400):
            await anyio.sleep_forever()


async def test_time_does_not_pass_while_tasks_run() -> None:
    with anyio.fail_after(0.000_001):
        for _ in range(1_000):
            await anyio.lowlevel.checkpoint()


async def test_clock_stops_while_worker_thread_runs() -> None:
    """A timeout of a microsecond does not expire while real work is running in a thread."""
    for _ in range(3):
        with anyio.fail_after(0.000_001):
            await anyio.to_thread.run_sync(lambda: time.sleep(0.02))  # real work, as far as the clock knows
    start = anyio.current_time()
    await anyio.sleep(1)  # an idle worker thread does not stop the clock
    assert anyio.current_time() - start == pytest.approx(1)


async def test_clock_stops_while_thread_calls_back() -> None:
    with anyio.fail_after(0.000_001):
        now = await anyio.to_thread.run_sync(lambda: anyio.from_thread.run_sync(anyio.current_time))
    assert now == anyio.current_time()


async def test_clock_stops_while_executor_runs(anyio_backend_name: str) -> None:
    if anyio_backend_name == "asyncio":
        with anyio.fail_after(0.000_001):
            await asyncio.get_running_loop().run_in_executor(None, time.sleep, 0.02)
    else:
        with anyio.fail_after(0.000_001):
            await anyio.to_thread.run_sync(time.sleep, 0.02)


async def test_ready_io_is_handled_before_deadline() -> None:
    listener = await anyio.create_tcp_listener(local_host="127.0.0.1")
    port = listener.extra(anyio.abc.SocketAttribute.local_port)

    async def echo(stream: anyio.abc.SocketStream) -> None:
        async with stream:
            await stream.send(await stream.receive())

    async with anyio.create_task_group() as group:
        group.start_soon(listener.serve, echo)
        with anyio.fail_after(10):
            async with await anyio.connect_tcp("127.0.0.1", port) as stream:
                await stream.send(b"ping")
                assert await stream.receive() == b"ping"
        group.cancel_scope.cancel()
    await listener.aclose()


def test_threshold_waits_for_foreign_threads() -> None:
    """The clock waits, up to the threshold, for threads that belong to no known pool."""

    async def main() -> None:
        done = anyio.Event()
        loop_side = anyio.lowlevel.current_token()
        thread = threading.Thread(target=lambda: anyio.from_thread.run_sync(done.set, token=loop_side))
        with anyio.fail_after(0.000_001):
            thread.start()
            await done.wait()
        thread.join()

    for name in ("asyncio", "trio"):
        backend, options = virtual_backend(name, threshold=5)
        began = time.monotonic()
        anyio.run(main, backend=backend, backend_options=options)
        assert time.monotonic() - began < 5


def test_unknown_backends_are_rejected() -> None:
    with pytest.raises(ValueError, match="curio"):
        virtual_backend("curio")
