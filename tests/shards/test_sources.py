"""Only one writer at a time owns a source, whatever other processes do between two of its requests."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable
from itertools import combinations
from typing import Any

import anyio
import pytest

import asyncrec
from asyncrec._shards.manifest.names import source_turn_key
from asyncrec._shards.manifest.segment import Segment, format_time
from asyncrec._shards.ownership.sources import take_source, take_turn
from asyncrec.errors import (
    ArgumentValueError,
    ConflictError,
    ManifestError,
    StorageError,
    TransientStorageError,
)
from asyncrec.storage._memory import MemoryStorage
from asyncrec.testing import LaxStorage

from . import mortal
from .consuming import SOURCE, Consumer, Stepping, check
from .test_flush_races import Act, Meeting

pytestmark = [pytest.mark.anyio, pytest.mark.virtual_clock]

# More requests than a consumer makes altogether.
REQUESTS = 18


async def run_beside(
    *steps: tuple[Stepping, Callable[[], Awaitable[Any]], tuple[float, ...]], order: list[int]
) -> None:
    """Run one process at a time, in the given order; each makes the next of its numbers of requests, and is then
    paused.
    """
    left = [iter(counts) for _, _, counts in steps]
    async with anyio.create_task_group() as group:
        for store, act, _ in steps:
            store.left = 0

            async def run(store: Stepping = store, act: Callable[[], Awaitable[Any]] = act) -> None:
                await act()
                store.ends()

            group.start_soon(run)
        for number in order:
            await steps[number][0].go(next(left[number]))


@pytest.mark.slow(but=["2-new"])
@pytest.mark.parametrize("begins", ["new", "stored", "killed"])
@pytest.mark.parametrize("first", [0, 1, *range(2, REQUESTS, 3)])
async def test_source_contested_by_two_consumers_has_one_owner(first: int, begins: str) -> None:
    """Pause the first consumer after ``first`` requests, then the second at any request; the first finishes first."""
    second = 0
    is_over = False
    while not is_over:
        storage = MemoryStorage()
        owner = await Consumer(storage, "w").begin()
        if begins != "new":
            await owner.take()
            await owner.commit(2, release=begins == "stored")
        ways = [Stepping(storage), Stepping(storage)]
        one, two = [await Consumer(way, name).begin() for way, name in zip(ways, "ab", strict=True)]
        asked = ways[1].asked
        await run_beside(
            (ways[0], one.consume, (first, math.inf)), (ways[1], two.consume, (second, math.inf)), order=[0, 1, 0, 1]
        )
        is_over = ways[1].asked - asked <= second
        assert one.acknowledged or two.acknowledged
        await one.commit()
        await owner.commit()
        await two.commit()
        await owner.commit()
        last = await check(storage, owner, one, two)
        three = await Consumer(storage, "c").begin()
        assert await three.take()
        await three.commit()
        for other in (owner, one, two):
            await other.commit()
        assert await check(storage, owner, one, two, three) == last + 1
        second += 1


@pytest.mark.slow(but=["(4, 8)", "(8, 14)"])
@pytest.mark.parametrize("act", ["commits", "releases", "releases and takes", "ends"])
@pytest.mark.parametrize("places", list(combinations(range(0, 20, 2), 2)), ids=str)
async def test_owner_actions_during_take_over_of_source_are_safe(places: tuple[int, int], act: str) -> None:
    """The owner acts between any two requests of the consumer that takes the source."""
    storage = MemoryStorage()
    owner = await Consumer(storage, "w").begin()
    await owner.take()
    await owner.commit()
    seen = 0

    async def first() -> None:
        await owner.commit(release=act != "commits")

    async def second() -> None:
        if act == "releases and takes":
            await owner.take()
        await owner.commit(2)

    def meet(what: str, key: str, done: bool) -> Act | None:
        nonlocal seen
        if done:
            return None
        seen += 1
        return {places[0] + 2: first, places[1] + 2: second}.get(seen)  # after its log has begun

    other = await Consumer(Meeting(storage, meet), "a").begin()
    await other.take()
    await other.commit(2)
    await owner.commit()
    await other.commit()
    assert await check(storage, owner, other) >= 1
    assert other.taken is not None or owner.taken is not None


@pytest.mark.parametrize("done", [False, True])
@pytest.mark.parametrize("place", range(24))
async def test_failed_request_leaves_source_available(place: int, done: bool) -> None:
    """The same writer tries again, and then another writer takes the source."""
    storage = MemoryStorage()
    owner = await Consumer(storage, "w").begin()
    await owner.take()
    await owner.commit(2)
    seen = 0

    async def fail() -> None:
        raise TransientStorageError("lost, as asked")

    def meet(what: str, key: str, was_done: bool) -> Act | None:
        nonlocal seen
        if was_done != done:
            return None
        seen += 1
        return fail if seen == place + 2 else None

    again = await Consumer(Meeting(storage, meet), "a").begin()
    try:
        await again.take()
    except StorageError:
        assert await again.take()
    await again.commit(2)
    await owner.commit()
    other = await Consumer(storage, "b").begin()
    assert await other.take()
    await other.commit()
    await again.commit()
    assert await check(storage, owner, again, other) == len([*again.acknowledged, *other.acknowledged]) + 1


@pytest.mark.parametrize("done", [False, True])
@pytest.mark.parametrize("place", range(24))
async def test_source_of_consumer_killed_during_take_remains_available(place: int, done: bool) -> None:
    """The killed consumer's last request, if it was to create a small object, arrives late."""
    storage = MemoryStorage()
    owner = await Consumer(storage, "w").begin()
    await owner.take()
    await owner.commit(2)
    process = mortal.Process(storage)
    seen = 0

    async def kill() -> None:
        process.kill()

    def meet(what: str, key: str, was_done: bool) -> Act | None:
        nonlocal seen
        seen += was_done == done
        return kill if was_done == done and seen == place + 2 else None

    dead = await Consumer(Meeting(process.storage, meet), "d").begin()
    try:
        await dead.take()
        await dead.commit(2)
    except StorageError:
        pass
    one, two = [await Consumer(storage, name).begin() for name in "ab"]
    assert await one.take()
    await one.commit()
    assert await two.take()
    await one.commit()
    await two.commit()
    await check(storage, owner, dead, one, two)


