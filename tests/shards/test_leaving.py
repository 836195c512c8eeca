"""A job that failed or was cancelled leaves behind exactly the objects that the next job needs."""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections.abc import Awaitable, Callable
from datetime import datetime
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import pytest

import asyncrec
from asyncrec import tools
from asyncrec.errors import ConflictError, ObjectNotFoundError, StorageError, TransientStorageError
from asyncrec.storage._base import Storage
from asyncrec.storage._local.storage import LocalStorage
from asyncrec.storage._memory import MemoryStorage
from asyncrec.testing._cancellation import cancel_at_every_checkpoint
from asyncrec.testing._clock import virtual_backend
from asyncrec.testing._faults import Fault, FlakyStorage

from .mortal import Process, elsewhere

pytestmark = pytest.mark.anyio


@pytest.fixture(params=["asyncio", "trio"])
def anyio_backend(request: pytest.FixtureRequest) -> Any:
    return virtual_backend(request.param)


def numbered(count: int, start: int = 0) -> list[bytes]:
    return [b"record %06d" % i for i in range(start, start + count)]


async def is_given_up(storage: Storage, writer: str) -> bool | None:
    """Return whether the end of a writer's log is a tombstone; `None` if the log has not ended."""
    try:
        last = max(await keys(storage, f"_manifest/pages/{writer}-"))
        head = json.loads((await storage.get(last)).splitlines()[0])
        return head["abandoned"] if head["closed"] else None
    except ValueError:
        return None


async def keys(storage: Storage, prefix: str = "") -> list[str]:
    return [info.key async for info in storage.list_objects(prefix)]


async def stored(storage: Storage) -> list[bytes]:
    try:
        manifest = await asyncrec.read_manifest("pages", storage=storage)
    except ObjectNotFoundError:
        return []
    found: list[bytes] = []
    for shard in manifest.shards:
        found += await asyncrec.read_records(shard.path, storage=storage)
    return found


@pytest.mark.parametrize("operation", ["send", "publish"])
async def test_failed_fixed_writer_keeps_claim_only_after_publish(operation: str) -> None:
    """A shard may still appear once its publication has begun, so its plain names must not be reused."""
    calm = FlakyStorage(MemoryStorage(chunk_size=64))
    async with asyncrec.open_sharded_writer("pages", storage=calm, num_shards=2, writer_id="w") as writer:
        await writer.write_many(numbered(20))
    places = [k for k, (what, key) in enumerate(calm.operations) if what == operation and key.endswith(".tfrecord")]
    assert places
    for k in places:
        inner = MemoryStorage(chunk_size=64)
        with pytest.raises(TransientStorageError):
            async with asyncrec.open_sharded_writer(
                "pages", storage=FlakyStorage(inner, {k: Fault()}), num_shards=2, writer_id="w"
            ) as writer:
                await writer.write_many(numbered(20))
        left = operation == "publish"
        assert await is_given_up(inner, "w") is (left or None)
        assert ("_manifest/pages/_claim-000001.json" in await keys(inner)) is left
        assert [key for key in await keys(inner) if key.endswith((".tfrecord", ".index"))] == []
        async with asyncrec.open_sharded_writer("pages", storage=inner, num_shards=2, writer_id="v") as writer:
            await writer.write_many(numbered(20))
        names = [shard.path for shard in (await asyncrec.read_manifest("pages", storage=inner)).shards]
        assert names == [f"pages-{'v-' if left else ''}{shard:05d}-of-00002.tfrecord" for shard in range(2)]
        assert sorted(await stored(inner)) == numbered(20)


@pytest.mark.parametrize("when", ["before", "after"])
async def test_unanswered_commit_is_retried_with_same_segment(tmp_path: Path, when: Any) -> None:
    """The time of the commit is kept, so that the second attempt recognises its own segment."""
    segment = "_manifest/pages/w-000001.jsonl"

    class Unanswered(FlakyStorage):
        """A store that responds neither to the commit nor to the check whether the commit exists."""

        failures = 2

        async def perform(self, operation: str, key: str, call: Callable[[], Awaitable[Any]], **_: Any) -> Any:
            if key != segment or not self.failures:
                return await call()
            self.failures -= 1
            if operation == "publish" and when == "after":
                await call()
            raise TransientStorageError("no answer, as asked")

    storage = Unanswered(MemoryStorage())
    async with asyncrec.open_sharded_writer(
        "pages", storage=storage, spool=tmp_path, max_shard_records=5, writer_id="w"
    ) as writer:
        await writer.write_many(numbered(6))
        with anyio.fail_after(100):
            await writer.wait(5, "committed")
        assert not storage.failures
    assert await stored(storage) == numbered(6)
    assert (await tools.verify("pages", storage=storage)).ok


