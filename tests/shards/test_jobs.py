"""Each job creates a data set or gets an error, and leaves only known objects behind, even if killed (`mortal`)."""

from __future__ import annotations

import errno
import os
import stat
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import pytest

import asyncrec
from asyncrec import tools
from asyncrec._framing.encoding import encode_frames
from asyncrec.errors import (
    ConflictError,
    ObjectExistsError,
    ObjectNotFoundError,
    StorageError,
    StoragePermissionError,
    TransientStorageError,
)
from asyncrec.storage._base import Buffer, ObjectInfo, Storage
from asyncrec.storage._local.storage import LocalStorage
from asyncrec.storage._memory import MemoryStorage
from asyncrec.testing import LaxStorage
from asyncrec.testing._faults import Call, FlakyStorage, T, _Around

from .mortal import Process, elsewhere, killed

pytestmark = pytest.mark.anyio

# The object that makes a commit visible.
MANIFEST = "-000001.jsonl"
# The object that ends a replacing job.
END = "_manifest/pages/dead-000001"


@pytest.fixture(params=["memory", "local", "lax"])
def storage(request: pytest.FixtureRequest, tmp_path: Path) -> Storage:
    made: dict[str, Callable[[], Storage]] = {
        "memory": MemoryStorage,
        "local": lambda: LocalStorage(tmp_path),
        "lax": lambda: LaxStorage(MemoryStorage(chunk_size=200)),
    }
    return made[request.param]()


@asynccontextmanager
async def opened_elsewhere(
    monkeypatch: pytest.MonkeyPatch, folder: Path, **options: Any
) -> AsyncIterator[asyncrec.ShardedWriter]:
    """Open a writer as if on another machine."""
    async with AsyncExitStack() as stack:
        with elsewhere(monkeypatch, folder / "elsewhere"):
            writer = await stack.enter_async_context(asyncrec.open_sharded_writer("pages", **options))
        yield writer


def records(name: str, count: int = 10) -> list[bytes]:
    return [f"{name}{number}".encode() * 9 for number in range(count)]


async def write(storage: Storage, name: str, **options: Any) -> None:
    async with asyncrec.open_sharded_writer("pages", storage=storage, **options) as writer:
        for record in records(name):
            await writer.write(record, key=record)


async def dies(storage: Storage, name: str, at: str, *, done: bool = False, **options: Any) -> Process:
    """Open a writer, write records, and kill its process when it creates the object given to `Process`."""
    process = Process(storage, at, done=done)
    with pytest.raises((StorageError, anyio.ClosedResourceError)):
        await write(process.storage, name, **options)
    assert process.dead
    return process


async def stored(storage: Storage) -> list[bytes]:
    """Return all records of the data set, after checking that it is intact (`verify`) and that every key is found."""
    report = await tools.verify("pages", storage=storage)
    assert report.ok, report.to_json()
    found = []
    async with asyncrec.open_dataset("pages", storage=storage) as dataset:
        for shard in dataset.manifest.shards:
            here = await asyncrec.read_records(shard.path, storage=storage)
            if shard.keys is not None:
                for record in here:
                    assert await dataset.get_by_key(record) == record
            found += here
    return sorted(found)


def is_segment(key: str) -> bool:
    """Return whether an object is a commit or the end of a log."""
    return key.startswith("_manifest/") and not is_of_a_job(key)


def is_of_a_job(key: str) -> bool:
    """Return whether an object is a job's mark in its log, or a claim."""
    return key.endswith("-000000.jsonl") or "/_claim-" in key


async def unowned(storage: Storage) -> list[str]:
    """Return the objects that no manifest lists, the jobs' marks, and the claims."""
    keys = [info.key async for info in storage.list_objects()]
    try:
        manifest = await asyncrec.read_manifest("pages", storage=storage)
    except ObjectNotFoundError:
        named: set[str] = set()
    else:
        named = {key for shard in manifest.shards for key in shard.objects}
    return [key for key in keys if key not in named and (is_of_a_job(key) or not key.startswith("_manifest/"))]


class TestOneMaker:
    async def test_second_fixed_writer_is_rejected_on_opening(self, storage: Storage) -> None:
        async with asyncrec.open_sharded_writer("pages", num_shards=2, storage=storage) as first:
            with pytest.raises(ConflictError, match=r"has not finished writing this data set|claimed this name"):
                await write(storage, "b", num_shards=2)
            for record in records("a"):
                await first.write(record, key=record)
        assert await stored(storage) == sorted(records("a"))
        assert await unowned(storage) == []

    async def test_writer_id_is_exclusive_even_before_any_commit(self, storage: Storage) -> None:
        async with asyncrec.open_sharded_writer("pages", writer_id="w", storage=storage) as first:
            with pytest.raises(ObjectExistsError, match="id w"):
                await write(storage, "b", writer_id="w")
            for record in records("a"):
                await first.write(record, key=record)
        with pytest.raises(ObjectExistsError, match="id w"):
            await write(storage, "b", writer_id="w")
        assert await stored(storage) == sorted(records("a"))
        assert await unowned(storage) == []

    async def test_new_data_set_has_one_creator_but_accepts_appends(self, storage: Storage) -> None:
        async with asyncrec.open_sharded_writer("pages", mode="new", storage=storage) as first:
            with pytest.raises(ConflictError):
                await write(storage, "b", mode="new")
            await write(storage, "c")
            await first.write_many(records("a"))
        assert await stored(storage) == sorted(records("a") + records("c"))

    @pytest.mark.slow
    async def test_fixed_writer_race_has_one_winner_without_mixture(self, anyio_backend: Any) -> None:
        """The store, like Ceph, ignores the condition of a multipart upload."""
        for number in range(100):
            storage = LaxStorage(MemoryStorage(chunk_size=200))
            outcomes: list[str] = []

            async def race(name: str, storage: Storage = storage, outcomes: list[str] = outcomes) -> None:
                try:
                    await write(storage, name, num_shards=2)
                except (ConflictError, ObjectExistsError):
                    return
                outcomes.append(name)

            async with anyio.create_task_group() as group:
                for name in "ab" if number % 2 else "ba":
                    group.start_soon(race, name)
            assert len(outcomes) == 1
            assert await stored(storage) == sorted(records(outcomes[0]))

    @pytest.mark.parametrize("second_before", ["its claim", "its look round"])
    async def test_name_of_dead_writer_passes_to_one_successor(
        self, storage: Storage, monkeypatch: pytest.MonkeyPatch, second_before: str
    ) -> None:
        async with killed(storage, num_shards=2) as dead:
            await dead.write(b"lost")
        put, waiting, decided = storage.put, anyio.Event(), anyio.Event()
        opened = []

        async def put_and_wait(key: str, data: Buffer, *, exclusive: bool = False) -> ObjectInfo:
            if "_claim-" not in key or waiting.is_set():
                return await put(key, data, exclusive=exclusive)
            made = await put(key, data, exclusive=exclusive) if second_before == "its look round" else None
            waiting.set()
            await decided.wait()
            return made or await put(key, data, exclusive=exclusive)

        async def race(name: str) -> None:
            with suppress(ConflictError, ObjectExistsError):
                async with asyncrec.open_sharded_writer("pages", num_shards=2, storage=storage) as writer:
                    opened.append(name)
                    await writer.write_many(records(name))
                    decided.set()
                    await anyio.wait_all_tasks_blocked()
            decided.set()

        monkeypatch.setattr(storage, "put", put_and_wait)
        async with anyio.create_task_group() as group:
            group.start_soon(race, "a")
            await waiting.wait()
            group.start_soon(race, "b")
        assert len(opened) == 1
        assert await stored(storage) == sorted(records(opened[0]))