async def test_used_and_deleted_source_turn_is_skipped() -> None:
    """One consumer lists the turns and sleeps; meanwhile two others own the source, and the older turn is deleted."""
    storage = MemoryStorage()
    others = [await Consumer(storage, name).begin() for name in "bc"]
    slow = True

    async def sleep() -> None:
        nonlocal slow
        slow = False
        for other in others:
            assert await other.take()
            await other.commit()
        await storage.delete(source_turn_key("pages", SOURCE, 1))

    def meet(what: str, key: str, done: bool) -> Act | None:
        return sleep if slow and what == "put" and not done and key == source_turn_key("pages", SOURCE, 1) else None

    one = await Consumer(Meeting(storage, meet), "a").begin()
    await one.take()
    assert one.taken is not None
    assert one.taken.turn == 3
    await others[1].commit()
    await one.commit()
    assert await check(storage, one, *others) == 2


async def test_stale_listings_assign_no_turn_twice() -> None:
    storage = LaxStorage(MemoryStorage(), stale=5.0)
    owner = None
    for number in range(4):
        consumer = await Consumer(storage, f"c{number}").begin()
        await consumer.take()
        assert consumer.taken is not None
        assert consumer.taken.turn == number + 1
        if owner is not None:
            await owner.commit()
            assert owner.acknowledged == []
        owner = consumer


async def test_recovered_writer_retakes_source_in_next_log() -> None:
    """Another process has ended the writer's log because of a different source."""
    storage = MemoryStorage()
    owner = await Consumer(storage, "w").begin()
    assert await owner.take()
    await owner.commit(2)
    turn = owner.taken.turn  # type: ignore[union-attr]  # it owns the source
    await asyncrec.recover("pages", storage=storage, dead=["w"])
    new = await Consumer(storage, "v").begin()
    assert await new.take(since=turn)
    await owner.commit()
    await new.commit()
    assert await check(storage, owner, new) == 2