async def test_spooled_shard_records_actual_commit_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now = 1_000_000_000.0
    monkeypatch.setattr(time, "time", lambda: now)
    down = True

    class Down(FlakyStorage):
        async def perform(self, operation: str, key: str, call: Callable[[], Awaitable[Any]], **_: Any) -> Any:
            if down and operation == "publish" and not key.endswith("-000000.jsonl"):
                raise TransientStorageError("down, as asked")
            return await call()

    inner = MemoryStorage()
    async with asyncrec.open_sharded_writer(
        "pages", storage=Down(inner), spool=tmp_path, max_shard_records=5
    ) as writer:
        await writer.write_many(numbered(6))
        await anyio.sleep(100)
        now += 3600
        down = False
        await writer.wait(5, "committed")
        (shard,) = (await asyncrec.read_manifest("pages", storage=inner)).shards
    assert shard.committed is not None
    assert shard.committed[:16] == "2001-09-09T02:46"


@pytest.mark.parametrize("options", [{"num_shards": 2}, {"open_shards": 2, "on_error": "discard"}])
async def test_recovered_shard_records_last_journal_write_time(tmp_path: Path, options: dict[str, Any]) -> None:
    with pytest.raises(RuntimeError):
        async with asyncrec.open_sharded_writer(tmp_path / "pages", **options) as writer:
            await writer.write_many(numbered(4))
            await writer.flush()
            raise RuntimeError
    for journal in tmp_path.glob(".pages-*.tfrecord.*.partial"):
        os.utime(journal, (1e9, 1e9))
    recovery = await asyncrec.recover(tmp_path / "pages")
    assert [(shard.records, shard.first) for shard in recovery.shards] == [(2, None)] * 2
    assert all(shard.last is not None and shard.last.startswith("2001-09-09T01:46:40") for shard in recovery.shards)


@pytest.mark.parametrize("local", [True, False])
async def test_adopted_shard_is_listed_with_all_intact_sidecars(tmp_path: Path, local: bool) -> None:
    """The entry is the same as if the writer had committed the shard, except for the time of its first record."""
    whole = MemoryStorage()
    async with asyncrec.open_sharded_writer("pages", storage=whole, writer_id="w") as writer:
        for record in numbered(7):
            await writer.write(record, key=record)
    [entry] = (await asyncrec.read_manifest("pages", storage=whole)).shards
    assert entry.index is not None
    assert entry.keys is not None
    damages: list[dict[str, bytes | None]] = [{}]
    damages += [{entry.index.path: content} for content in (b"0 17\n", b"no index", None)]
    damages += [{entry.keys.path: content} for content in (bytes(16 * 6), None)]
    for number, damage in enumerate(damages):
        storage = LocalStorage(tmp_path / str(number)) if local else MemoryStorage()
        async with asyncrec.open_sharded_writer("pages", storage=storage, writer_id="other") as writer:
            await writer.write(b"another")
        for key in (entry.path, entry.index.path, entry.keys.path):
            content = damage.get(key, await whole.get(key))
            if content is not None:
                await storage.put(key, content)
        report = await tools.verify("pages", storage=storage, min_age=-60, adopt=True)
        assert report.adopted == [entry.path]
        [again] = [
            each for each in (await asyncrec.read_manifest("pages", storage=storage)).shards if each.path == entry.path
        ]
        assert (again.records, again.bytes, again.crc32c) == (7, entry.bytes, entry.crc32c)
        assert again.index == (None if entry.index.path in damage else entry.index)
        assert again.keys == (None if entry.keys.path in damage else entry.keys)
        modified = (await storage.head(entry.path)).modified
        assert again.first is None
        assert again.last is not None
        assert datetime.fromisoformat(again.last) == modified


