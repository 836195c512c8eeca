"""`asyncrec._concurrency.tasks`: task scopes, work in threads, and keeping results when a caller is cancelled."""

from __future__ import annotations

import asyncio
import functools
import threading
import weakref
from collections.abc import Callable, Generator

import anyio
import pytest

from asyncrec._concurrency.tasks import (
    Handover,
    TaskScope,
    ThreadedStep,
    acquire_in_thread,
    in_thread,
    surely_in_thread,
)

pytestmark = pytest.mark.anyio


async def block(log: list[str], name: str = "task") -> None:
    try:
        await anyio.sleep_forever()
    finally:
        with anyio.CancelScope(shield=True):
            await anyio.lowlevel.checkpoint()
        log.append(f"{name} ended")


async def test_clean_exit_waits_for_tasks() -> None:
    log: list[str] = []

    async def work(name: str) -> None:
        for _ in range(5):
            await anyio.lowlevel.checkpoint()
        log.append(name)

    async with TaskScope() as scope:
        scope.start_soon(work, "a")
        scope.start_soon(work, "b")
        assert log == []
    assert sorted(log) == ["a", "b"]


async def test_task_scope_may_be_empty_and_restart_tasks() -> None:
    async with TaskScope():
        pass
    log: list[str] = []

    async def work() -> None:
        log.append("x")

    async with TaskScope() as scope:
        scope.start_soon(work)
        await anyio.wait_all_tasks_blocked()
        scope.start_soon(work)
    assert log == ["x", "x"]


async def test_body_error_propagates_unchanged_after_cancelling_tasks() -> None:
    log: list[str] = []
    error = KeyError("mine")
    with pytest.raises(KeyError) as caught:
        async with TaskScope() as scope:
            scope.start_soon(block, log)
            await anyio.wait_all_tasks_blocked()
            raise error
    assert caught.value is error
    assert log == ["task ended"]


async def test_cancel_ends_tasks_but_not_body() -> None:
    log: list[str] = []
    async with TaskScope() as scope:
        scope.start_soon(block, log)
        await anyio.wait_all_tasks_blocked()
        scope.cancel()
        scope.start_soon(block, log, "late")
        await anyio.lowlevel.checkpoint()
        log.append("body")
    assert sorted(log) == ["body", "late ended", "task ended"]


async def test_task_error_waits_for_exit_without_cancelling_body() -> None:
    async def fail() -> None:
        raise LookupError("task")

    log: list[str] = []
    with pytest.raises(LookupError, match="task"):
        async with TaskScope() as scope:
            scope.start_soon(fail)
            await anyio.wait_all_tasks_blocked()
            await anyio.lowlevel.checkpoint()
            log.append("body")
    assert log == ["body"]
    with pytest.raises(ExceptionGroup) as caught:
        async with TaskScope() as scope:
            scope.start_soon(fail)
            scope.start_soon(fail)
    assert len(caught.value.exceptions) == 2


async def test_task_error_becomes_note_on_body_error() -> None:
    async def fail() -> None:
        raise LookupError("task")

    with pytest.raises(KeyError) as caught:
        async with TaskScope() as scope:
            scope.start_soon(fail)
            await anyio.wait_all_tasks_blocked()
            raise KeyError("body")
    assert caught.value.__notes__ == ["a background task failed too: LookupError('task')"]


async def test_body_cancellation_reaches_tasks_only_at_exit() -> None:
    log: list[str] = []
    with anyio.CancelScope() as outside:
        async with TaskScope() as scope:
            scope.start_soon(block, log)
            await anyio.wait_all_tasks_blocked()
            outside.cancel()
            try:
                await anyio.sleep_forever()
            finally:
                scope.shield(60)
                await anyio.wait_all_tasks_blocked()
                log.append("body finished")
    assert outside.cancelled_caught
    assert log == ["body finished", "task ended"]


async def test_cancellation_during_exit_wait_cancels_tasks() -> None:
    log: list[str] = []
    with anyio.CancelScope() as outside:
        async with TaskScope() as scope:
            scope.start_soon(block, log)
            await anyio.wait_all_tasks_blocked()
            outside.cancel()
    assert outside.cancelled_caught
    assert log == ["task ended"]


