"""`asyncrec.open_sharded_writer`: many tasks write to many shards with one manifest."""

from __future__ import annotations

import logging
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import Any

import anyio
import numpy as np
import pytest
from anyio.lowlevel import checkpoint

import asyncrec
from asyncrec._records.index import parse_index
from asyncrec.errors import (
    ConflictError,
    ManifestError,
    ObjectExistsError,
    ObjectNotFoundError,
    StorageError,
    TransientStorageError,
    UnsettledError,
)
from asyncrec.storage._base import Storage
from asyncrec.storage._memory import MemoryStorage
from asyncrec.testing._faults import Fault, FlakyStorage, SlowStorage

pytestmark = [pytest.mark.anyio, pytest.mark.virtual_clock]


def numbered(count: int, start: int = 0) -> list[bytes]:
    return [b"record %06d" % i for i in range(start, start + count)]


async def keys(storage: Storage, prefix: str = "") -> list[str]:
    return [info.key async for info in storage.list_objects(prefix)]


async def stored(storage: Storage, path: str = "pages") -> list[bytes]:
    """Return the records that the manifest lists, after checking it against the objects."""
    manifest = await asyncrec.read_manifest(path, storage=storage)
    found = []
    for shard in manifest.shards:
        records = await asyncrec.read_records(shard.path, storage=storage)
        assert len(records) == shard.records
        assert (await storage.head(shard.path)).size == shard.bytes
        if shard.index is not None:
            assert len(parse_index(await storage.get(shard.index.path))) == shard.records
        if shard.keys is not None:
            assert len(await storage.get(shard.keys.path)) == 16 * shard.records
        found += records
    return found


