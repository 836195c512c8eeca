"""Calls sheltered from asyncio's native cancellation neither swallow a cancellation nor leave one behind."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator

import anyio
import pytest

from asyncrec.storage import sheltered
from asyncrec.testing import virtual_backend

pytestmark = pytest.mark.anyio


@pytest.fixture(params=["asyncio"])
def anyio_backend(request: pytest.FixtureRequest) -> Iterator[tuple[str, dict[str, object]]]:
    return virtual_backend(request.param)


async def operation(error: Exception | None = None) -> str:
    await asyncio.sleep(3)
    if error:
        raise error
    return "done"


async def fail_after(seconds: float) -> None:
    await asyncio.sleep(seconds)
    raise OSError("no route")


async def nothing_is_left_behind() -> None:
    """Check that the next await succeeds and that no cancellation is pending."""
    for _ in range(3):
        await asyncio.sleep(1)
    task = asyncio.current_task()
    assert task is not None
    assert not task.cancelling()


async def test_timeout_ending_with_sheltered_call_leaves_no_cancellation() -> None:
    async with asyncio.timeout(1):
        result = await sheltered(operation(), limit=5)
    assert result == "done"
    await nothing_is_left_behind()


async def test_timeout_outlasting_sheltered_call_is_raised_afterwards() -> None:
    result = ""
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(1):
            result = await sheltered(operation(), limit=5)
            await asyncio.sleep(1)
            result = "went on"
    assert result == "done"
    await nothing_is_left_behind()


async def test_timeout_is_raised_despite_concurrent_failure() -> None:
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(1):
            await sheltered(operation(OSError("no route")), limit=5)
    await nothing_is_left_behind()


async def test_timeout_is_raised_for_sheltered_call_beyond_limit() -> None:
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(1):
            await sheltered(operation(), limit=0.5)
    await nothing_is_left_behind()


async def test_outer_of_two_timeouts_is_raised_afterwards() -> None:
    steps = []
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(2):
            async with asyncio.timeout(1):
                steps.append(await sheltered(operation(), limit=5))
            await asyncio.sleep(1)
            steps.append("went on")
    assert steps == ["done"]
    await nothing_is_left_behind()


async def test_outer_of_simultaneous_timeouts_is_raised_afterwards() -> None:
    steps = []
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(1), asyncio.timeout(1):
            async with asyncio.timeout(1):
                steps.append(await sheltered(operation(), limit=5))
            await asyncio.sleep(1)
            steps.append("went on")
    assert steps == ["done"]
    await nothing_is_left_behind()


async def test_group_with_sheltered_call_raises_only_task_error() -> None:
    result = ""
    with pytest.raises(ExceptionGroup) as raised:
        async with asyncio.TaskGroup() as group:
            group.create_task(fail_after(1))
            result = await sheltered(operation(), limit=5)
    assert raised.group_contains(OSError, match="no route")
    assert result == "done"
    await nothing_is_left_behind()


async def test_task_group_body_after_sheltered_call_is_cancelled() -> None:
    result = ""
    with pytest.raises(ExceptionGroup) as raised:
        async with asyncio.TaskGroup() as group:
            group.create_task(fail_after(1))
            result = await sheltered(operation(), limit=5)
            await asyncio.sleep(1)
            result = "went on"
    assert raised.group_contains(OSError, match="no route")
    assert result == "done"
    await nothing_is_left_behind()


async def cancelled_at(seconds: list[float], body: Callable[[], Awaitable[object]]) -> asyncio.Task[object]:
    """Run ``body`` in a task that is cancelled after each of these delays, and return the task when it has ended."""

    async def run() -> object:
        return await body()

    task = asyncio.create_task(run())
    for each in seconds:
        await asyncio.sleep(each)
        task.cancel("enough")
    await asyncio.wait([task])
    return task


@pytest.mark.parametrize("seconds", [[1.0], [1.0, 1.0], [0.5, 0.5, 0.5]])
async def test_task_is_cancelled_at_next_await_once(seconds: list[float]) -> None:
    steps = []

    async def body() -> None:
        steps.append(await sheltered(operation(), limit=5))
        try:
            await asyncio.sleep(1)
        except asyncio.CancelledError as error:
            steps.append(str(error))
            await asyncio.sleep(1)
            steps.append("cleaned up")
            raise

    assert (await cancelled_at(seconds, body)).cancelled()
    assert steps == ["done", "enough", "cleaned up"]


async def test_task_ending_with_sheltered_call_returns_result() -> None:
    task = await cancelled_at([1.0], lambda: sheltered(operation(), limit=5))
    assert not task.cancelled()
    assert task.result() == "done"


@pytest.mark.parametrize("seconds", [[1.0], [1.0, 1.0]])
async def test_task_beyond_limit_is_cancelled_after_operation_ended(seconds: list[float]) -> None:
    steps = []

    async def stubborn() -> None:
        try:
            await asyncio.sleep(30)
        finally:
            await asyncio.sleep(1)
            steps.append("cleaned up")

    assert (await cancelled_at(seconds, lambda: sheltered(stubborn(), limit=2))).cancelled()
    assert steps == ["cleaned up"]


async def test_previously_cancelled_task_is_cancelled_after_sheltered_call() -> None:
    steps = []

    async def body() -> None:
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        steps.append(await sheltered(operation(), limit=5))
        await asyncio.sleep(1)
        steps.append("went on")

    assert (await cancelled_at([], body)).cancelled()
    assert steps == ["done"]


async def test_cleanup_of_cancelled_task_sees_only_new_cancellations() -> None:
    steps = []

    async def body() -> None:
        try:
            await asyncio.sleep(30)
        finally:
            steps.append(await sheltered(operation(), limit=5))
            await asyncio.sleep(1)
            steps.append("closed")
            async with asyncio.timeout(1):
                steps.append(await sheltered(operation(), limit=5))
            await asyncio.sleep(1)
            steps.append("ended")

    assert (await cancelled_at([1.0], body)).cancelled()
    assert steps == ["done", "closed", "done", "ended"]


async def test_expired_scope_does_not_hide_cancellation_of_task() -> None:
    steps = []

    async def body() -> None:
        with anyio.move_on_after(1):
            steps.append(await sheltered(operation(), limit=5))
        await asyncio.sleep(1)
        steps.append("went on")

    assert (await cancelled_at([2.0], body)).cancelled()
    assert steps == ["done"]


async def test_scope_expiring_with_operation_is_not_cancelled() -> None:
    with anyio.move_on_after(1) as scope:
        result = await sheltered(operation(), limit=5)
    assert result == "done"
    assert not scope.cancelled_caught
    await nothing_is_left_behind()