async def test_shielded_tasks_finish_after_cancelled_body() -> None:
    done: list[int] = []

    async def owner(stop: anyio.Event) -> None:
        await stop.wait()
        for _ in range(3):
            await anyio.lowlevel.checkpoint()
        done.append(1)

    class Owner:
        async def __aenter__(self) -> Owner:
            self.scope = TaskScope()
            await self.scope.__aenter__()
            self.stop = anyio.Event()
            self.scope.start_soon(owner, self.stop)
            return self

        async def __aexit__(self, exc_type, exc, traceback) -> bool:  # type: ignore[no-untyped-def]  # passed on whole
            self.scope.shield(60)
            self.stop.set()
            while not done:
                await anyio.lowlevel.checkpoint()
            return await self.scope.__aexit__(exc_type, exc, traceback)

    with anyio.CancelScope() as outside:
        async with Owner():
            outside.cancel()
            await anyio.sleep_forever()
    assert outside.cancelled_caught
    assert done == [1]


async def test_expired_shield_raises_timeout_error() -> None:
    log: list[str] = []
    with pytest.raises(TimeoutError, match="the remaining work did not finish in time and was cancelled"):
        async with TaskScope() as scope:
            scope.start_soon(block, log)
            scope.shield(0)
    assert log == ["task ended"]
    with pytest.raises(TimeoutError):
        async with TaskScope() as scope:
            scope.shield(0)
            await anyio.sleep_forever()


async def test_shield_timeout_keeps_outer_scope_cancellable() -> None:
    log: list[str] = []
    with anyio.CancelScope() as outside:
        with pytest.raises(TimeoutError):
            async with TaskScope() as scope:
                scope.start_soon(block, log)
                outside.cancel()
                scope.shield(0)
                await anyio.sleep_forever()
        assert log == ["task ended"]
        await anyio.sleep_forever()
    assert outside.cancelled_caught


async def test_nested_scopes_propagate_inner_error_unchanged() -> None:
    log: list[str] = []
    with pytest.raises(ValueError, match="inner"):
        async with TaskScope() as outer:
            outer.start_soon(block, log, "outer")
            async with TaskScope() as inner:
                inner.start_soon(block, log, "inner")
                await anyio.wait_all_tasks_blocked()
                raise ValueError("inner")
    assert log == ["inner ended", "outer ended"]


async def test_inner_task_scope_is_cancelled_with_outer_scope() -> None:
    log: list[str] = []

    async def middle() -> None:
        async with TaskScope() as inner:
            inner.start_soon(block, log, "inner")
            await anyio.sleep_forever()

    async with TaskScope() as outer:
        outer.start_soon(middle)
        await anyio.wait_all_tasks_blocked()
        outer.cancel()
    assert log == ["inner ended"]


@pytest.mark.parametrize("where", ["body", "exit"])
async def test_nested_scopes_end_under_outer_cancellation(where: str) -> None:
    log: list[str] = []
    with anyio.CancelScope() as outside:
        async with TaskScope() as outer:
            outer.start_soon(block, log, "outer")
            async with TaskScope() as inner:
                inner.start_soon(block, log, "inner")
                await anyio.wait_all_tasks_blocked()
                outside.cancel()
                if where == "body":
                    await anyio.sleep_forever()
    assert outside.cancelled_caught
    assert log == ["inner ended", "outer ended"]


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
@pytest.mark.parametrize("times", [1, 2])
async def test_asyncio_cancellation_of_host_propagates_unchanged(anyio_backend: str, times: int) -> None:
    log: list[str] = []

    async def host() -> None:
        async with TaskScope() as scope:
            scope.start_soon(block, log)
            await asyncio.sleep(3600)

    task = asyncio.ensure_future(host())
    await anyio.wait_all_tasks_blocked()
    task.cancel()
    if times == 2:
        await asyncio.sleep(0)
        task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert task.cancelled()
    assert log == ["task ended"]


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_asyncio_cancellation_at_exit_cancels_tasks(anyio_backend: str) -> None:
    log: list[str] = []

    async def host() -> None:
        async with TaskScope() as scope:
            scope.start_soon(block, log)

    task = asyncio.ensure_future(host())
    await anyio.wait_all_tasks_blocked()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert log == ["task ended"]


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_surrounding_asyncio_timeout_raises_timeout_error(anyio_backend: str) -> None:
    log: list[str] = []
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.01):
            async with TaskScope() as scope:
                scope.start_soon(block, log)
    assert log == ["task ended"]