class TestRolling:
    async def test_shard_is_committed_at_its_record_limit(self) -> None:
        storage = MemoryStorage()
        committed: list[asyncrec.ShardEntry] = []
        async with asyncrec.open_sharded_writer(
            "pages", storage=storage, max_shard_records=1000, on_commit=committed.append, writer_id="w"
        ) as writer:
            for record in numbered(2500):
                await writer.write(record)
            await writer.wait(2000, "committed")
            manifest = await asyncrec.read_manifest("pages", storage=storage)
            assert [shard.records for shard in manifest.shards] == [1000, 1000]
            assert not manifest.writers["w"].closed
        assert await stored(storage) == numbered(2500)
        manifest = await asyncrec.read_manifest("pages", storage=storage)
        assert [shard.path for shard in manifest.shards] == [f"pages-w-{i:06d}.tfrecord" for i in range(3)]
        assert manifest.writers["w"].closed
        assert [entry.records for entry in committed] == [1000, 1000, 500]
        assert await asyncrec.list_shards(manifest) == await asyncrec.list_shards("pages", storage=storage)

    async def test_shard_without_compression_never_exceeds_its_bytes(self) -> None:
        storage = MemoryStorage()
        async with asyncrec.open_sharded_writer("pages", storage=storage, max_shard_bytes=10_000) as writer:
            await writer.write_many([bytes(i % 700) for i in range(3000)])
            await writer.write(bytes(50_000))
            await writer.write(b"after")
        shards = (await asyncrec.read_manifest("pages", storage=storage)).shards
        assert sorted(shard.bytes for shard in shards)[-1] == 50_016
        assert all(shard.bytes <= 10_000 or shard.records == 1 for shard in shards)
        assert all(shard.bytes > 9000 for shard in shards[:-3])
        assert len(await stored(storage)) == 3002

    async def test_gzip_shard_ends_with_batch_reaching_byte_limit(self) -> None:
        storage = MemoryStorage()
        import random

        rng = random.Random(1)
        records = [rng.randbytes(1000) for _ in range(8000)]
        async with asyncrec.open_sharded_writer(
            "pages", storage=storage, max_shard_bytes=1 << 20, compression="GZIP", max_shard_records=3000
        ) as writer:
            await writer.write_many(records)
        shards = (await asyncrec.read_manifest("pages", storage=storage)).shards
        assert len(shards) >= 4
        assert all(shard.bytes < 3 << 20 for shard in shards)
        assert all(shard.records <= 3000 for shard in shards)
        assert await stored(storage) == records

    async def test_shard_time_limit_applies_without_further_writes(self) -> None:
        storage = MemoryStorage()
        async with asyncrec.open_sharded_writer("pages", storage=storage, max_shard_seconds=60) as writer:
            ticket = await writer.write(b"alone")
            with anyio.fail_after(61):
                await writer.wait(ticket, "committed")
            assert len((await asyncrec.read_manifest("pages", storage=storage)).shards) == 1
            await anyio.sleep(1000)
            assert await writer.write(b"next") == 2
            assert writer.stats().oldest_uncommitted_seconds < 1
        assert await stored(storage) == [b"alone", b"next"]
        assert len(await keys(storage, "pages-")) == 2, "no shard without records"

    async def test_commit_publishes_records_and_flush_returns_level(self) -> None:
        storage = MemoryStorage()
        async with asyncrec.open_sharded_writer("pages", storage=storage, open_shards=3) as writer:
            assert await writer.flush() == "committed", "nothing was taken"
            last = await writer.write_many(numbered(10))
            assert await writer.flush() == "spooled"
            assert await writer.commit() == "committed"
            await writer.wait(last, "committed")
            assert await writer.flush() == "committed"
            assert sorted(await stored(storage)) == numbered(10)
            stats = writer.stats()
            assert (stats.records, stats.committed_records, stats.committed_shards) == (10, 10, 3)
            assert stats.buffered_bytes == 0

    async def test_tickets_of_128_tasks_are_all_committed(self) -> None:
        storage = MemoryStorage()
        acknowledged: list[bytes] = []

        async def work(task: int) -> None:
            for i in range(20):
                record = b"%d-%d" % (task, i)
                ticket = await writer.write(record, key=record)
                await writer.wait(ticket, "committed")
                acknowledged.append(record)

        async with asyncrec.open_sharded_writer(
            "pages", storage=storage, max_shard_records=500, max_shard_seconds=5, open_shards=4, compression="GZIP"
        ) as writer:
            async with anyio.create_task_group() as group:
                for task in range(128):
                    group.start_soon(work, task)
            assert Counter(await stored(storage)) >= Counter(acknowledged)
        assert len(acknowledged) == 128 * 20
        assert Counter(await stored(storage)) == Counter(acknowledged)

    async def test_wait_without_possible_end_logs_advice(self, caplog: pytest.LogCaptureFixture) -> None:
        async with asyncrec.open_sharded_writer("pages", storage=MemoryStorage()) as writer:
            ticket = await writer.write(b"x")
            with caplog.at_level(logging.WARNING, "asyncrec"), anyio.move_on_after(45):
                await writer.wait(ticket, "committed")
        assert "call commit(), or set max_shard_seconds" in caplog.text

    async def test_exception_commits_accepted_records(self) -> None:
        storage = MemoryStorage()
        with pytest.raises(KeyError, match="crawler"):
            async with asyncrec.open_sharded_writer("pages", storage=storage) as writer:
                await writer.write_many(numbered(3000))
                raise KeyError("crawler")
        assert await stored(storage) == numbered(3000)
        assert all(state.closed for state in (await asyncrec.read_manifest("pages", storage=storage)).writers.values())

    async def test_cancelled_writer_commits_accepted_records_and_stays_cancelled(self) -> None:
        storage = MemoryStorage()
        with anyio.CancelScope() as scope:
            async with asyncrec.open_sharded_writer("pages", storage=storage, open_shards=8) as writer:
                await writer.write_many(numbered(3000))
                scope.cancel()
                await checkpoint()
        assert scope.cancelled_caught
        assert sorted(await stored(storage)) == numbered(3000)

    async def test_on_error_discard_keeps_only_committed_records(self) -> None:
        storage = MemoryStorage()
        with pytest.raises(KeyError) as caught:
            async with asyncrec.open_sharded_writer("pages", storage=storage, on_error="discard") as writer:
                await writer.write_many(numbered(10))
                await writer.commit()
                await writer.write_many(numbered(5, 10))
                raise KeyError
        assert await stored(storage) == numbered(10)
        assert any(
            "10 records were committed, 5 accepted records are not: write them again" in note
            for note in caught.value.__notes__
        )

    async def test_exit_ends_in_time_with_hanging_store(self) -> None:
        """This holds whichever request hangs: for a shard, the manifest, or the removal of the writer's mark."""
        calm = FlakyStorage(MemoryStorage())
        async with asyncrec.open_sharded_writer("pages", storage=calm) as writer:
            opened = len(calm.operations)
            await writer.write_many(numbered(10))
        for k in range(opened, len(calm.operations) - 1):
            storage = FlakyStorage(MemoryStorage(), {k: Fault("hang", for_good=True)})
            with pytest.raises(KeyError) as caught:
                async with asyncrec.open_sharded_writer("pages", storage=storage, exit_timeout=7) as writer:
                    await writer.write_many(numbered(10))
                    begun = anyio.current_time()
                    raise KeyError
            assert anyio.current_time() - begun < 15, calm.operations[k]
            if not any(operation[1].endswith("-000002.jsonl") for operation in calm.operations[: k - 1]):
                notes = "".join(caught.value.__notes__)
                assert "exit_timeout=7" in notes or "could not be committed" in notes, calm.operations[k]

    async def test_hanging_store_cannot_outlast_exit_timeout(self) -> None:
        """A commit that began while the store was healthy does not outlast the limit either."""
        calm = FlakyStorage(MemoryStorage())
        async with asyncrec.open_sharded_writer("pages", storage=calm, max_shard_records=5) as writer:
            opened = len(calm.operations)
            await writer.write_many(numbered(6))
            await writer.wait(5, "committed")
            committed = len(calm.operations)
        assert any(key.endswith("-000001.jsonl") for _, key in calm.operations[opened:committed])
        for k in range(opened, committed):
            storage = FlakyStorage(MemoryStorage(), {k: Fault("hang", for_good=True)})
            with pytest.raises(KeyError):
                async with asyncrec.open_sharded_writer(
                    "pages", storage=storage, max_shard_records=5, exit_timeout=0.2
                ) as writer:
                    await writer.write_many(numbered(6))
                    with anyio.fail_after(1):
                        while not storage.failed:  # noqa: ASYNC110 - the clock jumps
                            await anyio.sleep(0.01)
                    begun = anyio.current_time()
                    raise KeyError
            assert anyio.current_time() - begun < 10, calm.operations[k]

    @pytest.mark.parametrize("options", [{}, {"num_shards": 2}, {"mode": "replace"}, {"on_error": "discard"}])
    async def test_cancelled_exit_finishes_within_timeout(self, options: dict[str, Any]) -> None:
        """Although shielded, the exit notices the cancellation, and has exit_timeout more seconds for the manifest."""
        calm = FlakyStorage(MemoryStorage())
        async with asyncrec.open_sharded_writer("pages", storage=calm, **options) as writer:
            opened = len(calm.operations)
            await writer.write_many(numbered(6))
        closed = max(k for k, each in enumerate(calm.operations) if each[0] == "publish" and "_manifest/" in each[1])
        for k in range(opened, closed + 1):
            storage = FlakyStorage(MemoryStorage(), {k: Fault("hang", for_good=True)})
            begun = anyio.current_time()
            with suppress(UnsettledError), anyio.move_on_after(1):  # raised if the outcome is unknown
                async with asyncrec.open_sharded_writer(
                    "pages", storage=storage, exit_timeout=0.2, **options
                ) as writer:
                    await writer.write_many(numbered(6))
            assert anyio.current_time() - begun < 10, calm.operations[k]

    async def test_uncancelled_exit_waits_for_slow_store(self) -> None:
        storage = SlowStorage(MemoryStorage(), latency=5)
        async with asyncrec.open_sharded_writer("pages", storage=storage, exit_timeout=7) as writer:
            await writer.write_many(numbered(6))
            begun = anyio.current_time()
        assert anyio.current_time() - begun > 10
        assert (await asyncrec.read_manifest("pages", storage=storage)).records == 6

    async def test_failing_task_does_not_cancel_writer(self) -> None:
        storage = MemoryStorage()

        async def crawl(fails: bool) -> None:
            for record in numbered(50):
                await writer.write(record)
                await checkpoint()
            if fails:
                raise LookupError("one page")

        with pytest.raises(ExceptionGroup) as caught:
            async with asyncrec.open_sharded_writer("pages", storage=storage) as writer:
                async with anyio.create_task_group() as group:
                    group.start_soon(crawl, False)
                    group.start_soon(crawl, True)
        assert [type(error) for error in caught.value.exceptions] == [LookupError]
        assert len(await stored(storage)) >= 50


