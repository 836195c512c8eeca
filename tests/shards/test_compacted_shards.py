"""Shards are joined while processes die, and while other processes write, delete, replace and compact.

At every moment, each record is in the data set exactly once. Four concurrent compactions write hardly more bytes than
a single one.
"""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import anyio
import pytest

import asyncrec
from asyncrec import tools
from asyncrec.errors import AsyncRecError, ConflictError, StorageError
from asyncrec.storage import MemoryStorage, ObjectInfo, Storage
from asyncrec.storage._local.storage import LocalStorage

from .met_storage import MetAtStep, MetStorage
from .mortal import Process, elsewhere

pytestmark = [pytest.mark.anyio, pytest.mark.virtual_clock]

RECORDS = [b"record %02d." % number for number in range(24)]
CANARY = b"record 07."


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reduce the size of a piece of compaction work to two shards of 100 bytes."""
    monkeypatch.setattr("asyncrec.tools._joining._PIECE_BYTES", 200)


async def write(storage: Storage, first: int = 0, last: int = 24, **options: Any) -> None:
    async with asyncrec.open_sharded_writer("pages", storage=storage, max_shard_records=1, **options) as writer:
        for number in range(first, last):
            await writer.write(b"record %02d." % number, key=f"{number}")


async def compact(storage: Storage, **options: Any) -> tools.CompactReport:
    return await tools.compact("pages", max_shard_bytes=100, storage=storage, **options)


async def found(storage: Storage) -> list[bytes]:
    async with asyncrec.open_dataset("pages", storage=storage) as dataset:
        return [record async for record in dataset]


async def sizes(storage: Storage) -> list[int]:
    return [shard.records for shard in (await asyncrec.read_manifest("pages", storage=storage)).shards]


async def check_nothing_left(storage: Storage) -> None:
    """Check that no job has left any objects and that the old shards are gone after the grace period."""
    old = MetStorage(storage)
    await old.age(hours=2)
    await compact(old)
    keys = [info.key async for info in storage.list_objects()]
    named = {
        each for shard in (await asyncrec.read_manifest("pages", storage=storage)).shards for each in shard.objects
    }
    assert {key for key in keys if not key.startswith("_manifest/")} == named
    assert [key for key in keys if key.endswith("-000000.jsonl")] == []
    assert (await tools.verify("pages", storage=storage)).ok


@pytest.mark.slow(but=["store-37"])
@pytest.mark.parametrize(("kind", "stride"), [("disk", 23), ("store", 5), ("store", 37)])
async def test_compaction_resumes_after_kill_at_any_step(tmp_path: Path, kind: str, stride: int) -> None:
    """The first call is killed at each of its requests or disk changes; the next call does only the remaining work."""
    folders = (tmp_path / f"{number}" for number in itertools.count())
    first = LocalStorage(next(folders)) if kind == "disk" else MemoryStorage()
    await write(first)
    before = {info.key: await first.get(info.key) async for info in first.list_objects()}
    for step in itertools.count(0, stride):
        storage = LocalStorage(next(folders)) if kind == "disk" else MemoryStorage()
        for key, content in before.items():
            await storage.put(key, content)
        process = Process(storage, after=step)
        with suppress(AsyncRecError):
            await compact(process.storage)
        ended = process.after is None or process.after > 0
        assert await found(storage) == RECORDS, step
        joined = sum(each > 1 for each in await sizes(storage))
        report = await compact(storage)
        assert await sizes(storage) == [3] * 8
        assert report.into == 8 - joined
        assert await found(storage) == RECORDS
        await check_nothing_left(storage)
        if ended:
            assert step > 20
            return


async def append(storage: Storage) -> None:
    await write(storage, 24, 30, writer_id="b")


async def compact_too(storage: Storage) -> None:
    with suppress(ConflictError):  # each waits for the other
        await compact(storage)


async def merge(storage: Storage) -> None:
    await tools.compact("pages", manifest_only=True, storage=storage)


async def delete(storage: Storage) -> None:
    with suppress(ConflictError):
        await tools.delete("pages", keys=["7"], storage=storage)


@pytest.mark.slow
@pytest.mark.parametrize("act", [append, compact_too, merge, delete], ids=lambda act: act.__name__)
async def test_other_jobs_may_act_before_any_compaction_request(act: Callable[[Storage], Awaitable[None]]) -> None:
    for step in itertools.count(1, 11):
        storage = MemoryStorage()
        await write(storage, writer_id="a")
        meeting = MetAtStep(storage, act, step)
        with suppress(*([StorageError] if act in (compact_too, delete) else [])):  # it gave up waiting
            await compact(meeting.storage)
        if not meeting.done:
            assert step > 40
            return
        kept = RECORDS + [b"record %02d." % number for number in range(24, 30)] if act is append else RECORDS
        if act is delete:
            await tools.delete("pages", keys=["7"], storage=storage)
            kept = [record for record in RECORDS if record != CANARY]
            contents = [await storage.get(info.key) async for info in storage.list_objects()]
            assert not any(CANARY in content for content in contents), step
        assert await found(storage) == kept, step
        await compact(storage)
        assert await found(storage) == kept, step
        await check_nothing_left(storage)


async def test_concurrent_replacement_wins_or_loses_entirely() -> None:
    storage = MemoryStorage()
    await write(storage)
    with pytest.raises(ConflictError, match="already replaced this data set or shards of it"):
        async with asyncrec.open_sharded_writer("pages", storage=storage, mode="replace") as writer:
            await writer.write(b"instead of all")
            await compact(storage)
    assert await found(storage) == RECORDS
    replaced = False

    async def meet(operation: str, key: str) -> None:
        nonlocal replaced
        if "_removal-" in key and not replaced:
            replaced = True
            async with asyncrec.open_sharded_writer("pages", storage=storage, mode="replace") as writer:
                await writer.write(b"instead of all")

    storage = MemoryStorage()
    await write(storage)
    report = await compact(MetStorage(storage, before=meet))
    assert (report.joined, report.commits) == (0, 0)
    assert await found(storage) == [b"instead of all"]
    await check_nothing_left(storage)


async def test_compaction_ends_despite_continuing_writer() -> None:
    """Commits made too late for this call are left to the next one."""
    committed, places = 24, set[str]()

    async def meet(operation: str, key: str) -> None:
        nonlocal committed
        if "_removal-" in key and key not in places:
            places.add(key)
            assert len(places) < 20, "it goes on as long as the writer does"
            committed += 12
            await write(storage, committed - 12, committed)

    storage = MemoryStorage()
    await write(storage)
    await compact(MetStorage(storage, before=meet))
    assert len(places) > 1
    assert sorted(await found(storage)) == sorted(b"record %02d." % number for number in range(committed))
    await compact(storage)  # now that the writer has stopped
    await check_nothing_left(storage)


class Late(MetStorage):
    """A store whose listings do not show the keys in `late` yet."""

    late: frozenset[str] = frozenset()

    async def list_objects(self, prefix: str = "", *, start_after: str = "") -> AsyncIterator[ObjectInfo]:
        async for info in super().list_objects(prefix, start_after=start_after):
            if info.key not in self.late:
                yield info


async def test_removal_missing_from_first_listing_is_detected() -> None:
    storage = MemoryStorage()
    await write(storage)

    async def meet(operation: str, key: str) -> None:
        if "_removal-" in key and not late.late:
            before = {info.key async for info in storage.list_objects("_manifest/")}
            await delete(storage)
            late.late = frozenset({info.key async for info in storage.list_objects("_manifest/")} - before)
            late.late = frozenset(key for key in late.late if "_removal-" not in key)

    late = Late(storage, before=meet)
    with suppress(StorageError):  # it never sees which shards exist
        await compact(late)
    assert late.late
    kept = [record for record in RECORDS if record != CANARY]
    assert await found(storage) == kept
    await compact(storage)
    assert await found(storage) == kept


async def test_cancelled_compaction_leaves_whole_commits_and_can_resume() -> None:
    storage = MemoryStorage()
    await write(storage)
    published = 0
    with anyio.CancelScope() as scope:

        async def meet(operation: str, key: str) -> None:
            nonlocal published
            if key.startswith("pages-") and operation == "publish":
                published += 1
                if published == 3:
                    scope.cancel()

        await compact(MetStorage(storage, before=meet))
    assert scope.cancelled_caught
    assert await found(storage) == RECORDS
    assert (await compact(storage)).into == 6
    await check_nothing_left(storage)


class Counting(MetStorage):
    """A slow store that counts the bytes of published shards."""

    def __init__(self, storage: Storage) -> None:
        super().__init__(storage, before=self._wait, after=self._count)
        self.written = 0

    async def _wait(self, operation: str, key: str) -> None:
        await anyio.sleep(0.02)

    async def _count(self, operation: str, key: str) -> None:
        if operation == "publish" and key.startswith("pages-"):
            self.written += len(await self.beneath.get(key))


async def test_four_concurrent_compactions_share_work() -> None:
    alone = Counting(MemoryStorage())
    await write(alone.beneath, 0, 96)
    await compact(alone)
    together = [Counting(MemoryStorage())]
    await write(together[0].beneath, 0, 96)
    together += [Counting(together[0].beneath) for _ in range(3)]
    async with anyio.create_task_group() as group:
        for each in together:
            group.start_soon(compact, each)
    assert await sizes(together[0].beneath) == [3] * 32
    assert sum(each.written for each in together) <= 1.1 * alone.written
    assert max(each.written for each in together) < 0.7 * alone.written, "more than one has worked"
    assert len(await found(together[0].beneath)) == 96
    await check_nothing_left(together[0].beneath)


async def test_unfinished_piece_of_another_machine_is_kept_one_hour(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The other machine may still be alive. After an hour, the call does the work anyway."""
    storage = MemoryStorage()
    await write(storage, 0, 6)
    process = Process(storage)

    async def die(operation: str, key: str) -> None:
        if operation == "publish" and key.startswith("pages-"):
            process.kill()

    with elsewhere(monkeypatch, tmp_path / "elsewhere"), suppress(StorageError):
        await compact(MetStorage(process.storage, before=die))
    assert process.dead
    report = await compact(storage)
    assert (report.joined, report.left) == (0, 1)
    monkeypatch.setattr("asyncrec.tools._compact._LEFT_SECONDS", 0.0)
    report = await compact(storage)
    assert (report.joined, report.left) == (6, 0)
    assert await found(storage) == RECORDS[:6]


async def test_log_place_of_another_machine_stops_compaction_once(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """No turn can follow that of a job that may be alive, so writing more pieces would be useless."""
    monkeypatch.setattr("asyncrec.tools._compact._LEFT_SECONDS", 0.0)
    storage = MemoryStorage()
    await write(storage)
    process = Process(storage, "_removal-", done=True)
    with elsewhere(monkeypatch, tmp_path / "elsewhere"), suppress(StorageError):
        await compact(process.storage)
    assert process.dead
    published = []

    async def count(operation: str, key: str) -> None:
        if operation == "publish" and key.startswith("pages-"):
            published.append(key)

    with pytest.raises(ConflictError, match="has not ended"):
        await compact(MetStorage(storage, before=count))
    assert len(published) == 2, "one piece"
    assert await found(storage) == RECORDS