class TestUsedIds:
    @pytest.mark.parametrize("options", [{}, {"num_shards": 2}])
    async def test_failed_opening_removes_no_files_of_current_owner(
        self, storage: Storage, options: dict[str, Any]
    ) -> None:
        async with asyncrec.open_sharded_writer("pages", writer_id="w", storage=storage, **options) as first:
            for record in records("a"):
                await first.write(record, key=record)
            with pytest.raises(TypeError):
                await write(storage, "b", writer_id="w", metadata={"not": {"in", "JSON"}}, **options)
            for steps in range(1, 12):
                async with anyio.create_task_group() as group:
                    group.start_soon(self.told, storage, options)
                    for _ in range(steps):
                        await anyio.lowlevel.checkpoint()
                    group.cancel_scope.cancel()
            if options:
                with pytest.raises(ConflictError):
                    await write(storage, "c", **options)
        assert await stored(storage) == sorted(records("a"))
        assert await unowned(storage) == []

    async def test_late_mark_of_rejected_writer_is_proven_dead(self) -> None:
        """The backend repeated the first, unanswered request, and the repetition found a different writer's mark."""
        store, late = MemoryStorage(), []

        class AskingAgain(MemoryStorage):
            async def put(self, key: str, data: Buffer, *, exclusive: bool = False) -> ObjectInfo:
                late.append((key, data))
                return await store.put(key, data, exclusive=exclusive)

            async def get(self, key: str, *, max_bytes: int | None = None) -> bytes:
                return await store.get(key, max_bytes=max_bytes)

        await store.put("_manifest/pages/w-000000.jsonl", b"of one that fails to open and takes it away")
        with pytest.raises(ObjectExistsError, match="has not been cleaned up"):
            await write(AskingAgain(), "b", writer_id="w")
        [(key, content)] = late
        await store.put(key, content)
        assert (await asyncrec.recover("pages", storage=store)).unfinished == ()
        assert [info.key async for info in store.list_objects("_manifest/") if is_of_a_job(info.key)] == []

    @pytest.mark.parametrize("cancelled", [False, True])
    @pytest.mark.parametrize("options", [{"max_shard_records": 3}, {"num_shards": 2}])
    async def test_spool_of_rejected_writer_is_not_mistaken_for_owner(
        self, tmp_path: Path, options: dict[str, Any], cancelled: bool
    ) -> None:
        store = MemoryStorage()

        class Unheard(MemoryStorage):
            async def put(self, key: str, data: Buffer, *, exclusive: bool = False) -> ObjectInfo:
                cancelling.cancel()
                await anyio.sleep_forever()

        async with asyncrec.open_sharded_writer(
            "pages", writer_id="w", storage=store, spool=tmp_path / "a", **options
        ) as first:
            await first.write_many(records("a", 5))
            await first.flush()
            refused = {"storage": Unheard() if cancelled else store, "spool": tmp_path / "b", **options}
            with anyio.CancelScope() as cancelling, suppress(ObjectExistsError):
                await write(**refused, name="b", writer_id="w")
            assert (await asyncrec.recover(tmp_path / "b", to="pages", storage=store)).records == 0
            async with asyncrec.open_sharded_writer("others", storage=MemoryStorage(), spool=tmp_path / "b") as other:
                await other.write(b"nothing of the first one is left there")
            await first.write_many(records("c", 5))
        assert await stored(store) == sorted(records("a", 5) + records("c", 5))
        assert await unowned(store) == []

    async def told(self, storage: Storage, options: dict[str, Any]) -> None:
        with pytest.raises((ObjectExistsError, ConflictError)):
            await write(storage, "b", writer_id="w", **options)

    async def test_abandoned_writer_id_is_rejected_on_opening(
        self, storage: Storage, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        async with killed(storage, writer_id="w", num_shards=2) as writer:
            await writer.write_many(records("a"))
        assert (await asyncrec.recover("pages", storage=storage)).abandoned == ("w",)
        with pytest.raises(
            ObjectExistsError, match="pages: a writer with the id w has already written to this data set or was"
        ):
            await write(storage, "b", writer_id="w", num_shards=2)
        await write(storage, "b", num_shards=2)
        assert await stored(storage) == sorted(records("b"))

    async def test_full_disk_keeps_header_of_dead_writer(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        async with killed(LocalStorage(tmp_path), writer_id="w") as writer:
            for record in records("a"):
                await writer.write(record, key=record)
            assert await writer.flush() == "spooled"

        class Full:
            def __getattr__(self, name: str) -> Any:
                return getattr(os, name)

            def write(self, fd: int, data: bytes) -> int:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

        with pytest.raises(StorageError, match="No space left"):
            await write(LocalStorage(tmp_path, system=Full()), "b", writer_id="w")
        await asyncrec.recover("pages", storage=LocalStorage(tmp_path))
        assert await stored(LocalStorage(tmp_path)) == sorted(records("a"))


class Undeletable(_Around):
    """A store that cannot delete any index, and that counts open listings."""

    listings = 0

    async def list_objects(self, prefix: str = "", *, start_after: str = "") -> AsyncIterator[ObjectInfo]:
        self.listings += 1
        try:
            for info in [each async for each in self._storage.list_objects(prefix, start_after=start_after)]:
                yield info
        finally:
            self.listings -= 1

    async def perform(self, operation: str, key: str, call: Call[T], *, short: Call[T] | None = None) -> T:
        if operation == "delete" and key.startswith("_index/"):
            raise StorageError(f"{key}: it may not be deleted")
        return await call()


class TestTakenOver:
    async def test_plain_names_of_live_remote_writer_are_never_reused(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The writer is alive and overwrites the objects with its names if the store allows it."""
        storage = LaxStorage(MemoryStorage(chunk_size=64))
        with pytest.raises(ConflictError, match="abandoned"):
            async with opened_elsewhere(monkeypatch, tmp_path, num_shards=2, storage=storage) as first:
                await first.write_many(records("a"))
                await write(storage, "b", num_shards=2, take_over=True)
                await write(storage, "c", num_shards=2, mode="replace", take_over=True)
        assert await stored(storage) == sorted(records("c"))


class TestDead:
    async def test_dead_fixed_writer_without_promises_does_not_block(
        self, storage: Storage, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        async with killed(storage, num_shards=2) as writer:
            await writer.write_many(records("a"))
        await write(storage, "b", num_shards=2)
        assert await stored(storage) == sorted(records("b"))
        assert (await asyncrec.recover("pages", storage=storage)).records == 0
        assert await stored(storage) == sorted(records("b"))
        assert [key for key in await unowned(storage) if "_claim-" not in key] == []

    @pytest.mark.parametrize("spooled", [False, True])
    @pytest.mark.parametrize("gone", [(), (0,), (1,), (0, 1)])
    async def test_recover_commits_only_complete_unacknowledged_fixed_sets(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, gone: tuple[int, ...], spooled: bool
    ) -> None:
        """The writer was killed between publishing and committing, or while it was deleting its published shards."""
        storage = LocalStorage(tmp_path / "target")
        spool = tmp_path / "spool"
        await dies(storage, "a", MANIFEST, num_shards=2, **({"spool": spool} if spooled else {}))
        for number in gone:
            for folder in (tmp_path / "target", spool):
                (folder / f"pages-0000{number}-of-00002.tfrecord").unlink(missing_ok=True)
        await asyncrec.recover(spool if spooled else "pages", to="pages" if spooled else None, storage=storage)
        if gone:
            with pytest.raises(ObjectNotFoundError):
                await asyncrec.read_manifest("pages", storage=storage)
            assert [key for key in await unowned(storage) if "_claim-" not in key] == []
            await write(storage, "a", num_shards=2)
        assert await stored(storage) == sorted(records("a"))

    @pytest.mark.parametrize("num_shards", [None, 2])
    async def test_dead_writer_with_promises_blocks_others_until_recovery(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, num_shards: int | None
    ) -> None:
        storage = LocalStorage(tmp_path)
        async with killed(storage, num_shards=num_shards, mode="new", writer_id="w") as writer:
            await writer.write_many(records("a"))
            await writer.flush()
        refusal = r"writer w died after a flush may have acknowledged .* run 'asyncrec recover .*pages'"
        for theirs in ({"mode": "new"}, {"num_shards": 2}, {"num_shards": 2, "mode": "replace"}):
            with pytest.raises(ConflictError, match=refusal):
                await write(storage, "b", **theirs)
        assert (await asyncrec.recover("pages", storage=storage)).records == 10
        assert await stored(storage) == sorted(records("a"))

    async def test_dead_writer_with_published_shards_blocks_others(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The records were flushed earlier and are no longer in any journal."""
        storage = LocalStorage(tmp_path)
        await dies(storage, "a", MANIFEST, mode="new")
        with pytest.raises(ConflictError, match="may have acknowledged its records"):
            await write(storage, "b", mode="new")
        assert (await asyncrec.recover("pages", storage=storage)).records == 10
        assert await stored(storage) == sorted(records("a"))

    async def test_published_shards_of_dead_writer_are_not_mixed_in(
        self, storage: Storage, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        await dies(storage, "a", MANIFEST, num_shards=2)
        assert len([key for key in await unowned(storage) if key.endswith(".tfrecord")]) == 2
        await write(storage, "b", num_shards=2)
        assert await stored(storage) == sorted(records("b"))
        assert [key for key in await unowned(storage) if "_claim-" not in key] == []

    async def test_remote_dead_writer_needs_explicit_take_over(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        storage = MemoryStorage()
        with elsewhere(monkeypatch, tmp_path / "elsewhere"):
            async with killed(storage, num_shards=2) as writer:
                await writer.write_many(records("a"))
        with pytest.raises(ConflictError, match=r"on elsewhere, started .*take_over=True"):
            await write(storage, "b", num_shards=2)
        (unfinished,) = (await asyncrec.recover("pages", storage=storage)).unfinished
        assert (unfinished.host, unfinished.kind) == ("elsewhere", "fixed")
        await write(storage, "b", num_shards=2, take_over=True)
        assert await stored(storage) == sorted(records("b"))
        assert await asyncrec.recover("pages", storage=storage) == asyncrec.Recovery()

    async def test_living_writer_commits_nothing_after_take_over(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        storage = MemoryStorage()
        with pytest.raises(ConflictError, match="abandoned"):
            async with opened_elsewhere(monkeypatch, tmp_path, num_shards=2, storage=storage) as first:
                await first.write_many(records("a"))
                await write(storage, "b", num_shards=2, take_over=True)
        assert await stored(storage) == sorted(records("b"))
        assert [key for key in await unowned(storage) if not is_of_a_job(key)] == []

    async def test_abandoned_rolling_writer_keeps_its_commits(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        storage = MemoryStorage()
        with pytest.raises(ConflictError, match="abandoned"):
            async with opened_elsewhere(monkeypatch, tmp_path, writer_id="w", storage=storage) as writer:
                await writer.write_many(records("a"))
                await writer.commit()
                assert (await asyncrec.recover("pages", storage=storage, abandon=["w"])).abandoned == ("w",)
                await writer.write_many(records("b"))
        # The writer got an error; the shards it had committed before it found the tombstone are complete.
        assert await stored(storage) in (sorted(records("a")), sorted(records("a") + records("b")))
        assert (await asyncrec.read_manifest("pages", storage=storage)).writers["w"].abandoned

    async def test_recover_commits_published_uncommitted_shard(self, monkeypatch: pytest.MonkeyPatch) -> None:
        storage = MemoryStorage()
        await dies(storage, "a", MANIFEST)
        recovery = await asyncrec.recover("pages", storage=storage)
        assert recovery.records == 10
        assert await stored(storage) == sorted(records("a"))
        assert await asyncrec.recover("pages", storage=storage) == asyncrec.Recovery()
        assert await unowned(storage) == []

    @pytest.mark.parametrize("storage", ["memory", "lax"], indirect=True)
    async def test_last_segment_includes_late_commit_of_dead_writer(
        self, storage: Storage, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A commit of the dead writer arrives late; the log's last segment must include it."""
        process = await dies(storage, "dead", MANIFEST, writer_id="dead")
        assert process.late is not None
        put, late = storage.put, [process.late]

        async def put_late(key: str, data: Buffer, *, exclusive: bool = False) -> ObjectInfo:
            if late and key == late[0][0]:
                await put(*late.pop(), exclusive=True)
            return await put(key, data, exclusive=exclusive)

        monkeypatch.setattr(storage, "put", put_late)
        await asyncrec.recover("pages", storage=storage)
        assert not late
        assert await stored(storage) == sorted(records("dead"))

    async def test_index_of_unpublished_shard_is_removed_after_fence(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Otherwise the shard could still be committed with an index that no longer exists."""
        storage = MemoryStorage()
        with elsewhere(monkeypatch, tmp_path / "elsewhere"):
            opened = asyncrec.open_sharded_writer("pages", storage=storage, writer_id="w", on_error="discard")
            writer = await opened.__aenter__()
        await storage.put("_index/pages-w-000000.tfrecord.index", b"of the shard that is published now")
        await asyncrec.recover("pages", storage=storage, abandon=["w"])
        await writer.write(b"r")
        with pytest.raises(ConflictError, match="abandoned"):
            await opened.__aexit__(None, None, None)
        with pytest.raises(ObjectNotFoundError):  # a published shard that no job can commit is not a data set
            await stored(storage)
        assert await asyncrec.list_shards("pages", storage=storage) == []

    async def test_failed_deletion_closes_its_listing(self) -> None:
        """Otherwise the listing's request would stay open until the garbage collector runs."""
        storage = MemoryStorage()
        async with killed(storage, writer_id="w"):
            pass
        await storage.put("_index/pages-w-000000.tfrecord.index", b"left behind")
        undeletable = Undeletable(storage)
        with pytest.raises(StorageError, match="may not be deleted"):
            await asyncrec.recover("pages", storage=undeletable)
        assert undeletable.listings == 0

    async def test_abandoning_live_or_unknown_writer_raises(self, storage: Storage) -> None:
        async with asyncrec.open_sharded_writer("pages", writer_id="w", storage=storage) as writer:
            with pytest.raises(ConflictError, match="is still running; stop it first"):
                await asyncrec.recover("pages", storage=storage, abandon=["w"])
            with pytest.raises(ObjectNotFoundError, match="no unfinished job with the id v"):
                await asyncrec.recover("pages", storage=storage, abandon=["v"])
            await writer.write_many(records("a"))
        assert await stored(storage) == sorted(records("a"))


class TestReplacing:
    @pytest.mark.parametrize("options", [{}, {"num_shards": 2}])
    async def test_first_finished_replacement_wins_and_other_conflicts(
        self, storage: Storage, options: dict[str, Any]
    ) -> None:
        await write(storage, "old", num_shards=2)
        with pytest.raises(ConflictError, match="already replaced this data set"):
            async with asyncrec.open_sharded_writer("pages", mode="replace", storage=storage, **options) as slow:
                await slow.write_many(records("slow"))
                await write(storage, "new", mode="replace", **options)
        assert await stored(storage) == sorted(records("new"))
        assert await unowned(storage) == []

    async def test_records_appended_during_replacement_are_kept(self, storage: Storage) -> None:
        await write(storage, "old")
        async with asyncrec.open_sharded_writer("pages", mode="replace", storage=storage) as writer:
            await writer.write_many(records("new"))
            await write(storage, "more")
        assert await stored(storage) == sorted(records("new") + records("more"))

    async def test_log_of_abandoned_dead_job_has_no_effect(
        self, storage: Storage, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        await write(storage, "old")
        await dies(storage, "dead", END, mode="replace", writer_id="dead")
        recovery = await asyncrec.recover("pages", storage=storage)
        assert len(recovery.abandoned) == 1
        assert await stored(storage) == sorted(records("old"))
        await write(storage, "new", mode="replace")
        assert await stored(storage) == sorted(records("new"))
        assert await unowned(storage) == []

    async def test_shard_names_are_plain_unless_already_taken(self, storage: Storage) -> None:
        await write(storage, "a", mode="replace", num_shards=1)
        manifest = await asyncrec.read_manifest("pages", storage=storage)
        assert [shard.path for shard in manifest.shards] == ["pages-00000-of-00001.tfrecord"]
        await write(storage, "b", mode="replace", num_shards=1, writer_id="w")
        manifest = await asyncrec.read_manifest("pages", storage=storage)
        assert [shard.path for shard in manifest.shards] == ["pages-w-00000-of-00001.tfrecord"]
        assert await stored(storage) == sorted(records("b"))
        await write(
            storage, "c", mode="replace", num_shards=1
        )  # not the old shards' names, which readers may still use
        assert await stored(storage) == sorted(records("c"))
        assert await unowned(storage) == []


class TestNames:
    @pytest.mark.parametrize("dies", [False, True])
    async def test_longer_named_data_set_keeps_its_open_writer(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, dies: bool
    ) -> None:
        storage = LocalStorage(tmp_path)
        async with asyncrec.open_sharded_writer("pages-v2", writer_id="w", storage=storage) as living:
            await living.write_many(records("living"))
            assert await living.flush() == "spooled"
            if dies:
                async with killed(storage, writer_id="w") as writer:
                    for record in records("a"):
                        await writer.write(record, key=record)
                    await writer.flush()
            else:
                await write(storage, "a", writer_id="w")
            await asyncrec.recover("pages", storage=storage)
            assert await stored(storage) == sorted(records("a"))
            await living.write_many(records("more"))
        assert (await asyncrec.read_manifest("pages-v2", storage=storage)).records == 20

    async def test_data_set_named_like_file_is_recovered(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        async with killed(LocalStorage(tmp_path), "train.tfrec") as writer:
            await writer.write_many(records("a"))
            assert await writer.flush() == "spooled"
        assert (await asyncrec.recover("train.tfrec", storage=LocalStorage(tmp_path))).records == 10
        assert not list(tmp_path.rglob("*.partial"))

    @pytest.mark.parametrize("options", [{"metadata": {"a": "\ud800"}}, {"metadata": {"a": "x" * (17 << 20)}}])
    async def test_unreadable_metadata_is_rejected_before_any_write(
        self, storage: Storage, options: dict[str, Any]
    ) -> None:
        with pytest.raises(ValueError, match=r"surrogates|more than"):
            await write(storage, "a", **options)
        assert await unowned(storage) == []

    async def test_data_set_name_too_long_for_partials_is_rejected(self, tmp_path: Path) -> None:
        for name in ("x" * 210, "页" * 72):
            with pytest.raises(ValueError, match="choose a shorter"):
                async with asyncrec.open_sharded_writer(tmp_path / name):
                    pass
        async with asyncrec.open_sharded_writer(tmp_path / ("x" * 150)) as writer:
            await writer.write(b"x")

    async def test_abandoned_writer_keeps_data_set_named_after_its_id(self, storage: Storage) -> None:
        """``pages-v2-00000-of-00002.tfrecord`` could be a shard of ``pages`` by ``v2``, but belongs to ``pages-v2``."""
        await write(storage, "old", num_shards=3)
        options = {"writer_id": "v2", "num_shards": 3, "mode": "replace"}
        async with killed(storage, **options) as writer:
            await writer.write_many(records("a"))
        async with asyncrec.open_sharded_writer("pages-v2", num_shards=2, storage=storage) as other:
            await other.write_many(records("other"))
        await asyncrec.recover("pages", storage=storage)
        await tools.verify("pages", storage=storage, delete=True, min_age=0)
        with pytest.raises(
            ObjectExistsError, match="pages: a writer with the id v2 has already written to this data set or was"
        ):
            await write(storage, "b", **options)
        report = await tools.verify("pages-v2", storage=storage)
        assert (report.ok, report.records) == (True, 10)
        assert await stored(storage) == sorted(records("old"))

    async def test_writer_id_colliding_with_another_data_set_is_rejected(self, storage: Storage) -> None:
        async with asyncrec.open_sharded_writer("pages-v2", num_shards=2, storage=storage) as other:
            await other.write_many(records("other"))
        await write(storage, "old", num_shards=3)
        with pytest.raises(ObjectExistsError, match="choose another writer_id"):
            await write(storage, "a", writer_id="v2", num_shards=3, mode="replace")
        assert await stored(storage) == sorted(records("old"))


class TestReadByName:
    """Without a commit there is no manifest, so a data set's name finds all objects stored under that name."""

    @pytest.mark.parametrize("options", [{}, {"num_shards": 2}, {"mode": "replace"}])
    async def test_published_uncommitted_shards_are_hidden_unlike_foreign_files(
        self, storage: Storage, monkeypatch: pytest.MonkeyPatch, options: dict[str, Any]
    ) -> None:
        await dies(storage, "a", MANIFEST if "mode" not in options else END, writer_id="dead", **options)
        assert [key for key in await unowned(storage) if key.endswith(".tfrecord")] != []
        await self.nothing_is_read(storage)
        others = ["pages-00000-of-00009.tfrec", "pages-theirs-000000.tfrecord"]
        for path in others:
            await asyncrec.write_records(path, records("theirs"), storage=storage)
        assert await asyncrec.list_shards("pages", storage=storage) == others

    async def test_folder_with_only_abandoned_writer_has_no_data_set(
        self, storage: Storage, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        async with killed(storage, num_shards=2) as writer:
            await writer.write_many(records("a"))
        assert len((await asyncrec.recover("pages", storage=storage)).abandoned) == 1
        await self.nothing_is_read(storage)

    async def nothing_is_read(self, storage: Storage) -> None:
        assert await asyncrec.list_shards("pages", storage=storage) == []
        with pytest.raises(ObjectNotFoundError):
            async with asyncrec.open_dataset("pages", storage=storage):
                pass
        with pytest.raises(ObjectNotFoundError):
            await tools.count("pages", storage=storage)
        assert (await tools.count("", storage=storage)).records == 0


class TestFlushedButNotPromised:
    @pytest.mark.parametrize("options", [{"num_shards": 2}, {"mode": "replace", "num_shards": 2}])
    async def test_unacknowledged_flush_is_undone_without_publication(
        self, tmp_path: Path, options: dict[str, Any]
    ) -> None:
        """The index and keys are removed even after a flush of an empty shard, or a flush that reaches no level."""
        chunk = 64
        storage: Storage = MemoryStorage(chunk_size=chunk)
        if "mode" in options:
            storage = LocalStorage(tmp_path, chunk_size=chunk)

        taken = "pages-00001-of-00002.tfrecord"
        with pytest.raises(ObjectExistsError):
            async with asyncrec.open_sharded_writer("pages", storage=storage, **options) as writer:
                await storage.put(taken, b"somebody else's")
                await writer.flush()
                for number in range(8):  # each fills a chunk once framed
                    await writer.write(bytes(chunk - 16), key=f"{number}")
                await writer.flush()
        assert [key for key in await unowned(storage) if not is_of_a_job(key)] == [taken]


class Unanswering(_Around):
    """A store that delays publications of keys with these prefixes, and never responds to them."""

    def __init__(self, storage: Storage, *prefixes: str) -> None:
        super().__init__(storage)
        self._prefixes = prefixes

    async def perform(self, operation: str, key: str, call: Call[T], *, short: Call[T] | None = None) -> T:
        if operation == "publish" and key.startswith(self._prefixes):
            raise TransientStorageError("no answer came")
        return await call()


class TestUncommittedShards:
    async def test_undeletable_published_shard_keeps_keys_until_recover(self, monkeypatch: pytest.MonkeyPatch) -> None:
        storage = MemoryStorage()
        put, delete = storage.put, storage.delete

        async def put_others(key: str, data: Buffer, *, exclusive: bool = False) -> ObjectInfo:
            if is_segment(key):
                raise StoragePermissionError("not there")
            return await put(key, data, exclusive=exclusive)

        async def delete_others(key: str) -> None:
            if key == "pages-00001-of-00002.tfrecord":
                raise StorageError("not now")
            await delete(key)

        with monkeypatch.context() as patches:
            patches.setattr(storage, "put", put_others)
            patches.setattr(storage, "delete", delete_others)
            with pytest.raises(StoragePermissionError, match="not there"):
                await write(storage, "a", num_shards=2, writer_id="X")
        left = [key for key in await unowned(storage) if not is_of_a_job(key)]
        assert left == [
            "_index/pages-X-00001-of-00002.tfrecord.index",
            "_keys/pages-X-00001-of-00002.tfrecord.keys",
            "pages-00001-of-00002.tfrecord",
        ]
        assert len((await asyncrec.recover("pages", storage=storage)).abandoned) == 1
        assert [key for key in await unowned(storage) if "_claim-" not in key] == []

    async def test_late_published_shard_is_recovered_with_keys(self) -> None:
        """The store does not respond to the publication of the shard or the tombstone, but later carries out both."""
        store = MemoryStorage()
        with pytest.raises(TransientStorageError, match="no answer came"):
            await write(
                Unanswering(store, "pages-", "_manifest/pages/w-000001"), "a", writer_id="w", on_error="discard"
            )
        await store.put("pages-w-000000.tfrecord", b"".join(encode_frames(records("a"))))
        assert (await asyncrec.recover("pages", storage=store)).records == 10
        assert await stored(store) == sorted(records("a"))
        async with asyncrec.open_sharded_writer("pages", storage=store, on_duplicate="skip") as writer:
            assert all(map(writer.has, records("a")))

    async def test_late_deletion_removes_no_recovered_records(self) -> None:
        """The response to a publication is lost, so the writer must not delete any object that `recover` may commit."""
        store = MemoryStorage()
        late: list[str] = []

        class Late(_Around):
            async def perform(self, operation: str, key: str, call: Call[T], *, short: Call[T] | None = None) -> T:
                if operation == "delete":
                    late.append(key)
                    raise TransientStorageError("no answer came")
                if operation == "publish" and is_segment(key):
                    raise TransientStorageError("no answer came")
                done = await call()
                if operation == "publish" and key.startswith("pages-"):
                    raise TransientStorageError("the answer was lost")
                return done

        with pytest.raises(TransientStorageError, match="the answer was lost"):
            await write(Late(store), "a", writer_id="w", on_error="discard")
        assert (await asyncrec.recover("pages", storage=store)).records == 10
        for key in late:
            await store.delete(key)
        assert await stored(store) == sorted(records("a"))

    async def test_shard_never_published_leaves_no_files_after_recover(self) -> None:
        store = MemoryStorage()
        with pytest.raises(TransientStorageError, match="no answer came"):
            await write(Unanswering(store, "pages-"), "a", writer_id="w", on_error="discard")
        await asyncrec.recover("pages", storage=store)
        assert await unowned(store) == []

    async def test_cancelled_exit_releases_every_lock(self, storage: Storage, monkeypatch: pytest.MonkeyPatch) -> None:
        """anyio's shields do not stop asyncio's native cancellation."""

        class Torn(BaseException):
            pass

        async def torn(key: str) -> None:
            raise Torn

        with monkeypatch.context() as patches:
            patches.setattr(storage, "delete", torn)
            with pytest.raises(Torn):
                await write(storage, "a", mode="new")
        assert (await asyncrec.recover("pages", storage=storage)).in_use == ()
        assert await stored(storage) == sorted(records("a"))


class TestRefusals:
    async def test_rejected_record_uses_no_memory_key_or_ticket(self) -> None:
        def partition(record: bytes) -> str:
            if record.startswith(b"bad"):
                raise KeyError("no partition")
            return "a"

        async with asyncrec.open_sharded_writer(
            "pages", storage=MemoryStorage(), partition_by=partition, on_duplicate="skip", memory_limit=1 << 20
        ) as writer:
            with anyio.fail_after(10):
                for number in range(200):
                    with pytest.raises(KeyError):
                        await writer.write(b"bad" + bytes(100_000), key=f"{number}")
                assert not writer.has("7")
                assert await writer.write(b"good", key="7") == 1
                with pytest.raises(TypeError):
                    await writer.write_many([b"x"] * 10, partition=1.5)  # type: ignore[arg-type]  # deliberately wrong
                assert await writer.write(b"good", key="8") == 2
            assert writer.stats().buffered_bytes < 1000

    @pytest.mark.parametrize("name", ["a:b", "\\x", "a\\\\b"])
    async def test_name_impossible_in_manifest_is_rejected_on_opening(self, name: str) -> None:
        with pytest.raises(ValueError, match="manifest"):
            async with asyncrec.open_sharded_writer(name, storage=MemoryStorage()):
                pass

    async def test_too_many_shards_for_memory_are_rejected_before_opening(self) -> None:
        """The size of the first shard's chunks shows how much memory all the shards would need."""
        storage = MemoryStorage()
        with pytest.raises(ValueError, match=r"memory_limit=1048576 is too small.*65,536,000 bytes"):
            async with asyncrec.open_sharded_writer("pages", num_shards=1000, memory_limit=1 << 20, storage=storage):
                pass
        assert await unowned(storage) == []


async def test_stuck_job_does_not_block_recovery_of_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    storage = LocalStorage(tmp_path)
    for name in "abc":
        async with killed(storage, writer_id=name, recover=False) as writer:
            await writer.write_many(records(name))
            assert await writer.flush() == "spooled"
    blocked = tmp_path / "pages-b-000000.tfrecord"
    blocked.mkdir()
    with pytest.raises(StorageError) as caught:
        await asyncrec.recover("pages", storage=storage)
    assert "records of other writers were recovered" in "".join(caught.value.__notes__)
    blocked.rmdir()
    assert sorted(path.name for path in tmp_path.glob("*.tfrecord")) == [
        f"pages-{name}-000000.tfrecord" for name in "ac"
    ]
    await asyncrec.recover("pages", storage=storage)
    assert await stored(storage) == sorted(record for name in "abc" for record in records(name))


async def test_log_place_of_locally_dead_job_is_reusable(storage: Storage, monkeypatch: pytest.MonkeyPatch) -> None:
    await write(storage, "old")
    await dies(storage, "dead", END, mode="replace", writer_id="dead")
    with anyio.fail_after(20):
        await write(storage, "new", mode="replace")
    assert await stored(storage) == sorted(records("new"))


async def test_dead_replacement_job_leaves_no_claim_or_plain_shard(
    storage: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The job had its place in the log and its claim, and had published its shards; the next job settles all three."""
    async with asyncrec.open_sharded_writer("pages", storage=storage, mode="replace", writer_id="new") as writer:
        await writer.write_many(records("new"))
        await dies(storage, "dead", END, mode="replace", num_shards=2, writer_id="dead")
    assert await stored(storage) == sorted(records("new"))
    left = await unowned(storage)
    assert left == ([] if isinstance(storage, LocalStorage) else ["_manifest/pages/_claim-000001.json"])


@pytest.mark.parametrize("storage", ["memory", "lax"], indirect=True)
async def test_ending_completed_dead_job_removes_its_leftovers(
    storage: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The job's commit arrives while the job is being settled. Without its mark, its leftovers could not be found."""
    await write(storage, "replaced")
    process = await dies(storage, "dead", END, num_shards=2, mode="replace", writer_id="dead")
    assert process.late is not None
    get, asked, (ending, content) = storage.get, [], process.late

    async def get_late(key: str, *, max_bytes: int | None = None) -> bytes:
        asked.append(key)
        if key == ending and asked.count(key) == 2:
            await storage.put(key, content, exclusive=True)
        return await get(key, max_bytes=max_bytes)

    monkeypatch.setattr(storage, "get", get_late)
    with pytest.raises(ConflictError, match="the writer dead already replaced this data set"):
        await write(storage, "new", mode="replace")
    assert await stored(storage) == sorted(records("dead"))
    assert await unowned(storage) == []


async def test_next_writer_removes_leftovers_of_completed_dead_job(tmp_path: Path) -> None:
    storage = LocalStorage(tmp_path)
    await write(storage, "replaced")
    async with asyncrec.open_sharded_writer(
        "pages",
        storage=Process(storage, END, done=True).storage,
        num_shards=2,
        mode="replace",
        writer_id="dead",
    ) as dead:
        await dead.write_many(records("dead"))
    assert await unowned(storage) != []
    await write(storage, "new", num_shards=2, mode="replace")
    assert await stored(storage) == sorted(records("new"))
    assert await unowned(storage) == []


async def test_copy_rejects_file_names_of_unfinished_writer(tmp_path: Path) -> None:
    source, target = LocalStorage(tmp_path / "a"), LocalStorage(tmp_path / "b")
    await write(source, "a", writer_id="w0")
    async with asyncrec.open_sharded_writer("pages", writer_id="w0", storage=target) as living:
        for record in records("living"):
            await living.write(record, key=record)
        with pytest.raises(ConflictError, match="the copy would use file names of the writer"):
            await tools.copy("pages", "pages", storage=source, target_storage=target)
    assert await stored(target) == sorted(records("living"))


async def test_data_set_with_only_abandoned_writer_does_not_exist(
    storage: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with killed(storage, writer_id="w") as writer:
        await writer.write_many(records("a"))
    await asyncrec.recover("pages", storage=storage, abandon=["w"])
    with pytest.raises(ObjectNotFoundError):
        await asyncrec.read_manifest("pages", storage=storage)
    await write(storage, "b", mode="new")
    assert await stored(storage) == sorted(records("b"))


async def test_lock_of_dead_writer_is_removed_with_recovered_spool(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "run").mkdir()
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "run"))
    storage = MemoryStorage()
    async with killed(storage, spool=tmp_path / "spool") as writer:
        for record in records("a"):
            await writer.write(record, key=record)
        await writer.flush()
    assert len([*(tmp_path / "run/asyncrec").iterdir()]) == 1
    assert (await asyncrec.recover(tmp_path / "spool", to="pages", storage=storage)).records == 10
    assert [*(tmp_path / "run/asyncrec").iterdir()] == []
    assert await stored(storage) == sorted(records("a"))


async def test_spooled_shard_already_published_is_committed_unchanged(tmp_path: Path) -> None:
    inner = MemoryStorage()

    class Down(FlakyStorage):
        async def perform(self, operation, key, call, *, short=None):  # type: ignore[no-untyped-def]  # as inherited
            if operation == "publish" and is_segment(key):
                raise StoragePermissionError("not there")
            return await call()

    with pytest.raises(StoragePermissionError):
        async with asyncrec.open_sharded_writer("pages", storage=Down(inner), spool=tmp_path, writer_id="w") as writer:
            for record in records("a"):
                await writer.write(record, key=record)
    there = await inner.get("pages-w-000000.tfrecord")
    assert list(tmp_path.glob("*.tfrecord"))
    assert (await asyncrec.recover(tmp_path, to="pages", storage=inner)).records == 10
    assert await inner.get("pages-w-000000.tfrecord") == there
    assert await stored(inner) == sorted(records("a"))
    assert list(tmp_path.glob("*.tfrecord")) == []


@pytest.mark.parametrize("theirs", ["other records", "fewer", "nothing"])
async def test_acknowledged_fixed_shard_is_not_confused_with_foreign_shard(tmp_path: Path, theirs: str) -> None:
    """The shard's journals are not removed either, until an operator declares the writer dead."""
    storage = LocalStorage(tmp_path)
    with pytest.raises(RuntimeError):
        async with asyncrec.open_sharded_writer("pages", storage=storage, num_shards=2) as writer:
            await writer.write_many(records("mine"))
            await writer.flush()
            raise RuntimeError
    journals = [path.read_bytes() for path in sorted(tmp_path.glob(".pages-*.tfrecord.*.partial"))]
    assert len(journals) == 2
    other = {"other records": records("theirs"), "fewer": records("mine")[:1], "nothing": []}[theirs]
    await asyncrec.write_records("pages-00000-of-00002.tfrecord", other, storage=storage)
    before = await storage.get("pages-00000-of-00002.tfrecord")
    with pytest.raises(ConflictError, match="this object does not hold the records of the writer"):
        await asyncrec.recover("pages", storage=storage)
    assert await storage.get("pages-00000-of-00002.tfrecord") == before
    assert [path.read_bytes() for path in sorted(tmp_path.glob(".pages-*.tfrecord.*.partial"))] == journals


async def test_discarded_files_are_durably_removed_before_their_header(tmp_path: Path) -> None:
    """Otherwise a power cut could bring back an index whose owner is no longer known."""
    calls: list[tuple[str, str]] = []
    published = threading.Event()

    class Telling:
        """A replacement for `os` that creates a foreign second shard as soon as the first one is published."""

        def __getattr__(self, name: str) -> Any:
            return getattr(os, name)

        def unlink(self, path: str) -> None:
            os.unlink(path)
            calls.append(("unlink", os.fspath(path)))

        def open(self, path: str, *args: Any, **options: Any) -> int:
            fd = os.open(path, *args, **options)
            opened[fd] = os.path.join(path, "")
            return fd

        def fsync(self, fd: int) -> None:
            os.fsync(fd)
            calls.append(("sync", opened.get(fd, "")))

        def link(self, partial: str, path: str) -> None:
            if path.endswith("00001-of-00002.tfrecord"):
                assert published.wait(60)
            os.link(partial, path)
            if path.endswith("00000-of-00002.tfrecord"):
                # Not earlier: the check for existing names would fail before the first shard is published.
                (tmp_path / "pages-00001-of-00002.tfrecord").write_bytes(b"somebody else's")
                published.set()

    opened: dict[int, str] = {}
    storage = LocalStorage(tmp_path, system=Telling())
    with pytest.raises(ObjectExistsError):
        async with asyncrec.open_sharded_writer("pages", storage=storage, num_shards=2, writer_id="w") as writer:
            await writer.write_many([b"x"] * 4)
    header = calls.index(("unlink", str(tmp_path / ".pages.w.partial")))
    for name in ("pages-00000-of-00002.tfrecord", "_index/pages-w-00000-of-00002.tfrecord.index"):
        gone = calls.index(("unlink", str(tmp_path / name)))
        assert ("sync", os.path.join(tmp_path, os.path.dirname(name), "")) in calls[gone:header], name


async def test_header_is_removed_after_failed_folder_sync(tmp_path: Path) -> None:
    class Failing:
        def __getattr__(self, name: str) -> Any:
            return getattr(os, name)

        def fsync(self, fd: int) -> None:
            if stat.S_ISDIR(os.fstat(fd).st_mode) and any(name.startswith(".pages.") for name in os.listdir(tmp_path)):
                raise OSError(errno.EIO, "as asked")
            os.fsync(fd)

    with pytest.raises(StorageError, match="as asked"):
        async with asyncrec.open_sharded_writer("pages", storage=LocalStorage(tmp_path, system=Failing())):
            pass
    assert [path.name for path in tmp_path.iterdir() if path.is_file()] == []


async def test_objects_resembling_marks_are_ignored() -> None:
    storage = MemoryStorage()
    async with asyncrec.open_sharded_writer("pages", storage=storage, writer_id="w") as writer:
        await writer.write(b"x")
        mark = await storage.get("_manifest/pages/w-000000.jsonl")
    below = "_manifest/pages/"
    others = {f"{below}w-000000.text", f"{below}w-000000", f"{below}v-000000.jsonl", f"{below}w-00000.jsonl"}
    for key in (*others, "_manifest/pages/w-000000.jsonl"):
        await storage.put(key, mark)
    assert await asyncrec.recover("pages", storage=storage) == asyncrec.Recovery()
    segments = {f"{below}w-00000{number}.jsonl" for number in (1, 2)}
    assert {info.key async for info in storage.list_objects(below)} == others | segments