class TestFixed:
    @pytest.mark.parametrize("compression", ["", "GZIP", "ZLIB"])
    async def test_fixed_shards_are_published_together(self, compression: str) -> None:
        storage = MemoryStorage()
        async with asyncrec.open_sharded_writer(
            "data/train", num_shards=4, storage=storage, compression=compression, metadata={"a": 1}
        ) as writer:
            await writer.write_many(numbered(10))
            for record in numbered(6, 10):
                await writer.write(record)
            await writer.flush()
            assert [key for key in await keys(storage) if not key.startswith("data/_manifest/")] == []
        manifest = await asyncrec.read_manifest("data/train", storage=storage)
        assert [shard.path for shard in manifest.shards] == [f"train-{i:05d}-of-00004.tfrecord" for i in range(4)]
        assert [shard.records for shard in manifest.shards] == [4, 4, 4, 4]
        assert manifest.metadata == {"a": 1}
        records = [
            await asyncrec.read_records(path, storage=storage)
            for path in await asyncrec.list_shards("data/train", storage=storage)
        ]
        assert [shard[0] for shard in records] == numbered(4)
        assert sorted(record for shard in records for record in shard) == numbered(16)

    async def test_empty_fixed_shards_are_published(self) -> None:
        storage = MemoryStorage()
        async with asyncrec.open_sharded_writer("train", num_shards=3, storage=storage) as writer:
            await writer.write(b"only")
        assert [s.records for s in (await asyncrec.read_manifest("train", storage=storage)).shards] == [1, 0, 0]

    async def test_exception_publishes_no_fixed_shards(self) -> None:
        storage = MemoryStorage()
        with pytest.raises(KeyError):
            async with asyncrec.open_sharded_writer("train", num_shards=3, storage=storage) as writer:
                await writer.write_many(numbered(3000))
                raise KeyError
        assert await keys(storage) == []

    async def test_fixed_writer_rejects_existing_data_set(self) -> None:
        storage = MemoryStorage()
        async with asyncrec.open_sharded_writer("train", num_shards=2, storage=storage):
            pass
        for shards in (2, 3):
            with pytest.raises(ObjectExistsError, match="mode='replace'"):
                async with asyncrec.open_sharded_writer("train", num_shards=shards, storage=storage):
                    pass
        await storage.put("other-00001-of-00002.tfrecord", b"")
        with pytest.raises(ObjectExistsError, match="other-00001-of-00002"):
            async with asyncrec.open_sharded_writer("other", num_shards=2, storage=storage):
                pass

    async def test_replace_mode_replaces_old_data_set(self) -> None:
        storage = MemoryStorage()
        async with asyncrec.open_sharded_writer("train", num_shards=4, storage=storage) as writer:
            await writer.write_many(numbered(8))
        before = await asyncrec.read_manifest("train", storage=storage)
        with pytest.raises(KeyError):
            async with asyncrec.open_sharded_writer("train", num_shards=2, storage=storage, mode="replace") as writer:
                await writer.write_many(numbered(4, 100))
                raise KeyError
        assert (await asyncrec.read_manifest("train", storage=storage)).id == before.id
        assert sorted(await stored(storage, "train")) == numbered(8)
        async with asyncrec.open_sharded_writer("train", num_shards=2, storage=storage, mode="replace") as writer:
            await writer.write_many(numbered(4, 100))
        assert sorted(await stored(storage, "train")) == numbered(4, 100)
        assert await keys(storage, "train-") == ["train-00000-of-00002.tfrecord", "train-00001-of-00002.tfrecord"]
        assert len(await keys(storage, "_index/")) == 2

    async def test_replacement_may_reuse_shard_names(self) -> None:
        storage = MemoryStorage()
        for run in range(3):
            async with asyncrec.open_sharded_writer("train", num_shards=2, storage=storage, mode="replace") as writer:
                await writer.write_many(numbered(4, 100 * run))
            assert sorted(await stored(storage, "train")) == numbered(4, 100 * run)
        assert len(await keys(storage, "train-")) == 2

    async def test_fixed_writer_rejects_commit_before_exit(self) -> None:
        async with asyncrec.open_sharded_writer("train", num_shards=2, storage=MemoryStorage()) as writer:
            ticket = await writer.write(b"1")
            with pytest.raises(
                RuntimeError, match="fixed shards, and shards that replace others, are committed together when the"
            ):
                await writer.commit()
            with pytest.raises(
                ValueError, match="fixed shards, and shards that replace others, are committed together when the"
            ):
                await writer.wait(ticket, "committed")
        await writer.wait(ticket, "committed")

    async def test_racing_writers_of_same_shards_have_one_winner(self) -> None:
        storage = MemoryStorage()
        outcomes: list[str] = []

        async def race(name: bytes) -> None:
            try:
                async with asyncrec.open_sharded_writer("train", num_shards=2, storage=storage) as writer:
                    await writer.write_many([name] * 10)
            except (ObjectExistsError, ConflictError):
                outcomes.append("told")
            else:
                outcomes.append("won")

        async with anyio.create_task_group() as group:
            group.start_soon(race, b"a")
            group.start_soon(race, b"b")
        assert sorted(outcomes) == ["told", "won"]
        assert len(set(await stored(storage, "train"))) == 1


