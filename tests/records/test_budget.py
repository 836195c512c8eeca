"""`asyncrec._records.writing.memory_budget`: one limit on the memory that a writer uses."""

from __future__ import annotations

import anyio
import pytest
from anyio.lowlevel import checkpoint

from asyncrec._records.writing.memory_budget import ByteBudget

pytestmark = pytest.mark.anyio


async def until_parked(budget: ByteBudget, waiting: int) -> None:
    while len(budget._waiting) < waiting:
        await checkpoint()


async def test_budget_serves_callers_in_order() -> None:
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


async def test_size_beyond_limit_is_admitted_alone() -> None:
    budget = ByteBudget(100)
    await budget.take(1)
    async with anyio.create_task_group() as group:
        group.start_soon(budget.take, 1000)
        await until_parked(budget, 1)
        assert budget.used == 1
        budget.give(1)
    assert budget.used == 1000


async def test_cancelled_wait_reserves_no_bytes_and_admits_next() -> None:
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


async def test_wait_granted_then_cancelled_returns_its_bytes() -> None:
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


async def test_release_all_admits_every_waiter() -> None:
    budget = ByteBudget(10)
    await budget.take(10)
    async with anyio.create_task_group() as group:
        group.start_soon(budget.take, 10)
        await until_parked(budget, 1)
        budget.release_all()
    await budget.take(10)
    assert budget.bound < 0, "every caller goes through take, where its writer tells it why"


async def test_collected_bytes_are_sent_for_starving_callers() -> None:
    """Otherwise partially filled batches could use up all the memory, and waiting callers would never be admitted."""
    budget = ByteBudget(100)
    calls = []
    budget.when_starving(lambda: calls.append(budget.used))
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


async def test_caller_without_waits_is_made_to_yield() -> None:
    budget = ByteBudget(1000)
    ran = []

    async def other() -> None:
        ran.append(True)

    async with anyio.create_task_group() as group:
        group.start_soon(other)
        await budget.take(1)
        budget.let_others_run()
        assert budget.bound == 1000, "one batch is not worth a turn of the loop"
        budget.let_others_run()
        assert budget.bound < 0
        await budget.take(1)
        await budget.take(1)
    assert ran
    assert budget.used == 3


def test_reservation_of_most_of_limit_is_rejected_with_remedy() -> None:
    budget = ByteBudget(100)
    budget.reserve(70)
    assert budget.bound == 30
    with pytest.raises(ValueError, match="raise memory_limit, or open fewer shards"):
        budget.reserve(10)
    budget.unreserve(70)
    assert budget.bound == 100


def test_reservation_ignores_temporarily_held_bytes() -> None:
    """Writers wait until memory is freed, for example that of an upload's chunk or of a large object's keys."""
    budget = ByteBudget(100)
    budget.account(1_000, chunk=True)
    budget.reserve(70)
    assert (budget.reserved, budget.bound) == (1_070, -970)
    with pytest.raises(ValueError, match="take 80 bytes"):
        budget.reserve(10)
    budget.unreserve(70)
    budget.reserve(75)
    assert budget.reserved == 1_075


def test_zero_limit_is_rejected() -> None:
    with pytest.raises(ValueError, match="must be positive"):
        ByteBudget(0)


async def test_paused_budget_admits_waiters_only_after_resume() -> None:
    """Bytes returned during the pause are not given out, and callers cannot get any without waiting either."""
    budget = ByteBudget(100)
    await budget.take(50)
    budget.pause()
    assert budget.bound < 0
    async with anyio.create_task_group() as group:
        group.start_soon(budget.take, 10)
        group.start_soon(budget.take, 20)
        await until_parked(budget, 2)
        budget.give(50)
        await checkpoint()
        assert (budget.used, len(budget._waiting)) == (0, 2)
        budget.resume()
    assert (budget.used, budget.bound) == (30, 100)
    budget.resume()
    assert budget.bound == 100, "it was not paused"


async def test_failed_writer_admits_waiters_of_paused_budget() -> None:
    budget = ByteBudget(100)
    budget.pause()
    async with anyio.create_task_group() as group:
        group.start_soon(budget.take, 10)
        await until_parked(budget, 1)
        budget.release_all()
    await budget.take(1000)
    budget.resume()
    assert budget.bound < 0


