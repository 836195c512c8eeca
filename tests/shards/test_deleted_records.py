"""Records are deleted while processes die, and while other processes write, read, compact, replace and delete.

At every moment, each remaining record is in the data set exactly once. After the deletion, no deleted record is left.
"""

from __future__ import annotations

import hashlib
import itertools
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import anyio
import pytest

import asyncrec
from asyncrec import tools
from asyncrec.errors import AsyncRecError, ConflictError, StorageError
from asyncrec.storage import MemoryStorage, Storage
from asyncrec.storage._local.storage import LocalStorage

from .met_storage import MetAtStep, MetStorage
from .mortal import Process

pytestmark = [pytest.mark.anyio, pytest.mark.virtual_clock]

KEYS = ["1", "2", "11", "12"]
DELETED = {b"canary %d." % number for number in (1, 2, 11, 12)}
KEPT = Counter(b"record %d." % number for number in range(20) if str(number) not in KEYS)


async def write(storage: Storage, first: int = 0, last: int = 20, **options: Any) -> None:
    async with asyncrec.open_sharded_writer("pages", storage=storage, max_shard_records=5, **options) as writer:
        for number in range(first, last):
            word = b"canary" if str(number) in KEYS else b"record"
            await writer.write(b"%b %d." % (word, number), key=f"{number}")


async def delete(storage: Storage) -> tools.DeleteReport:
    return await tools.delete("pages", keys=KEYS, storage=storage)


async def found(storage: Storage) -> Counter[bytes]:
    async with asyncrec.open_dataset("pages", storage=storage) as dataset:
        return Counter([record async for record in dataset])


async def check_gone(storage: Storage, kept: Counter[bytes] = KEPT) -> None:
    """Check that neither a deleted record nor any object of the job that deleted it is left."""
    keys = [info.key async for info in storage.list_objects()]
    contents = {key: await storage.get(key) for key in keys}
    digests = [hashlib.blake2b(key.encode(), digest_size=16).digest() for key in KEYS]
    left = [key for key, content in contents.items() if any(each in content for each in (*DELETED, *digests))]
    assert left == []
    assert [key for key in keys if key.endswith("-000000.jsonl")] == []
    verified = await tools.verify("pages", storage=storage, min_age=-60)
    assert verified.ok
    assert verified.orphans == []
    assert await found(storage) == kept


@pytest.mark.slow(but=["store-11-compacted"])
@pytest.mark.parametrize("compacted", [False, True], ids=["", "compacted"])
@pytest.mark.parametrize(("kind", "stride"), [("disk", 7), ("store", 1), ("store", 11)])
async def test_deletion_resumes_after_kill_at_any_step(tmp_path: Path, kind: str, stride: int, compacted: bool) -> None:
    """The first call is killed at each of its requests or disk changes; the next call does the remaining work."""
    folders = (tmp_path / f"{number}" for number in itertools.count())
    first = LocalStorage(next(folders)) if kind == "disk" else MemoryStorage()
    await write(first)
    if compacted:
        await tools.compact("pages", storage=first, manifest_only=True)
    before = {info.key: await first.get(info.key) async for info in first.list_objects()}
    for step in itertools.count(0, stride):
        storage = LocalStorage(next(folders)) if kind == "disk" else MemoryStorage()
        for key, content in before.items():
            await storage.put(key, content)
        process = Process(storage, after=step)
        with suppress(AsyncRecError):
            await delete(process.storage)
        ended = process.after is None or process.after > 0
        half = await found(storage)
        assert half & KEPT == KEPT, step
        assert set(half) <= {*KEPT, *DELETED}, step
        assert max(half.values()) == 1, step
        await delete(storage)
        await check_gone(storage)
        if ended:
            assert step > 20
            return


async def compact(storage: Storage) -> None:
    await tools.compact("pages", storage=storage, manifest_only=True)


async def append(storage: Storage) -> None:
    await write(storage, 20, 25, on_duplicate="write")


async def delete_too(storage: Storage) -> None:
    with suppress(ConflictError):  # each waits for the other
        await delete(storage)