class TestRollingReplacement:
    async def test_replacement_takes_effect_in_one_step(self) -> None:
        storage = MemoryStorage()
        async with asyncrec.open_sharded_writer("pages", storage=storage, max_shard_records=3) as writer:
            await writer.write_many(numbered(8))
        async with asyncrec.open_sharded_writer(
            "pages", storage=storage, max_shard_records=3, mode="replace"
        ) as writer:
            ticket = await writer.write_many(numbered(5, 100))
            assert sorted(await stored(storage)) == numbered(8)
            with pytest.raises(
                RuntimeError, match="fixed shards, and shards that replace others, are committed together when the"
            ):
                await writer.commit()
            with pytest.raises(
                ValueError, match="fixed shards, and shards that replace others, are committed together when the"
            ):
                await writer.wait(ticket, "committed")
        assert await stored(storage) == numbered(5, 100)
        assert len(await keys(storage, "pages-")) == 2
        assert len(await keys(storage, "_index/")) == 2

    async def test_exception_in_replacement_leaves_only_old_data_set(self) -> None:
        storage = MemoryStorage()
        async with asyncrec.open_sharded_writer("pages", storage=storage) as writer:
            await writer.write_many(numbered(8))
        before = await keys(storage)
        with pytest.raises(KeyError):
            async with asyncrec.open_sharded_writer(
                "pages", storage=storage, max_shard_records=3, mode="replace"
            ) as writer:
                await writer.write_many(numbered(50, 100))
                await checkpoint()
                await checkpoint()
                raise KeyError
        assert await keys(storage) == before
        assert await stored(storage) == numbered(8)


