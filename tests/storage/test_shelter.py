"""Sheltered calls finish despite cancellation, within their time limit, on both event loops."""

from __future__ import annotations

import anyio
import anyio.lowlevel
import pytest

from asyncrec._concurrency.deadline import Deadline
from asyncrec.storage import sheltered, shielded

pytestmark = [pytest.mark.anyio, pytest.mark.virtual_clock]


class Request:
    """A slow request that records its outcome."""

    def __init__(self, seconds: float, error: Exception | None = None) -> None:
        self.seconds, self.error = seconds, error
        self.ended = ""

    async def send(self) -> str:
        try:
            await anyio.sleep(self.seconds)
        except BaseException:
            self.ended = "cancelled"
            raise
        self.ended = "failed" if self.error else "done"
        if self.error:
            raise self.error
        return self.ended


async def test_sheltered_call_returns_result() -> None:
    assert await sheltered(Request(1).send(), limit=5) == "done"


async def test_sheltered_call_raises_error_unchanged() -> None:
    error = OSError("no route")
    with pytest.raises(OSError, match="no route") as raised:
        await sheltered(Request(1, error).send(), limit=5)
    assert raised.value is error


async def test_sheltered_result_is_returned_before_cancellation_takes_effect() -> None:
    request = Request(3)
    result = ""
    with anyio.move_on_after(1) as scope:
        result = await sheltered(request.send(), limit=5)
        await anyio.lowlevel.checkpoint()
        result = "went on"
    assert scope.cancelled_caught
    assert result == "done"


async def test_request_is_sent_despite_earlier_cancellation() -> None:
    request = Request(1)
    with anyio.CancelScope() as scope:
        scope.cancel()
        await sheltered(request.send(), limit=5)
        await anyio.lowlevel.checkpoint()
    assert scope.cancelled_caught
    assert request.ended == "done"


async def test_cancellation_takes_precedence_over_failure_of_sheltered_call() -> None:
    request = Request(3, OSError("no route"))
    with anyio.move_on_after(1) as scope:
        await sheltered(request.send(), limit=5)
    assert scope.cancelled_caught
    assert request.ended == "failed"


async def test_operation_is_cancelled_after_its_limit() -> None:
    request = Request(30)
    begin = anyio.current_time()
    with anyio.move_on_after(1) as scope:
        await sheltered(request.send(), limit=5)
    assert scope.cancelled_caught
    assert request.ended == "cancelled"
    assert anyio.current_time() - begin == pytest.approx(6, abs=0.5)


async def test_limit_counts_from_cancellation() -> None:
    assert await sheltered(Request(30).send(), limit=5) == "done"


async def test_sheltered_call_gets_one_second_past_exit_deadline() -> None:
    request, deadline = Request(30), Deadline()
    with deadline.applied(), anyio.CancelScope() as scope:
        async with anyio.create_task_group() as group:
            group.start_soon(lambda: sheltered(request.send(), limit=20))
            await anyio.sleep(1)
            group.cancel_scope.cancel()
            deadline.bring(anyio.current_time() + 3)
            begin = anyio.current_time()
    assert not scope.cancelled_caught
    assert request.ended == "cancelled"
    assert anyio.current_time() - begin == pytest.approx(4, abs=0.5)


async def test_shielded_cleanup_gets_its_seconds_or_deadline_remainder() -> None:
    for passed, expected in ((False, 10), (True, 1)):
        deadline = Deadline()
        if passed:
            deadline.bring(anyio.current_time())
        begin = anyio.current_time()
        with deadline.applied(), shielded(10):
            await anyio.sleep(60)
        assert anyio.current_time() - begin == pytest.approx(expected, abs=0.5)
