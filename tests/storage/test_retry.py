"""`retrying`: which errors are retried, how long it waits, and what it logs."""

from __future__ import annotations

import logging

import anyio
import pytest

from asyncrec._concurrency.deadline import Deadline
from asyncrec.errors import StoragePermissionError, TransientStorageError
from asyncrec.storage import _retry as retry
from asyncrec.storage._retry import DEFAULT, Backoff, RetryPolicy, patience, retrying, telling_faults

pytestmark = pytest.mark.anyio


class Clock:
    def __init__(self) -> None:
        self.now = 100.0
        self.slept: list[float] = []

    async def sleep(self, delay: float) -> None:
        self.slept.append(delay)
        self.now += delay
        await anyio.lowlevel.checkpoint()


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(anyio, "sleep", clock.sleep)
    monkeypatch.setattr(anyio, "current_time", lambda: clock.now)
    monkeypatch.setattr(retry._jitter, "uniform", lambda low, high: high)  # always the longest delay
    return clock


class Failing:
    """An operation that fails ``times`` times and then returns 7."""

    def __init__(
        self, times: int, error: Exception | None = None, cost: float = 0.0, clock: Clock | None = None
    ) -> None:
        self.left, self.error, self.cost, self.clock = times, error, cost, clock
        self.calls = 0

    async def __call__(self) -> int:
        self.calls += 1
        if self.clock is not None:
            self.clock.now += self.cost
        if self.left:
            self.left -= 1
            raise self.error or TransientStorageError(f"reset {self.calls}")
        return 7


async def test_retrying_returns_result_after_transient_faults(clock: Clock) -> None:
    operation = Failing(3)
    assert await retrying(operation, what="head x") == 7
    assert operation.calls == 4
    assert clock.slept == [0.2, 0.4, 0.8]


async def test_permanent_error_propagates_immediately(clock: Clock) -> None:
    operation = Failing(1, StoragePermissionError("no"))
    with pytest.raises(StoragePermissionError):
        await retrying(operation, what="head x")
    assert (operation.calls, clock.slept) == (1, [])


async def test_last_error_notes_attempts_and_time(clock: Clock) -> None:
    operation = Failing(99)
    with pytest.raises(TransientStorageError, match="reset 4") as caught:
        await retrying(operation, what="put x", policy=RetryPolicy(attempts=4))
    assert caught.value.__notes__ == ["put x: asyncrec gave up after 4 attempts in 1.4 s"]
    assert caught.value.__context__ is None
    assert operation.calls == 4


async def test_retry_delays_respect_cap_and_total(clock: Clock) -> None:
    with pytest.raises(TransientStorageError):
        await retrying(Failing(10**6), what="x", policy=RetryPolicy(attempts=10**6))
    assert max(clock.slept) == DEFAULT.cap
    assert sum(clock.slept) <= DEFAULT.total


async def test_attempt_duration_counts_towards_retry_limit(clock: Clock) -> None:
    operation = Failing(99, cost=50.0, clock=clock)
    with pytest.raises(TransientStorageError):
        await retrying(operation, what="x")
    assert operation.calls == 4  # at 0, 50, 100 and 150 s after the first fault; the fourth exceeds the total


async def test_retry_delay_follows_store_request_within_cap(clock: Clock) -> None:
    await retrying(Failing(1, TransientStorageError("slow down", retry_after=5.0)), what="x")
    await retrying(Failing(1, TransientStorageError("slow down", retry_after=3600.0)), what="x")
    await retrying(Failing(1, TransientStorageError("a clock that is off", retry_after=-9.0)), what="x")
    assert clock.slept == [5.2, 30.0, 0.2]


async def test_log_warns_from_second_retry(clock: Clock, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "asyncrec.storage")
    await retrying(Failing(1), what="head x")
    assert not caplog.records
    await retrying(Failing(3), what="head x")
    assert [record.levelname for record in caplog.records] == ["WARNING", "WARNING"]
    assert caplog.messages[0] == "head x: attempt 2 of 10 failed; the next one starts in 0.4 s: reset 2"


async def test_retry_log_names_operation_once(clock: Clock, caplog: pytest.LogCaptureFixture) -> None:
    await retrying(Failing(2, TransientStorageError("head x: refused")), what="head x")
    assert caplog.messages == ["head x: attempt 2 of 10 failed; the next one starts in 0.4 s: refused"]


async def test_patience_shortens_retries_unless_policy_is_given(clock: Clock) -> None:
    with patience(RetryPolicy(attempts=3)):
        for policy, calls in ((DEFAULT, 3), (RetryPolicy(attempts=5), 5)):
            operation = Failing(99)
            with pytest.raises(TransientStorageError):
                await retrying(operation, what="x", policy=policy)
            assert operation.calls == calls
    assert Backoff("x").policy is DEFAULT


async def test_on_retry_receives_error_count_and_delay(clock: Clock) -> None:
    seen: list[tuple[str, int, float]] = []
    await retrying(Failing(2), what="x", on_retry=lambda error, failed, delay: seen.append((str(error), failed, delay)))
    assert seen == [("reset 1", 1, 0.2), ("reset 2", 2, 0.4)]


async def test_backoff_restarts_after_progress(clock: Clock) -> None:
    backoff = Backoff("read x", RetryPolicy(attempts=3))
    for _ in range(5):
        await backoff.wait(TransientStorageError("a"))
        await backoff.wait(TransientStorageError("b"))
        backoff.reset()
    assert clock.slept == [0.2, 0.4] * 5


async def test_jitter_does_not_affect_random_module(monkeypatch: pytest.MonkeyPatch) -> None:
    import random

    random.seed(5)
    expected = random.Random(5).random()
    await retrying(Failing(2), what="x", policy=RetryPolicy(base=1e-6))
    assert random.random() == expected


async def test_cancellation_ends_wait_immediately() -> None:
    patient = RetryPolicy(base=3600, cap=3600, total=7200)
    with anyio.CancelScope() as scope:
        await retrying(Failing(99), what="x", policy=patient, on_retry=lambda *_: scope.cancel())
    assert scope.cancelled_caught


async def test_retries_stop_after_exit_deadline(clock: Clock) -> None:
    deadline, operation = Deadline(), Failing(3)
    deadline.bring(clock.now + 0.5)
    with deadline.applied(), pytest.raises(TransientStorageError, match="reset 3"):
        await retrying(operation, what="head x")
    assert clock.slept == [0.2, 0.4]


async def test_fault_listener_receives_each_retried_fault(clock: Clock) -> None:
    told: list[float] = []
    with telling_faults(told.append):
        await retrying(Failing(2), what="head x")
    await retrying(Failing(2), what="head x")
    assert told == [0.2, 0.4]