class TestPlacementAndIdentity:
    async def test_equal_partitions_of_any_type_share_one_shard(self) -> None:
        storage = MemoryStorage()
        async with asyncrec.open_sharded_writer("pages", num_shards=4, storage=storage) as writer:
            for i in range(100):
                await writer.write(b"%d" % (i % 10), partition=str(i % 10))
            await writer.write_many([b"3"] * 5, partition=b"3")
        homes: dict[bytes, set[str]] = {}
        for shard in (await asyncrec.read_manifest("pages", storage=storage)).shards:
            for record in await asyncrec.read_records(shard.path, storage=storage):
                homes.setdefault(record, set()).add(shard.path)
        assert len(homes) == 10
        assert all(len(shards) == 1 for shards in homes.values())
        assert len(set.union(*homes.values())) > 1

    async def test_partition_by_receives_the_record(self) -> None:
        storage = MemoryStorage()
        async with asyncrec.open_sharded_writer(
            "pages", num_shards=3, storage=storage, partition_by=lambda record: record[:1]
        ) as writer:
            await writer.write_many([b"a1", b"b1", b"c1"] * 10)
            await writer.write(b"a2")
        for shard in (await asyncrec.read_manifest("pages", storage=storage)).shards:
            records = await asyncrec.read_records(shard.path, storage=storage)
            assert b"a2" not in records or b"a1" in records

    async def test_key_file_has_zeros_for_keyless_records(self) -> None:
        from asyncrec._shards.writing.keys import key_digest

        storage = MemoryStorage()
        async with asyncrec.open_sharded_writer("pages", storage=storage, writer_id="w") as writer:
            await writer.write_many(numbered(3))
            await writer.write(b"keyed", key="url")
            await writer.write(b"without")
            await writer.write(bytes(3 << 20), key=b"large")
            await writer.write_many(numbered(2))
        content = await storage.get("_keys/pages-w-000000.tfrecord.keys")
        assert content == bytes(48) + key_digest("url") + bytes(16) + key_digest(b"large") + bytes(32)

    async def test_batched_keys_have_single_key_digests(self) -> None:
        from asyncrec._shards.writing.keys import key_digest

        storage = MemoryStorage()
        mutable = bytearray(b"https://example.invalid/changed later")
        zeros, long = bytes(16), "a long one" * 1000
        keys = [
            mutable, None, memoryview(b"view"), zeros, bytearray(zeros), long, "\ud800", b"", *map(str, range(2000)),
        ]  # fmt: skip
        async with asyncrec.open_sharded_writer("pages", storage=storage, writer_id="w") as writer:
            for key in keys:
                await writer.write(b"x", key=key)  # type: ignore[arg-type]  # accepted beyond its declared types
            mutable[:] = b""
            with pytest.raises(TypeError):
                await writer.write(b"x", key=7)  # type: ignore[arg-type]  # deliberately wrong
            assert (writer.last_ticket, writer.stats().records) == (len(keys), len(keys))
        content = await storage.get("_keys/pages-w-000000.tfrecord.keys")
        keys[0] = b"https://example.invalid/changed later"
        assert content == b"".join(bytes(16) if key is None else key_digest(key) for key in keys)

    async def test_keyless_unindexed_shard_has_no_sidecar_files(self) -> None:
        storage = MemoryStorage()
        async with asyncrec.open_sharded_writer("pages", storage=storage, index=False) as writer:
            await writer.write(b"1")
        assert await keys(storage, "_keys/") == []
        assert await keys(storage, "_index/") == []
        (shard,) = (await asyncrec.read_manifest("pages", storage=storage)).shards
        assert (shard.keys, shard.index) == (None, None)

    async def test_duplicates_are_skipped_within_and_across_runs(self) -> None:
        storage = MemoryStorage()
        for run in range(3):
            async with asyncrec.open_sharded_writer(
                "pages", storage=storage, on_duplicate="skip", max_shard_records=7
            ) as writer:
                assert writer.has("url 0") == (run > 0)
                for i in range(20 + run):
                    await writer.write(b"run %d" % run, key=f"url {i}")
                    await writer.write(b"again", key=f"url {i}")
                assert writer.has("url 19")
                assert not writer.has("url 99")
                assert writer.stats().duplicates == (20 + run) + (20 + run - 1 if run else 0)
        assert Counter(await stored(storage)) == {b"run 0": 20, b"run 1": 1, b"run 2": 1}

    async def test_has_raises_without_known_keys(self) -> None:
        async with asyncrec.open_sharded_writer("pages", storage=MemoryStorage()) as writer:
            with pytest.raises(ValueError, match="on_duplicate='skip'"):
                writer.has("url")

    async def test_index_lists_position_of_each_record(self) -> None:
        storage = MemoryStorage()
        for compression in ("", "GZIP"):
            name = f"pages{compression}"
            async with asyncrec.open_sharded_writer(name, storage=storage, compression=compression) as writer:
                await writer.write_many([bytes(i * 91 % 5000) for i in range(4000)])
            (shard,) = (await asyncrec.read_manifest(name, storage=storage)).shards
            assert shard.index is not None
            index = parse_index(await storage.get(shard.index.path))
            records = await asyncrec.read_records(shard.path, storage=storage)
            assert (np.asarray(index.sizes) - 16).tolist() == [len(record) for record in records]
            for i in (0, 1, 1999, 3999):
                if index.members is None:
                    start, skip = int(index.offsets[i]), 0
                else:
                    assert len(set(index.members.tolist())) > 1
                    start = int(index.members[i])
                    first = index.members.tolist().index(start)
                    assert index.offsets[first] == 0
                    skip = i - first
                async with asyncrec.open_reader(shard.path, storage=storage, start_offset=start) as reader:
                    for _ in range(skip):
                        await anext(reader)
                    assert await anext(reader) == records[i]