@pytest.mark.parametrize("error", [None, KeyError])
async def test_task_scope_adds_no_exception_group(error: Callable[[], Exception] | None) -> None:
    async def host() -> None:
        async with TaskScope():
            if error is not None:
                raise error()

    if error is None:
        async with anyio.create_task_group() as group:
            group.start_soon(host)
        return
    with pytest.raises(ExceptionGroup) as caught:
        async with anyio.create_task_group() as group:
            group.start_soon(host)
    assert [type(each) for each in caught.value.exceptions] == [error]


async def test_in_thread_returns_and_raises_like_function() -> None:
    assert await in_thread(divmod, 7, 2) == (3, 1)
    with pytest.raises(ZeroDivisionError):
        await in_thread(divmod, 7, 0)


class Chunk(bytearray):
    """A bytearray that supports weak references, so that a test can see when it is freed."""


async def test_thread_keeps_no_reference_to_arguments() -> None:
    chunk = Chunk(10)
    gone = weakref.ref(chunk)
    assert await in_thread(len, chunk) == 10
    del chunk
    assert gone() is None


@pytest.mark.parametrize("how", ["scope", "asyncio"])
async def test_in_thread_waits_for_running_function_despite_cancellation(how: str, anyio_backend_name: str) -> None:
    """Cancelled while the function is running, in_thread waits until it returns, even if asyncio cancels it twice."""
    running, proceed, ended = threading.Event(), threading.Event(), threading.Event()

    def work() -> None:
        running.set()
        proceed.wait()
        ended.set()

    after: list[bool] = []
    scope = anyio.CancelScope()
    tasks: list[asyncio.Task[None]] = []

    async def host() -> None:
        if how == "asyncio" and anyio_backend_name == "asyncio":
            tasks.append(asyncio.current_task())  # type: ignore[arg-type]  # within a task there is one
        with scope:
            try:
                await in_thread(work)
            finally:
                after.append(ended.is_set())

    async with anyio.create_task_group() as group:
        group.start_soon(host)
        await anyio.to_thread.run_sync(running.wait)
        for _ in range(2):
            if tasks:
                tasks[0].cancel()
            else:
                scope.cancel()
            for _ in range(5):
                await anyio.lowlevel.checkpoint()
        assert after == []
        proceed.set()
    assert after == [True]


async def test_thread_cleanup_runs_despite_early_cancellation(anyio_backend_name: str) -> None:
    """asyncio's cancellation ignores shields, and is raised only after the function has returned."""
    if anyio_backend_name != "asyncio":
        pytest.skip("trio has no cancellation of that kind")
    limiter = anyio.CapacityLimiter(1)
    done: list[int] = []
    async with limiter:
        task = asyncio.ensure_future(surely_in_thread(done.append, 1, limiter=limiter))
        for _ in range(3):
            await anyio.lowlevel.checkpoint()
            task.cancel()
        assert done == []
    with pytest.raises(asyncio.CancelledError):
        await task
    assert done == [1]


@pytest.mark.parametrize("how", ["scope", "asyncio"])
async def test_acquired_resource_reaches_caller_or_is_released(how: str, anyio_backend_name: str) -> None:
    """If cancelled while the function runs, anyio raises at the next await, but asyncio raises in this call."""
    running, proceed = threading.Event(), threading.Event()
    released: list[str] = []
    got: list[str] = []
    scope = anyio.CancelScope()
    tasks: list[asyncio.Task[None]] = []

    def acquire() -> str:
        running.set()
        proceed.wait()
        return "lock"

    async def host() -> None:
        if how == "asyncio" and anyio_backend_name == "asyncio":
            tasks.append(asyncio.current_task())  # type: ignore[arg-type]  # within a task there is one
        with scope:
            got.append(await acquire_in_thread(acquire, released.append))

    async with anyio.create_task_group() as group:
        group.start_soon(host)
        await anyio.to_thread.run_sync(running.wait)
        if tasks:
            tasks[0].cancel()
        else:
            scope.cancel()
        await anyio.lowlevel.checkpoint()
        proceed.set()
    assert sorted(got + released) == ["lock"]
    assert released == (["lock"] if tasks else [])


def test_acquired_resource_of_collected_caller_is_released(monkeypatch: pytest.MonkeyPatch) -> None:
    """The event loop is closed while the result is being delivered, so that nothing can be awaited any more."""

    class Never:
        def __await__(self) -> Generator[None, None, None]:
            yield

    async def in_thread(func: Callable[[], object]) -> None:
        func()
        await Never()

    monkeypatch.setattr("asyncrec._concurrency.tasks.in_thread", in_thread)
    released: list[str] = []
    waiting = acquire_in_thread(lambda: "lock", released.append)
    waiting.send(None)
    waiting.close()
    assert released == ["lock"]