async def test_removal_log_number_has_one_winner(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The winner, which got no response from the store, finds out that it has won."""
    inner = MemoryStorage()

    class Unanswered(FlakyStorage):
        async def perform(self, operation: str, key: str, call: Callable[[], Awaitable[Any]], **_: Any) -> Any:
            answer = await call()
            if operation == "publish" and key.endswith("_removal-000001.jsonl"):
                raise TransientStorageError("no answer, as asked")
            return answer

    async def places() -> list[str]:
        return [key[-12:-6] for key in await keys(inner, "_manifest/pages/_removal-")]

    async def replace(storage: Storage, record: bytes) -> None:
        async with asyncrec.open_sharded_writer(
            "pages", storage=storage, mode="replace", writer_id=f"w{record.decode()}"
        ) as writer:
            await writer.write(record)

    await replace(Unanswered(inner), b"1")
    assert await places() == ["000001"]
    dead = Process(inner, "_removal-000002", done=True)
    with elsewhere(monkeypatch, tmp_path), pytest.raises(StorageError):
        await replace(dead.storage, b"2")
    with pytest.raises(ConflictError, match="the writer w2 is also replacing this data set"):
        await replace(inner, b"3")
    assert (await asyncrec.recover("pages", storage=inner, abandon=["w2"])).abandoned == ("w2",)
    await inner.put("_manifest/pages/_removal-000007.jsonl", b"no record")
    await replace(inner, b"4")
    assert (await places())[-2:] == ["000007", "000008"]
    assert await stored(inner) == [b"4"]


async def test_spool_lock_contains_only_current_process_id(tmp_path: Path) -> None:
    (tmp_path / ".asyncrec-spool").write_bytes(b"9" * 50)
    async with asyncrec.open_sharded_writer("pages", storage=MemoryStorage(), spool=tmp_path):
        assert (tmp_path / ".asyncrec-spool").read_bytes() == b"%d\n" % os.getpid()


async def test_idle_uploader_waits_without_polling(tmp_path: Path) -> None:
    """The virtual clock advances only when no task is running."""
    async with asyncrec.open_sharded_writer(
        "pages", storage=MemoryStorage(), spool=tmp_path, max_shard_records=5
    ) as writer:
        for begun in (0, 6):
            await writer.write_many(numbered(6, begun))
            await writer.wait(5, "committed")
            await anyio.sleep(3600)


class TestUnlisted:
    """A shard that is published but not listed in any manifest."""

    async def publish(self, storage: Storage, name: str) -> None:
        await asyncrec.write_records(name, numbered(1), storage=storage)
        await storage.put(f"_index/{name}.index", b"0 29\n")

    async def test_unlisted_shard_of_living_writer_is_kept(self) -> None:
        storage = MemoryStorage()
        async with asyncrec.open_sharded_writer("pages", storage=storage, writer_id="w", max_shard_records=5) as writer:
            await writer.write_many(numbered(6))
            await writer.wait(5, "committed")
            await self.publish(storage, "pages-w-000007.tfrecord")
            report = await tools.verify("pages", storage=storage, delete=True, min_age=-60)
            assert [orphan.owner for orphan in report.orphans] == ["w"]
            assert (await asyncrec.recover("pages", storage=storage)).in_use == ("w",)
            assert await asyncrec.list_shards("pages", storage=storage) == ["pages-w-000000.tfrecord"]
            assert "pages-w-000007.tfrecord" in await keys(storage)
        assert sorted(await stored(storage)) == numbered(6)

    async def test_unlisted_shard_of_closed_writer_is_removable(self) -> None:
        storage = MemoryStorage()
        async with asyncrec.open_sharded_writer("pages", storage=storage, writer_id="w") as writer:
            await writer.write_many(numbered(6))
        await self.publish(storage, "pages-w-000007.tfrecord")
        assert await asyncrec.list_shards("pages", storage=storage) == ["pages-w-000000.tfrecord"]
        assert await asyncrec.recover("pages", storage=storage) == asyncrec.Recovery()
        report = await tools.verify("pages", storage=storage, min_age=-60)
        assert [(orphan.kind, orphan.owner, orphan.refused) for orphan in report.orphans] == [
            ("shard", None, "its writer ended without committing it")
        ]
        assert "pages-w-000007.tfrecord" in await keys(storage)
        await tools.verify("pages", storage=storage, delete=True, min_age=-60)
        assert [key for key in await keys(storage) if "000007" in key] == []
        assert await stored(storage) == numbered(6)


class TestCancelledWait:
    """A write that is cancelled while it waits for room or for a thread is not accepted, and keeps no memory."""

    @pytest.mark.parametrize("size", [100, 1_500_000], ids=["small", "large"])
    @pytest.mark.parametrize("key", [None, b"key"])
    async def test_write_cancelled_at_any_await_can_be_repeated(self, size: int, key: bytes | None) -> None:
        taken: list[bytes] = []
        storage = MemoryStorage()
        run = 0
        async with asyncrec.open_sharded_writer(
            "pages", storage=storage, memory_limit=8 << 20, on_duplicate="skip" if key else "write", open_shards=2
        ) as writer:

            async def write() -> None:
                nonlocal run
                run += 1
                record = b"%06d" % run + bytes(size)
                before = writer.stats()
                try:
                    await writer.write(record, key=None if key is None else key + record[:6])
                except BaseException:
                    assert writer.stats().records == before.records
                    assert key is None or not writer.has(key + record[:6])
                    raise
                taken.append(record)

            await cancel_at_every_checkpoint(write)
            await writer.commit()
            assert writer.stats().buffered_bytes == 0
        assert sorted(await stored(storage)) == sorted(taken)

    async def test_cancelled_write_waiting_for_memory_admits_others(self) -> None:
        gate = anyio.Event()

        class Gated(FlakyStorage):
            async def perform(self, operation: str, key: str, call: Callable[[], Awaitable[Any]], **_: Any) -> Any:
                if operation == "send" and key.endswith(".tfrecord"):
                    await gate.wait()
                return await call()

        inner = MemoryStorage(chunk_size=1 << 16)
        async with asyncrec.open_sharded_writer("pages", storage=Gated(inner), memory_limit=1 << 20) as writer:
            waited: list[int] = []

            async def write(number: int) -> None:
                await writer.write(b"%06d" % number + bytes(100_000))
                waited.append(number)

            async with anyio.create_task_group() as group:
                for number in range(40):
                    group.start_soon(write, number)
                for _ in range(100):
                    await anyio.lowlevel.checkpoint()
                held = len(waited)
                assert 0 < held < 12
                group.cancel_scope.cancel()
            assert len(waited) == held
            assert writer.stats().records == held
            gate.set()
            with anyio.fail_after(10):
                await write(100)
        assert len(await stored(inner)) == held + 1


async def test_store_failure_ends_all_waits_of_all_tasks() -> None:
    storage = FlakyStorage(MemoryStorage(chunk_size=1000))
    outcomes: list[type] = []
    with pytest.raises(StorageError):
        async with asyncrec.open_sharded_writer(
            "pages", storage=storage, open_shards=3, max_shard_seconds=1, memory_limit=1 << 20
        ) as writer:

            async def work(number: int) -> None:
                try:
                    while True:
                        ticket = await writer.write(b"%d" % number + bytes(5000))
                        await writer.wait(ticket, "committed")
                except StorageError as error:
                    outcomes.append(type(error))

            async with anyio.create_task_group() as group:
                for number in range(20):
                    group.start_soon(work, number)
                for _ in range(200):
                    await anyio.lowlevel.checkpoint()
                storage._down = Fault()
                storage._script[len(storage.operations)] = Fault(for_good=True)
    assert outcomes == [TransientStorageError] * 20


async def test_discarding_writer_releases_tasks_waiting_for_commit() -> None:
    outcomes: list[str] = []
    async with anyio.create_task_group() as group:
        with pytest.raises(RuntimeError):
            async with asyncrec.open_sharded_writer("pages", storage=MemoryStorage(), on_error="discard") as writer:

                async def wait(ticket: int) -> None:
                    with pytest.raises(anyio.ClosedResourceError):
                        await writer.wait(ticket, "committed")
                    outcomes.append("told")

                group.start_soon(wait, await writer.write(b"record"))
                for _ in range(10):
                    await anyio.lowlevel.checkpoint()
                raise RuntimeError
        with anyio.fail_after(5):
            while not outcomes:  # noqa: ASYNC110 - the clock jumps
                await anyio.sleep(0.1)


@pytest.mark.parametrize("options", [{"num_shards": 2}, {"mode": "replace"}])
async def test_atomic_writer_settles_unanswered_closing_segment(options: dict[str, Any]) -> None:
    """Without a response or a visible object, the job creates the name itself, so that a late request has no effect."""
    calm = FlakyStorage(MemoryStorage())
    async with asyncrec.open_sharded_writer("pages", storage=calm, writer_id="w", **options) as writer:
        await writer.write_many(numbered(4))
    (at,) = [k for k, each in enumerate(calm.operations) if each == ("publish", "_manifest/pages/w-000001.jsonl")]
    inner = MemoryStorage()
    with pytest.raises(TransientStorageError) as caught:
        async with asyncrec.open_sharded_writer(
            "pages", storage=FlakyStorage(inner, {at: Fault()}), writer_id="w", **options
        ) as writer:
            await writer.write_many(numbered(4))
    assert any("no record of the writer w was committed" in note for note in caught.value.__notes__)
    assert await is_given_up(inner, "w")
    assert [key for key in await keys(inner) if key.endswith((".tfrecord", ".index", "w.json"))] == []
    # The store may also respond later that the object exists.
    inner = MemoryStorage()
    async with asyncrec.open_sharded_writer(
        "pages", storage=FlakyStorage(inner, {at: Fault(when="after")}), writer_id="w", **options
    ) as writer:
        await writer.write_many(numbered(4))
    assert sorted(await stored(inner)) == numbered(4)


@pytest.mark.parametrize("content", [b"", b"[]", b"{}", b'{"writer": 5}', b"\xff", b"null"])
async def test_unreadable_claim_is_respected(content: bytes) -> None:
    """The claim stays, its names are not used, and the next job takes a higher number."""
    storage = MemoryStorage()
    await storage.put("_manifest/pages/_claim-000004.json", content)
    async with asyncrec.open_sharded_writer("pages", storage=storage, num_shards=1, writer_id="w") as writer:
        assert "_manifest/pages/_claim-000005.json" in await keys(storage)
        await writer.write(b"record")
    assert await asyncrec.list_shards("pages", storage=storage) == ["pages-w-00000-of-00001.tfrecord"]
    assert await keys(storage, "_manifest/pages/_claim-") == ["_manifest/pages/_claim-000004.json"]


async def test_failed_writer_leaves_nothing_locally_or_remotely(tmp_path: Path) -> None:
    """A writer whose body fails leaves no objects, either on a disk or in a store."""
    for storage in (LocalStorage(tmp_path), MemoryStorage()):
        with pytest.raises(RuntimeError):
            async with asyncrec.open_sharded_writer("pages", storage=storage, num_shards=3) as writer:
                await writer.write_many(numbered(10))
                raise RuntimeError
        assert await keys(storage) == []


@pytest.mark.parametrize("options", [{"num_shards": 2}, {"mode": "replace"}, {}])
@pytest.mark.parametrize("answered", [True, False])
async def test_cancelled_close_keeps_committed_records(
    options: dict[str, Any], answered: bool, anyio_backend_name: str
) -> None:
    """asyncio's native cancellation ignores shields and loses the response; those of trio and anyio wait for it."""
    inner = MemoryStorage()
    closing = anyio.Event()

    class Late(FlakyStorage):
        async def perform(self, operation: str, key: str, call: Callable[[], Awaitable[Any]], **_: Any) -> Any:
            last = f"w-{1 if options else 2:06d}.jsonl"
            if operation == "publish" and key.endswith(last) and not closing.is_set():
                if answered:
                    await call()
                closing.set()
                await anyio.sleep(3)
                if answered:
                    return None
            return await call()

    async def write() -> None:
        async with asyncrec.open_sharded_writer("pages", storage=Late(inner), writer_id="w", **options) as writer:
            await writer.write_many(numbered(6))

    if anyio_backend_name == "asyncio":
        task = asyncio.ensure_future(write())
        await closing.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    else:
        async with anyio.create_task_group() as group:
            group.start_soon(write)
            await closing.wait()
            group.cancel_scope.cancel()
    if answered or anyio_backend_name != "asyncio":
        assert sorted(await stored(inner)) == numbered(6)
        assert (await tools.verify("pages", storage=inner)).ok
        if options:  # a rolling writer has promised records, so only `recover` ends its job
            assert [key for key in await keys(inner) if key.endswith("-000000.jsonl") or "/_claim-" in key] == []
        await asyncrec.recover("pages", storage=inner)
        assert [key for key in await keys(inner) if key.endswith("-000000.jsonl") or "/_claim-" in key] == []
        assert sorted(await stored(inner)) == numbered(6)
    else:
        recovered = await asyncrec.recover("pages", storage=inner)
        assert sorted(await stored(inner)) == (numbered(6) if not options else [])
        assert recovered.unfinished == ()
        assert await is_given_up(inner, "w") is bool(options)


async def test_snapshot_can_be_reread_by_id() -> None:
    storage = MemoryStorage()
    snapshots = []
    for number in range(3):
        async with asyncrec.open_sharded_writer("pages", storage=storage) as writer:
            await writer.write_many(numbered(number + 1))
        snapshots.append(await asyncrec.read_manifest("pages", storage=storage))
    for snapshot in snapshots:
        again = await asyncrec.read_manifest("pages", storage=storage, at=snapshot.id)
        assert again.shards == snapshot.shards
        assert again.id == snapshot.id