class TestTrouble:
    async def test_first_failure_reaches_every_later_call_chained(self) -> None:
        storage = FlakyStorage(MemoryStorage(), {1: Fault("error", for_good=True)})
        with pytest.raises(TransientStorageError):
            async with asyncrec.open_sharded_writer("pages", storage=storage, max_shard_records=10) as writer:
                with pytest.raises(TransientStorageError):
                    while True:
                        await writer.write(b"x")
                for later in (
                    writer.write(b"x"),
                    writer.write_many([b"x", b"y"]),
                    writer.write(bytes(2 << 20)),
                    writer.flush(),
                    writer.commit(),
                    writer.wait(1, "committed"),
                ):
                    with pytest.raises(TransientStorageError) as caught:
                        await later
                    assert isinstance(caught.value.__cause__, TransientStorageError)

    @pytest.mark.slow
    async def test_every_operation_failing_in_turn_keeps_manifest_truthful(self) -> None:
        async def rolling(storage: Storage) -> None:
            async with asyncrec.open_sharded_writer("pages", storage=storage, max_shard_records=4) as writer:
                for record in numbered(10):
                    await writer.write(record, key=record)
                await writer.flush()

        async def fixed(storage: Storage) -> None:
            async with asyncrec.open_sharded_writer("pages", storage=storage, num_shards=3) as writer:
                await writer.write_many(numbered(10))

        async def replacing(storage: Storage) -> None:
            async with asyncrec.open_sharded_writer(
                "pages", storage=storage, max_shard_records=4, mode="replace"
            ) as writer:
                await writer.write_many(numbered(10))

        for job in (rolling, fixed, replacing):
            calm = FlakyStorage(MemoryStorage())
            await job(calm)
            for k in range(len(calm.operations)):
                for when in ("before", "after"):
                    for for_good in (False, True):
                        store = MemoryStorage()
                        fault = Fault("error", when=when, for_good=for_good)  # type: ignore[arg-type]  # of two literals
                        raised = False
                        try:
                            await job(FlakyStorage(store, {k: fault}))
                        except StorageError:
                            raised = True
                        about = f"{job.__name__}: {calm.operations[k]} (number {k}), {when}, for good: {for_good}"
                        try:
                            records = await stored(store)
                        except asyncrec.ObjectNotFoundError:
                            records = []
                        if raised:
                            assert len(records) <= 10, about
                            assert len(set(records)) == len(records), about
                        else:
                            assert sorted(records) == numbered(10), f"no error, and records are missing: {about}"
                        if job is not rolling and raised:
                            assert len(records) in (0, 10), about

    async def test_memory_stays_within_limit_for_slow_store(self) -> None:
        storage = SlowStorage(MemoryStorage(), bytes_per_second=5e6)
        most = 0
        limit = 4 << 20
        async with asyncrec.open_sharded_writer(
            "pages", storage=storage, memory_limit=limit, open_shards=8, index=False
        ) as writer:
            for _ in range(300):
                await writer.write(bytes(50_000))
                stats = writer.stats()
                most = max(most, stats.buffered_bytes + stats.reserved_bytes)
        assert most <= limit
        assert stats.memory_limit == limit
        assert writer.stats().seconds_waiting > 0

    async def test_memory_limit_too_small_for_shards_raises_with_advice(self) -> None:
        with pytest.raises(ValueError, match="raise memory_limit, or open fewer shards"):
            async with asyncrec.open_sharded_writer(
                "train", num_shards=64, storage=MemoryStorage(), memory_limit=1 << 20
            ):
                pass

    async def test_use_after_context_raises_closed_resource_error(self) -> None:
        async with asyncrec.open_sharded_writer("pages", storage=MemoryStorage()) as writer:
            await writer.write(b"1")
        for late in (writer.write(b"2"), writer.write_many([b"2", b"3"]), writer.flush(), writer.commit()):
            with pytest.raises(anyio.ClosedResourceError, match="the writer is closed"):
                await late

    @pytest.mark.parametrize(
        ("options", "message"),
        [
            ({"num_shards": 0}, "greater than 0"),
            ({"max_shard_bytes": -1}, "greater than 0"),
            ({"open_shards": 0}, "greater than 0"),
            ({"num_shards": 2, "max_shard_records": 5}, "pass one or the other"),
            ({"num_shards": 2, "open_shards": 5}, "pass one or the other"),
            ({"mode": "w"}, "mode must be one of 'append', 'new', 'replace', not 'w'"),
            ({"on_error": "ignore"}, "on_error must be one of 'commit', 'discard', not 'ignore'"),
            ({"on_duplicate": "raise"}, "on_duplicate must be one of 'write', 'skip', not 'raise'"),
            ({"writer_id": "../x"}, "becomes part of file names"),
            ({"memory_limit": 0}, "memory_limit must be positive"),
            ({"compression": "auto"}, "auto"),
        ],
    )
    async def test_invalid_options_are_rejected(self, options: Any, message: str) -> None:
        with pytest.raises(ValueError, match=message):
            async with asyncrec.open_sharded_writer("pages", storage=MemoryStorage(), **options):
                pass

    @pytest.mark.parametrize("path", ["", "pages/", "_manifest", ".hidden", "a*"])
    async def test_path_without_name_is_rejected(self, path: str) -> None:
        with pytest.raises(ValueError, match=r"name|empty|key"):
            async with asyncrec.open_sharded_writer(path, storage=MemoryStorage()):
                pass

    async def test_mode_new_rejects_existing_data_set(self) -> None:
        storage = MemoryStorage()
        async with asyncrec.open_sharded_writer("pages", storage=storage, mode="new") as writer:
            await writer.write(b"1")
        with pytest.raises(ObjectExistsError):
            async with asyncrec.open_sharded_writer("pages", storage=storage, mode="new"):
                pass

    @pytest.mark.parametrize("records", [0, 1])
    async def test_writer_id_cannot_be_reused(self, records: int) -> None:
        """Otherwise the first writer's closing segment would hide the commits of a second writer with the same id."""
        storage = MemoryStorage()
        async with asyncrec.open_sharded_writer("pages", storage=storage, writer_id="w") as writer:
            await writer.write_many([b"1"] * records)
        for mode in ("append", "replace"):
            with pytest.raises(
                ObjectExistsError, match="pages: a writer with the id w has already written to this data set or was"
            ):
                async with asyncrec.open_sharded_writer("pages", storage=storage, writer_id="w", mode=mode):  # type: ignore[arg-type]  # one of them
                    pass
        assert (await asyncrec.read_manifest("pages", storage=storage)).records == records

    async def test_unreadable_key_file_fails_opening(self) -> None:
        storage = MemoryStorage()
        async with asyncrec.open_sharded_writer("pages", storage=storage, writer_id="w") as writer:
            await writer.write(b"1", key="1")
        await storage.put("_keys/pages-w-000000.tfrecord.keys", b"torn")
        with pytest.raises(ManifestError, match="keys"):
            async with asyncrec.open_sharded_writer("pages", storage=storage, on_duplicate="skip"):
                pass

    async def test_on_commit_error_fails_writer(self) -> None:
        async def complain(entry: asyncrec.ShardEntry) -> None:
            raise LookupError(entry.path)

        storage = MemoryStorage()
        with pytest.raises(LookupError):
            async with asyncrec.open_sharded_writer("pages", storage=storage, on_commit=complain) as writer:
                await writer.write(b"1")
                with pytest.raises(LookupError):
                    await writer.commit()
        assert await stored(storage) == [b"1"]