async def test_writer_cannot_retake_lost_source() -> None:
    storage = MemoryStorage()
    owner = await Consumer(storage, "w").begin()
    assert await owner.take()
    turn = owner.taken.turn  # type: ignore[union-attr]  # it owns the source
    other = await Consumer(storage, "a").begin()
    assert await other.take()
    new = await Consumer(storage, "v").begin()
    with pytest.raises(ConflictError, match="the writer a has taken the source 'topic/3'"):
        await take_source(storage, new.header, SOURCE, since=turn)
    await other.commit()
    assert await check(storage, owner, other, new) == 0


async def test_writer_with_ended_log_acquires_no_source() -> None:
    """Another writer took the source at the same moment and ended the log."""
    storage = MemoryStorage()
    other = await Consumer(storage, "b").begin()

    def meet(what: str, key: str, done: bool) -> Act | None:
        return other.take if done and what == "put" and "_source-" in key and other.taken is None else None

    one = await Consumer(Meeting(storage, meet), "a").begin()
    with pytest.raises(ConflictError) as caught:
        await take_source(Meeting(storage, meet), one.header, SOURCE)
    assert caught.value.ended
    await other.commit()
    assert await check(storage, one, other) == 0


async def test_source_turn_exceeds_turn_of_copied_position() -> None:
    storage = MemoryStorage()
    released = {SOURCE: 9}
    time = format_time(1.8e9)
    copied = Segment(writer="c", time=time, closed=True, progress={SOURCE: (7, 41)}, releases=released)
    await storage.put("_manifest/pages/c-000001.jsonl", copied.encode())
    consumer = await Consumer(storage, "w").begin()
    assert await consumer.take()
    assert consumer.taken is not None
    assert (consumer.taken.turn, consumer.taken.position) == (10, 41)


async def test_source_name_with_colliding_hash_raises() -> None:
    storage = MemoryStorage()
    await storage.put(source_turn_key("pages", SOURCE, 1), b'{"version": 1, "source": "other", "writer": "w"}\n')
    with pytest.raises(ManifestError, match="'topic/3' and 'other' have the same hash"):
        await take_turn(storage, "pages", "a", SOURCE)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"[]",
        b"{}",
        b'"' * 5000,
        b"x" * 10_000,
        b'{"version": 2, "source": "topic/3", "writer": "w"}',
        b'{"version": true, "source": "topic/3", "writer": "w"}',
        b'{"version": 1, "source": "topic/3", "writer": ""}',
        b'{"version": 1, "source": "topic/3", "writer": 7}',
        b'{"version": 1, "source": "topic/3", "writer": "../../w"}',
    ],
)
async def test_damaged_turn_is_reported_and_kept(content: bytes) -> None:
    storage = MemoryStorage()
    key = source_turn_key("pages", SOURCE, 4)
    await storage.put(key, content)
    with pytest.raises(ManifestError, match=r"-000004\.json"):
        await take_turn(storage, "pages", "a", SOURCE)
    assert [info.key async for info in storage.list_objects()] == [key]


@pytest.mark.parametrize("kind", ["fixed", "whole"])
async def test_atomic_job_cannot_acquire_source(kind: Any) -> None:
    storage = MemoryStorage()
    consumer = Consumer(storage, "w")
    header = type(consumer.header)(kind=kind, name="pages", writer="w", url="", num_shards=2, metadata={})
    with pytest.raises(ArgumentValueError, match="source="):
        await take_source(storage, header, SOURCE)
    assert [info async for info in storage.list_objects()] == []


async def test_source_beyond_limit_is_rejected(monkeypatch: pytest.MonkeyPatch) -> None:
    storage = MemoryStorage()
    progress = {f"{number}": (1, 0) for number in range(100_000)}
    segment = Segment(writer="c", time=format_time(1.8e9), closed=True, progress=progress)
    await storage.put("_manifest/pages/c-000001.jsonl", segment.encode())
    with pytest.raises(ArgumentValueError, match="100,000 sources"):
        await take_turn(storage, "pages", "w", SOURCE)
    assert (await take_turn(storage, "pages", "w", "77")).turn == 2