async def test_accounted_bytes_count_against_limit_until_returned() -> None:
    """The bytes already exist, so they may exceed the limit. Waiting callers are admitted once there is room again."""
    budget = ByteBudget(100)
    await budget.take(30)
    budget.account(90)
    assert (budget.reserved, budget.bound) == (90, 10)
    async with anyio.create_task_group() as group:
        group.start_soon(budget.take, 20)
        await until_parked(budget, 1)
        budget.account(-40)
        await checkpoint()
        await checkpoint()
        assert (budget.used, budget.bound) == (50, 50)
        group.start_soon(budget.take, 20)
        await until_parked(budget, 1)
        budget.account(-50)
    assert (budget.used, budget.reserved, budget.bound) == (70, 0, 100)


async def test_input_of_exactly_free_size_fits() -> None:
    budget = ByteBudget(100)
    budget.reserve(40)
    await budget.take(60)
    assert budget.used == 60
    budget.give(60)
    await budget.take(61)
    assert budget.used == 61, "alone, though it is too much"


def test_chunk_share_is_quarter_of_limit_divided_by_objects() -> None:
    assert (ByteBudget(1000).share, ByteBudget(1000, objects=5).share) == (250, 50)


def test_joint_reservation_is_rejected_in_advance() -> None:
    budget = ByteBudget(100)
    budget.reserve(25)
    budget.refuse_beyond(3)
    with pytest.raises(ValueError, match="raise memory_limit, or open fewer shards"):
        budget.refuse_beyond(4)
    assert (budget.reserved, budget.bound) == (25, 75)


async def test_waiting_time_accumulates_even_for_cancelled_calls() -> None:
    budget = ByteBudget(10)
    await budget.take(10)
    assert budget.seconds_waited == 0
    async with anyio.create_task_group() as group:
        with anyio.move_on_after(0.01):
            await budget.take(5)
        once = budget.seconds_waited
        assert once > 0
        group.start_soon(budget.take, 5)
        await until_parked(budget, 1)
        budget.give(10)
    assert budget.seconds_waited > once


async def test_caller_that_yielded_is_not_delayed_again() -> None:
    budget = ByteBudget(1000)
    budget.let_others_run()
    budget.let_others_run()
    await budget.take(1)
    assert budget.bound == 1000
    budget.let_others_run()
    assert budget.bound == 1000


class TestGrowingLimit:
    """The growing limit that a sharded writer uses unless the caller gives one."""

    def test_limit_grows_to_at_most_four_times_reserved_chunks(self) -> None:
        budget = ByteBudget(64, objects=3, most=256)
        budget.reserve(16)
        assert budget.limit == 64
        budget.reserve(16)
        budget.account(8, chunk=True)
        assert (budget.limit, budget.reserved) == (160, 40)
        budget.account(-40)
        assert (budget.limit, budget.bound) == (160, 160)

    def test_budget_does_not_grow_without_reserved_chunk(self) -> None:
        budget = ByteBudget(64, most=256)
        budget.account(40)
        assert budget.limit == 64

    def test_growing_limit_rejects_only_reservations_beyond_its_maximum(self) -> None:
        budget = ByteBudget(64, most=256)
        budget.reserve(8)
        budget.refuse_beyond(24)
        for _ in range(23):
            budget.reserve(8)
        assert (budget.limit, budget.reserved) == (256, 192)
        with pytest.raises(ValueError, match="memory_limit=256 is too small"):
            budget.reserve(1)
        with pytest.raises(ValueError, match="too small"):
            budget.refuse_beyond(2)

    @pytest.mark.parametrize("objects", [1, 16, 64, 256, 1000, 3072])
    def test_growing_limit_allows_worthwhile_chunk_for_each_object(self, objects: int) -> None:
        budget = ByteBudget(64 << 20, objects=objects, most=256 << 20)
        before = ByteBudget(256 << 20, objects=objects)
        assert min(before.share, 256 << 10) <= budget.share <= before.share
        for _ in range(objects):
            budget.reserve(max(64 << 10, min(2 << 20, budget.share)))
        assert budget.limit <= 256 << 20
        assert budget.limit == 64 << 20 or objects > 64
