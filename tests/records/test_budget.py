"""`asyncrec.records.budget`: one bound on what a writer holds."""

from __future__ import annotations

import anyio
import pytest
from anyio.lowlevel import checkpoint

from asyncrec.records.budget import ByteBudget

pytestmark = pytest.mark.anyio


async def until_parked(budget: ByteBudget, waiting: int) -> None:
    while len(budget._waiting) < waiting:
        await checkpoint()


async def test_room_is_given_out_first_come_first_served() -> None:
    budget = ByteBudget(100)
    await budget.take(100)
    order: list[int] = []

    async def taker(size: int) -> None:
        await budget.take(size)
        order.append(size)

    async with anyio.create_task_group() as group:
        for position, size in enumerate((90, 10, 5)):
            group.start_soon(taker, size)
            await until_parked(budget, position + 1)
        budget.give(50)
        await checkpoint()
        assert order == [], "10 would fit, but 90 came before it"
        budget.give(50)
        while len(order) < 2:
            await checkpoint()
        assert sorted(order) == [10, 90], "both fit now, and the tasks run in any order"
        budget.give(90)
    assert order[2] == 5
    assert budget.used == 15


async def test_a_size_beyond_the_limit_is_let_in_alone() -> None:
    budget = ByteBudget(100)
    await budget.take(1)
    async with anyio.create_task_group() as group:
        group.start_soon(budget.take, 1000)
        await until_parked(budget, 1)
        assert budget.used == 1
        budget.give(1)
    assert budget.used == 1000


async def test_a_cancelled_wait_holds_nothing_and_lets_the_next_in() -> None:
    budget = ByteBudget(100)
    await budget.take(50)
    async with anyio.create_task_group() as group:
        with anyio.CancelScope() as scope:
            group.start_soon(budget.take, 10)

            async def cancel() -> None:
                await until_parked(budget, 2)
                scope.cancel()

            group.start_soon(cancel)
            await budget.take(80)
    assert scope.cancelled_caught
    assert budget.used == 60


async def test_a_wait_that_is_granted_and_cancelled_at_once_gives_its_bytes_back() -> None:
    budget = ByteBudget(100)
    await budget.take(100)
    scope = anyio.CancelScope()

    async def waiter() -> None:
        with scope:
            await budget.take(60)

    async with anyio.create_task_group() as group:
        group.start_soon(waiter)
        await until_parked(budget, 1)
        scope.cancel()
        budget.give(100)
    assert budget.used == (60 if not scope.cancelled_caught else 0)


async def test_after_release_all_nobody_waits() -> None:
    budget = ByteBudget(10)
    await budget.take(10)
    async with anyio.create_task_group() as group:
        group.start_soon(budget.take, 10)
        await until_parked(budget, 1)
        budget.release_all()
    await budget.take(10)
    assert budget.bound < 0, "every caller goes through take, where its writer tells it why"


async def test_when_callers_wait_and_nothing_is_under_way_what_is_collected_is_sent() -> None:
    """Else all room could lie in slabs that are not full, and nobody would ever be let in."""
    budget = ByteBudget(100)
    calls = []
    budget.on_starving = lambda: calls.append(budget.used)
    await budget.take(90)
    async with anyio.create_task_group() as group:
        group.start_soon(budget.take, 50)
        await until_parked(budget, 1)
        assert calls == [90]
        budget.sent(90)
        group.start_soon(budget.take, 50)
        await until_parked(budget, 2)
        assert calls == [90], "something is under way, whose end will let them in"
        budget.arrived(90)
    assert budget.used == 100
    assert budget.under_way == 0


async def test_a_caller_that_never_waits_is_made_to_yield() -> None:
    budget = ByteBudget(1000)
    ran = []

    async def other() -> None:
        ran.append(True)

    async with anyio.create_task_group() as group:
        group.start_soon(other)
        await budget.take(1)
        budget.let_others_run()
        assert budget.bound == 1000, "one slab is not worth a turn of the loop"
        budget.let_others_run()
        assert budget.bound < 0
        await budget.take(1)
        await budget.take(1)
    assert ran
    assert budget.used == 3


def test_reserving_most_of_the_limit_is_refused_with_what_to_do() -> None:
    budget = ByteBudget(100)
    budget.reserve(70)
    assert budget.bound == 30
    with pytest.raises(ValueError, match="raise memory_limit, or open fewer shards"):
        budget.reserve(10)
    budget.unreserve(70)
    assert budget.bound == 100


def test_a_limit_that_holds_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="holds nothing"):
        ByteBudget(0)