@pytest.mark.slow
@pytest.mark.parametrize("act", [compact, append, delete_too], ids=lambda act: act.__name__)
async def test_other_jobs_may_act_before_any_deletion_request(act: Callable[[Storage], Awaitable[None]]) -> None:
    kept = KEPT + Counter(b"record %d." % number for number in range(20, 25)) if act is append else KEPT
    for step in itertools.count(1, 3):
        storage = MemoryStorage()
        await write(storage)
        await compact(storage)
        meeting = MetAtStep(storage, act, step)
        with suppress(*([StorageError] if act is delete_too else [])):  # it gave up after two minutes
            await delete(meeting.storage)
        if not meeting.done:
            assert step > 40
            return
        if act is delete_too:
            await delete(storage)
        assert await found(storage) == kept, step
        await check_gone(storage, kept)


@pytest.mark.slow
async def test_deletion_at_any_compaction_request_leaves_no_key() -> None:
    for step in itertools.count(1):
        storage = MemoryStorage()
        await write(storage)
        meeting = MetAtStep(storage, delete_too, step)
        await compact(meeting.storage)
        if not meeting.done:
            assert step > 15
            return
        await check_gone(storage)


async def test_key_committed_during_deletion_is_also_deleted() -> None:
    """A second writer commits the key after the deletion has first searched for it but before it takes its turn."""
    storage = MemoryStorage()
    await write(storage)
    acted = False

    async def meet(operation: str, key: str) -> None:
        nonlocal acted
        if "_removal-" in key and not acted:
            acted = True
            await write(storage, 0, 5, on_duplicate="write")

    report = await tools.delete("pages", keys=KEYS, storage=MetStorage(storage, before=meet))
    assert acted
    assert report.records == 6
    await check_gone(storage, KEPT + Counter(b"record %d." % number for number in (0, 3, 4)))


async def test_replacement_racing_deletion_wins_or_loses_entirely() -> None:
    """The records of whichever commits first are kept, and no deleted record reappears."""
    storage = MemoryStorage()
    await write(storage)
    with pytest.raises(ConflictError, match="already replaced this data set or shards of it"):
        async with asyncrec.open_sharded_writer("pages", storage=storage, mode="replace") as writer:
            await writer.write(b"instead of all")
            await delete(storage)
    await check_gone(storage)

    async def meet(operation: str, key: str) -> None:
        if "_removal-" in key:
            async with asyncrec.open_sharded_writer("pages", storage=storage, mode="replace") as writer:
                await writer.write(b"instead of all", key="1")
                met.before = no_more

    async def no_more(operation: str, key: str) -> None:
        return None

    await write(storage, 0, 5, on_duplicate="write")
    met = MetStorage(storage, before=meet)
    report = await tools.delete("pages", keys=KEYS, storage=met)
    assert report.records == 1
    assert await found(storage) == Counter()


async def test_cancelled_deletion_leaves_whole_commits_and_can_resume() -> None:
    storage = MemoryStorage()
    await write(storage)
    with anyio.CancelScope() as scope:

        async def meet(operation: str, key: str) -> None:
            if ".tfrecord" in key and operation == "publish":
                scope.cancel()

        await tools.delete("pages", keys=KEYS, storage=MetStorage(storage, before=meet))
    assert scope.cancelled_caught
    assert sum((await found(storage)).values()) == 20
    await delete(storage)
    await check_gone(storage)


async def test_deletion_covers_shards_left_by_dead_replacement() -> None:
    """The replacement committed but died before it deleted the old shards, which still contain the records."""
    storage = MemoryStorage()
    await write(storage)
    process = Process(storage)

    async def die(operation: str, key: str) -> None:
        if operation == "delete" and key.startswith("pages-"):
            process.kill()

    with suppress(StorageError):
        await write(MetStorage(process.storage, before=die), 3, 11, mode="replace")
    assert process.dead
    assert len([info.key async for info in storage.list_objects("pages-")]) > 2
    report = await delete(storage)
    assert report.records == 0
    contents = [await storage.get(info.key) async for info in storage.list_objects()]
    assert not any(record in content for content in contents for record in DELETED)
    assert report.objects != []
    await asyncrec.recover("pages", storage=storage)
    await check_gone(storage, Counter(b"record %d." % number for number in range(3, 11)))
