"""`Deadline` limits the remaining work of a job, including work that had already begun."""

from __future__ import annotations

from typing import Any

import anyio
import anyio.lowlevel
import pytest

from asyncrec._concurrency.deadline import Deadline

pytestmark = [pytest.mark.anyio, pytest.mark.virtual_clock]


async def seconds_of(deadline: Deadline, **options: Any) -> float:
    begun = anyio.current_time()
    with deadline.within(60, **options):
        await anyio.sleep_forever()
    return anyio.current_time() - begun


async def test_scope_without_deadline_keeps_own_timeout() -> None:
    assert await seconds_of(Deadline()) == pytest.approx(60)


@pytest.mark.parametrize(("late", "seconds"), [(0, 7), (2, 9)])
async def test_earlier_deadline_shortens_running_scope(late: float, seconds: float) -> None:
    deadline = Deadline()
    async with anyio.create_task_group() as group:
        deadline_at = anyio.current_time() + 7

        async def hurry() -> None:
            await anyio.sleep(1)
            deadline.bring(deadline_at)
            deadline.bring(deadline_at + 100)  # a deadline can only become earlier

        group.start_soon(hurry)
        assert await seconds_of(deadline, late=late) == pytest.approx(seconds)
    assert deadline.at == deadline_at


@pytest.mark.parametrize(("late", "passed", "seconds"), [(0, 0, 7), (2, 0, 9), (0, 10, 0), (2, 10, 2), (2, -100, 60)])
async def test_later_scope_obeys_deadline_plus_cleanup_allowance(late: float, passed: float, seconds: float) -> None:
    deadline = Deadline()
    deadline.bring(anyio.current_time() + 7 - min(passed, 0))
    await anyio.sleep(max(passed, 0))
    assert await seconds_of(deadline, late=late) == pytest.approx(seconds)


async def test_deadline_ignores_ended_scopes_and_honours_shield() -> None:
    deadline = Deadline()
    with deadline.within(60) as scope:
        before = scope.deadline
    deadline.bring(0)
    assert scope.deadline == before
    for shield in (True, False):
        with anyio.CancelScope() as outer:
            outer.cancel()
            with Deadline().within(60, shield=shield):
                await anyio.lowlevel.checkpoint()
                assert shield