async def test_failed_acquisition_releases_no_resource() -> None:
    released: list[object] = []

    def fail() -> object:
        raise OSError("no")

    with pytest.raises(OSError, match="no"):
        await acquire_in_thread(fail, released.append)
    assert released == []


async def test_in_thread_cancelled_while_waiting_never_starts() -> None:
    limiter = anyio.CapacityLimiter(1)
    ran: list[int] = []
    async with limiter:
        with anyio.CancelScope() as scope:
            async with anyio.create_task_group() as group:
                group.start_soon(functools.partial(in_thread, ran.append, 1, limiter=limiter))
                await anyio.wait_all_tasks_blocked()
                scope.cancel()
    await in_thread(ran.append, 2, limiter=limiter)
    assert ran == [2]


@pytest.mark.parametrize("fails", [False, True])
@pytest.mark.parametrize("how", ["scope", "asyncio"])
async def test_abandoned_step_result_goes_to_next_caller(how: str, fails: bool, anyio_backend_name: str) -> None:
    """The function runs once for each result that is accepted, even if some callers are cancelled."""
    running, proceed = threading.Event(), threading.Event()
    runs: list[int] = []
    step = ThreadedStep[int]()
    left: list[str] = []
    scope = anyio.CancelScope()
    tasks: list[asyncio.Task[None]] = []

    def work() -> int:
        runs.append(len(runs))
        running.set()
        proceed.wait()
        if fails:
            raise KeyError(len(runs))
        return len(runs)

    async def host() -> None:
        if how == "asyncio" and anyio_backend_name == "asyncio":
            tasks.append(asyncio.current_task())  # type: ignore[arg-type]  # within a task there is one
        with scope:
            try:
                await step.take(work)
                await anyio.lowlevel.checkpoint()
                left.append("taken")
            except KeyError:
                left.append("raised")

    async with anyio.create_task_group() as group:
        group.start_soon(host)
        await anyio.to_thread.run_sync(running.wait)
        if tasks:
            tasks[0].cancel()
        else:
            scope.cancel()
        await anyio.lowlevel.checkpoint()
        proceed.set()
    if step.waits:  # asyncio's own cancellation kept the caller from getting the result
        assert left == []
        if fails:
            with pytest.raises(KeyError):
                await step.take(work)
        else:
            assert await step.take(work) == 1
    assert runs == [0]
    assert not step.waits


async def test_handover_keeps_order_bound_and_final_error() -> None:
    queue = Handover[int](2, "it")
    put: list[int] = []

    async def putter() -> None:
        for number in range(5):
            await queue.put(number)
            put.append(number)
        queue.end(KeyError("mine"))

    async with TaskScope() as scope:
        scope.start_soon(putter)
        await anyio.wait_all_tasks_blocked()
        assert put == [0, 1]
        assert [await queue.take() for _ in range(5)] == [0, 1, 2, 3, 4]
        for _ in range(2):
            with pytest.raises(KeyError, match="mine"):
                await queue.take()
    queue.close()
    with pytest.raises(anyio.ClosedResourceError):
        await queue.take()


async def test_ended_handover_returns_remaining_items() -> None:
    queue = Handover[int](1, "it")
    await queue.put(1)
    queue.end()
    assert await queue.take() == 1
    for _ in range(2):
        with pytest.raises(StopAsyncIteration):
            await queue.take()


async def test_handover_item_survives_cancellation_of_taker(anyio_backend_name: str) -> None:
    queue = Handover[int](1, "it")
    scope = anyio.CancelScope()
    hosts: list[asyncio.Task[None]] = []

    async def taker() -> None:
        if anyio_backend_name == "asyncio":
            hosts.append(asyncio.current_task())  # type: ignore[arg-type]  # within a task there is one
        with scope:
            await queue.take()
            raise AssertionError("it was cancelled before it ran again")

    async with anyio.create_task_group() as group:
        group.start_soon(taker)
        await anyio.wait_all_tasks_blocked()
        if hosts:
            await queue.put(7)
            hosts[0].cancel()
        else:
            scope.cancel()
            await queue.put(7)
    assert await queue.take() == 7
