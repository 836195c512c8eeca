"""Writers race to open, replace or abandon a data set: only one gets the name, and removed shards stay removed."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager, suppress
from typing import Any

import anyio
import pytest
from anyio.abc import TaskGroup

import asyncrec
from asyncrec.errors import ConflictError, ObjectExistsError, ObjectNotFoundError, StorageError, TransientStorageError
from asyncrec.storage import ByteSink, MemoryStorage, Storage
from asyncrec.testing import virtual_backend

from .met_storage import MetStorage

pytestmark = [pytest.mark.anyio, pytest.mark.parametrize("anyio_backend", [virtual_backend("asyncio")])]


def opened(storage: Storage, **options: Any) -> Any:
    return asyncrec.open_sharded_writer("pages", storage=storage, **options)


async def records(storage: Storage) -> list[bytes]:
    async with asyncrec.open_dataset("pages", storage=storage) as dataset:
        return sorted([record async for record in dataset])


class Fixed:
    """A writer of two fixed shards that stays open in its own task, without writing, until ``leave`` is called."""

    def __init__(self, group: TaskGroup, storage: Storage) -> None:
        self.decided, self.leave, self.ended = anyio.Event(), anyio.Event(), anyio.Event()
        self.has_opened = False
        group.start_soon(self._run, storage)

    async def _run(self, storage: Storage) -> None:
        with suppress(ConflictError, ObjectExistsError, GivenUpError):
            async with opened(storage, num_shards=2):
                self.has_opened = True
                self.decided.set()
                await self.leave.wait()
                raise GivenUpError
        self.decided.set()
        self.ended.set()


class GivenUpError(Exception):
    """Raised so that nothing is committed."""


async def test_two_fixed_writers_never_both_open() -> None:
    """The writer that has the name releases it at any step of the second writer's opening; then a third one opens."""

    async def race(step: int) -> tuple[int, int]:
        storage = MemoryStorage()
        met = MetStorage(storage)
        async with anyio.create_task_group() as group:
            first = Fixed(group, storage)
            await first.decided.wait()
            third: Fixed | None = None

            async def meet(operation: str, key: str) -> None:
                nonlocal third
                if len(met.operations) + 1 == step:
                    first.leave.set()
                    await first.ended.wait()
                    third = Fixed(group, storage)
                    await third.decided.wait()

            met.before = meet
            second = Fixed(group, met)
            await second.decided.wait()
            open_at_last = second.has_opened + (third is not None and third.has_opened)
            for writer in (first, second, third):
                if writer is not None:
                    writer.leave.set()
        return len(met.operations), open_at_last

    steps, _ = await race(0)
    assert max([(await race(step))[1] for step in range(1, steps + 1)]) == 1


class Late(MetStorage):
    """A store that reports an existing name only when a shard is published."""

    def open_sink(self, key: str, *, exclusive: bool = False) -> AbstractAsyncContextManager[ByteSink]:
        return super().open_sink(key, exclusive=exclusive and not key.endswith(".tfrecord"))


async def test_foreign_shard_appearing_during_opening_is_kept() -> None:
    """TensorFlow, which claims no name, writes a shard with that name at any step of the opening; it is not deleted."""
    alone = MetStorage(MemoryStorage())
    async with opened(alone, num_shards=2):
        steps = list(alone.operations)
    last = max(at for at, (what, _) in enumerate(steps, 1) if what == "publish")
    assert [what for what, _ in steps].count("publish") == 2, "its mark, and the name"
    for step in range(1, last + 1):
        met = Late(MemoryStorage())

        async def meet(operation: str, key: str, met: MetStorage = met, step: int = step) -> None:
            if len(met.operations) + 1 == step:
                await met.beneath.put("pages-00000-of-00002.tfrecord", b"theirs")

        met.before = meet
        with pytest.raises(ObjectExistsError, match="already exists; to replace it, pass mode='replace'"):
            async with opened(met, num_shards=2):
                raise AssertionError(step)
        assert await met.beneath.get("pages-00000-of-00002.tfrecord") == b"theirs"
        if step == 1:
            assert [what for what, _ in met.operations].count("publish") == 1, "it asks for no name that is taken"


async def test_names_of_abandoned_writer_are_never_reused() -> None:
    """The writer may be remote, with a request in flight; abandoning it may fail at any step and then be retried."""

    async def race(fails_at: int) -> list[tuple[str, str]]:
        storage = MemoryStorage()
        down = False

        async def fail(operation: str, key: str) -> None:
            if down:
                raise TransientStorageError(f"{operation} {key}: no answer, as asked")

        with pytest.raises(TransientStorageError):
            async with opened(MetStorage(storage, before=fail), num_shards=2, writer_id="w") as writer:
                down = True
                await writer.write(b"1")
        alone = MetStorage(storage)

        async def fail_for_good(operation: str, key: str) -> None:
            if fails_at and len(alone.operations) + 1 >= fails_at:
                raise TransientStorageError(f"{operation} {key}: no answer, as asked")

        alone.before = fail_for_good
        try:
            await asyncrec.recover("pages", abandon=["w"], storage=alone)
        except StorageError:
            await asyncrec.recover("pages", storage=storage)
        async with opened(storage, num_shards=2, mode="replace") as writer:
            await writer.write(b"2")
        shards = (await asyncrec.read_manifest("pages", storage=storage)).shards
        assert not {"pages-00000-of-00002.tfrecord", "pages-00001-of-00002.tfrecord"} & set(shards.paths()), fails_at
        return alone.operations

    operations = await race(0)
    for fails_at, (operation, _) in enumerate(operations, 1):
        if operation in ("publish", "delete"):  # only changes fail
            await race(fails_at)


async def test_exactly_one_replacement_wins_on_forgetful_store() -> None:
    """The store reports once, for any one object, that it does not exist."""

    async def race(step: int) -> int:
        storage = MemoryStorage()
        async with opened(storage) as writer:
            await writer.write(b"0")
        ending = False
        asked = 0

        async def forget(operation: str, key: str) -> None:
            nonlocal asked
            if ending and operation == "open_source":
                asked += 1
                if asked == step:
                    raise ObjectNotFoundError(f"{key}: the object does not exist, as asked")

        try:
            async with opened(MetStorage(storage, before=forget), mode="replace") as late:
                await late.write(b"late")
                async with opened(storage, mode="replace") as early:
                    await early.write(b"early")
                ending = True
        except ConflictError:
            assert await records(storage) == [b"early"]
        else:
            assert await records(storage) == [b"late"]
        return asked

    for step in range(1, await race(0) + 1):
        await race(step)