async def test_hundreds_of_local_shards_fit_small_memory_limit(tmp_path: Path) -> None:
    """The shards' chunks share a quarter of the limit; 200 chunks of the usual size would take 400 MiB."""
    records = [b"%d" % n * 1_000 for n in range(1_000)]
    async with asyncrec.open_sharded_writer(tmp_path / "train", num_shards=200, memory_limit=64 << 20) as writer:
        await writer.write_many(records)
        assert writer.stats().reserved_bytes <= 16 << 20
    assert (await asyncrec.read_manifest(tmp_path / "train")).records == 1_000


class TestLocal:
    async def test_flush_spools_records_of_all_waiting_tasks(self, tmp_path: Path) -> None:
        async with asyncrec.open_sharded_writer(tmp_path / "pages", open_shards=2) as writer:
            tickets = [await writer.write(record, key=record) for record in numbered(50)]
            async with anyio.create_task_group() as group:
                for ticket in tickets:
                    group.start_soon(writer.wait, ticket, "spooled")
            assert await writer.flush(require="spooled") == "spooled"
            assert len([file for file in tmp_path.iterdir() if ".tfrecord." in file.name]) == 2
        assert [file.name for file in tmp_path.iterdir() if file.name.endswith(".partial")] == []
        assert len(await asyncrec.read_records((await asyncrec.list_shards(tmp_path / "pages"))[0])) == 25

    async def test_two_writers_in_one_folder_never_collide(self, tmp_path: Path) -> None:
        async def crawl(name: bytes) -> None:
            async with asyncrec.open_sharded_writer(tmp_path / "pages", max_shard_records=10) as writer:
                for i in range(100):
                    await writer.write(name + b"%d" % i)

        async with anyio.create_task_group() as group:
            for name in (b"a", b"b", b"c"):
                group.start_soon(crawl, name)
        manifest = await asyncrec.read_manifest(tmp_path / "pages")
        assert (len(manifest.shards), manifest.records, len(manifest.writers)) == (30, 300, 3)
        found = [
            r for path in await asyncrec.list_shards(tmp_path / "pages") for r in await asyncrec.read_records(path)
        ]
        assert sorted(found) == sorted(b"%c%d" % (name, i) for name in b"abc" for i in range(100))

    async def test_folder_without_manifest_is_distinguished_from_data_set(self, tmp_path: Path) -> None:
        with pytest.raises(ObjectNotFoundError, match="no manifest"):
            await asyncrec.read_manifest(tmp_path / "pages")
        await asyncrec.write_records(tmp_path / "pages-1.tfrecord", [b"1"])
        await asyncrec.write_records(tmp_path / "_pages.tfrecord", [b"1"])
        assert await asyncrec.list_shards(tmp_path / "pages") == [str(tmp_path / "pages-1.tfrecord")]
        assert await asyncrec.list_shards(str(tmp_path / "*.tfrec*")) == [str(tmp_path / "pages-1.tfrecord")]
