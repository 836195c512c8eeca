"""The cancellation helper visits each await exactly once."""

from __future__ import annotations

import anyio
import anyio.lowlevel
import pytest

from asyncrec.testing import cancel_at_checkpoint, cancel_at_every_checkpoint

pytestmark = pytest.mark.anyio


async def test_cancel_helper_cancels_every_await_in_turn() -> None:
    reached: list[int] = []

    async def func() -> None:
        reached.append(0)
        for n in (1, 2, 3):
            await anyio.lowlevel.checkpoint()
            reached[-1] = n

    count = await cancel_at_every_checkpoint(func)
    assert count == len(reached) - 1
    assert reached[-1] == 3, "the last run is not cancelled"
    assert set(reached) == {0, 1, 2, 3}
    assert reached == sorted(reached)


async def test_after_callback_error_names_checkpoint() -> None:
    runs = 0

    async def func() -> None:
        await anyio.lowlevel.checkpoint()
        await anyio.lowlevel.checkpoint()

    async def after() -> None:
        nonlocal runs
        runs += 1

    assert await cancel_at_every_checkpoint(func, after=after) == runs - 1

    async def complain() -> None:
        raise ValueError("left behind")

    with pytest.raises(ValueError, match="left behind") as caught:
        await cancel_at_every_checkpoint(func, after=complain)
    assert caught.value.__notes__ == ["after cancellation at checkpoint 1"]


async def test_error_during_cancellation_names_checkpoint() -> None:
    async def func() -> None:
        try:
            await anyio.sleep_forever()
        finally:
            raise KeyError("clean-up")

    with pytest.raises(KeyError) as caught:
        await cancel_at_checkpoint(func, 1)
    assert caught.value.__notes__ == ["raised when cancelled at checkpoint 1"]


async def test_shielded_code_continues_under_cancellation_at_checkpoints() -> None:
    finished = []

    async def func() -> None:
        with anyio.CancelScope(shield=True):
            await anyio.lowlevel.checkpoint()
            await anyio.lowlevel.checkpoint()
            finished.append(True)

    count = await cancel_at_every_checkpoint(func)
    assert len(finished) == count + 1


async def test_tasks_are_cancelled_with_their_scope() -> None:
    cancelled = []

    async def child() -> None:
        try:
            await anyio.sleep_forever()
        except anyio.get_cancelled_exc_class():
            cancelled.append(True)
            raise

    async def func() -> None:
        async with anyio.create_task_group() as group:
            group.start_soon(child)
            await anyio.lowlevel.checkpoint()
            await anyio.lowlevel.checkpoint()

    for n in (2, 3):
        assert await cancel_at_checkpoint(func, n)
    assert cancelled


async def test_function_without_await_has_no_checkpoint() -> None:
    async def func() -> None:
        pass

    assert await cancel_at_every_checkpoint(func) == 0
    assert not await cancel_at_checkpoint(func, 1)
