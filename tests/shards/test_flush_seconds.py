"""``flush_seconds``: a rolling writer's records are on disk after that many seconds, even without a call of `flush`.

A kill is simulated by copying the folder. The copy has no lock, and lacks all data that was not yet written.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anyio
import pytest

import asyncrec
from asyncrec._records.writing.inbox import FlushRequest
from asyncrec._records.writing.levels import FlushTimer, Levels
from asyncrec._records.writing.object_output import ObjectOutput
from asyncrec.errors import StorageError
from asyncrec.storage._local import unfinished
from asyncrec.storage._memory import MemoryStorage

pytestmark = [pytest.mark.anyio, pytest.mark.virtual_clock]

RECORDS = [b"record %06d" % i for i in range(100)]


class Flushes:
    """Count the syncs of files to disk, and make them fail on request."""

    def __init__(self) -> None:
        self.count = 0
        self.fails = False


@pytest.fixture
def flushes(monkeypatch: pytest.MonkeyPatch) -> Iterator[Flushes]:
    real, counted = unfinished.UnfinishedFile.flush, Flushes()

    def flush(self: unfinished.UnfinishedFile, tail: Any) -> int:
        counted.count += 1
        if counted.fails:
            raise OSError(28, "No space left on device")
        return real(self, tail)

    monkeypatch.setattr(unfinished.UnfinishedFile, "flush", flush)
    return counted


async def killed_now(folder: Path, *, spool: bool = False) -> list[bytes]:
    """Return the records that `recover` would find if the writer were killed now."""
    copy = folder.with_name(f"{folder.name}-killed")
    shutil.copytree(folder, copy)
    try:
        if spool:
            storage = MemoryStorage()
            await asyncrec.recover(copy, to="pages", storage=storage)
            return await stored("pages", storage)
        await asyncrec.recover(copy / "pages")
        return await stored(copy / "pages")
    finally:
        shutil.rmtree(copy)


async def stored(path: Any, storage: Any = None) -> list[bytes]:
    shards = await asyncrec.list_shards(path, storage=storage)
    return [record for shard in shards for record in await asyncrec.read_records(shard, storage=storage)]


class TestDurable:
    @pytest.mark.parametrize("compression", ["", "GZIP", "ZLIB"])
    @pytest.mark.parametrize("keyed", [False, True])
    async def test_kill_loses_only_records_of_last_seconds(self, tmp_path: Path, compression: str, keyed: bool) -> None:
        async with asyncrec.open_sharded_writer(tmp_path / "d" / "pages", compression=compression) as writer:
            for number, record in enumerate(RECORDS[:40]):  # one per second
                await writer.write(record, key=record if keyed else None)
                if number % 13 == 12:
                    found = await killed_now(tmp_path / "d")
                    assert found == RECORDS[: len(found)]
                    assert len(found) >= number - 1
                await anyio.sleep(1)
            assert writer.flush_seconds == 1

    async def test_single_record_becomes_durable_after_flush_seconds(self, tmp_path: Path, flushes: Flushes) -> None:
        async with asyncrec.open_sharded_writer(tmp_path / "d" / "pages", flush_seconds=30) as writer:
            await writer.write(b"alone")
            await anyio.sleep(29)
            assert flushes.count == 0
            await anyio.sleep(2)
            assert flushes.count == 1
            assert await killed_now(tmp_path / "d") == [b"alone"]

    async def test_large_record_becomes_durable_after_flush_seconds(self, tmp_path: Path) -> None:
        large = bytes((1 << 20) + 1)
        async with asyncrec.open_sharded_writer(tmp_path / "d" / "pages") as writer:
            await writer.write(large)
            await anyio.sleep(1.5)
            assert await killed_now(tmp_path / "d") == [large]

    async def test_open_shards_are_timed_separately(self, tmp_path: Path) -> None:
        async with asyncrec.open_sharded_writer(tmp_path / "d" / "pages", open_shards=3) as writer:
            for number, record in enumerate(RECORDS[:9]):
                await writer.write(record, partition=number % 3)
                await anyio.sleep(1)
            await anyio.sleep(1)
            assert sorted(await killed_now(tmp_path / "d")) == RECORDS[:9]

    async def test_timed_flush_writes_records_to_spool(self, tmp_path: Path) -> None:
        spool = tmp_path / "spool"
        async with asyncrec.open_sharded_writer("pages", storage=MemoryStorage(), spool=spool) as writer:
            await writer.write_many(RECORDS)
            await anyio.sleep(1.5)
            assert await killed_now(spool, spool=True) == RECORDS

    async def test_records_waiting_for_publication_are_flushed_with_next_shard(self, tmp_path: Path) -> None:
        async with asyncrec.open_sharded_writer(tmp_path / "d" / "pages", max_shard_records=10) as writer:
            await writer.write_many(RECORDS[:25])
            await anyio.sleep(1.5)
            assert sorted(await killed_now(tmp_path / "d")) == RECORDS[:25]

    async def test_records_of_busy_producer_are_flushed_by_time(self, tmp_path: Path, flushes: Flushes) -> None:
        async with asyncrec.open_sharded_writer(tmp_path / "d" / "pages", flush_seconds=10) as writer:
            for _ in range(100):
                await writer.write_many([bytes(1000)] * 1100)  # more than one batch
                await anyio.sleep(0.5)
        assert 4 <= flushes.count <= 5

    async def test_slow_disk_is_flushed_on_time(
        self, tmp_path: Path, flushes: Flushes, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        write = ObjectOutput.write

        async def write_slowly(output: ObjectOutput, batches: Any) -> None:
            await anyio.sleep(1)
            await write(output, batches)

        monkeypatch.setattr(ObjectOutput, "write", write_slowly)
        async with asyncrec.open_sharded_writer(tmp_path / "d" / "pages", flush_seconds=10) as writer:
            for _ in range(100):
                await writer.write_many([b"record"] * 1100)
                await anyio.sleep(0.5)
            assert 3 <= flushes.count <= 5

    async def test_requested_flush_makes_timed_flush_unnecessary(self, tmp_path: Path, flushes: Flushes) -> None:
        async with asyncrec.open_sharded_writer(tmp_path / "d" / "pages") as writer:
            await writer.write_many(RECORDS)
            assert await writer.flush() == "spooled"
            await anyio.sleep(1000)
            assert flushes.count == 1


class TestIdle:
    @pytest.mark.parametrize("written", [0, 1])
    async def test_idle_writer_only_writes_status_reports(
        self, tmp_path: Path, flushes: Flushes, written: int, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("asyncrec._shards.writing.telling.STATUS_SECONDS", 1e9)
        async with asyncrec.open_sharded_writer(tmp_path / "pages") as writer:
            await writer.write_many(RECORDS[:written])
            await anyio.sleep(100)
            flushes.count = 0
            begun = anyio.current_time()
            with anyio.move_on_after(10**9):  # the clock jumps straight to the end unless there is another timer
                await anyio.sleep(10**6)
            assert anyio.current_time() - begun == 10**6
            assert flushes.count == 0

    @pytest.mark.parametrize(
        ("options", "spools"),
        [
            ({"num_shards": 2}, True),
            ({"mode": "replace"}, True),
            ({"mode": "replace", "num_shards": 2}, True),
            ({"flush_seconds": None}, True),
            ({"on_error": "discard"}, True),
            ({"flush_seconds": None}, False),
            ({"num_shards": 2}, False),
        ],
    )
    async def test_writer_acknowledging_only_at_commit_never_flushes(
        self, tmp_path: Path, flushes: Flushes, options: dict[str, Any], spools: bool
    ) -> None:
        path, storage = (tmp_path / "pages", None) if spools else ("pages", MemoryStorage())
        async with asyncrec.open_sharded_writer(path, storage=storage, **options) as writer:
            await writer.write_many(RECORDS)
            await anyio.sleep(100)
            assert writer.flush_seconds is None
            assert flushes.count == 0
        assert sorted(await stored(path, storage)) == RECORDS

    async def test_dead_fixed_writer_has_acknowledged_no_records(self, tmp_path: Path) -> None:
        async with asyncrec.open_sharded_writer(tmp_path / "d" / "pages", num_shards=2) as writer:
            await writer.write_many(RECORDS)
            await anyio.sleep(100)
            copy = tmp_path / "copy"
            shutil.copytree(tmp_path / "d", copy)
        recovery = await asyncrec.recover(copy / "pages")
        assert (recovery.records, len(recovery.discarded)) == (0, 2)

    @pytest.mark.parametrize("seconds", [0, -1])
    async def test_flush_seconds_must_be_positive(self, tmp_path: Path, seconds: float) -> None:
        with pytest.raises(ValueError, match="must be greater than 0, or None to never flush"):
            async with asyncrec.open_sharded_writer(tmp_path / "pages", flush_seconds=seconds):
                pass


class TestFailing:
    @pytest.mark.parametrize("call", ["write", "write_many", "flush", "commit", "wait", "exit"])
    async def test_failed_flush_is_raised_by_next_call(self, tmp_path: Path, flushes: Flushes, call: str) -> None:
        with pytest.raises(StorageError, match="No space left"):
            async with asyncrec.open_sharded_writer(tmp_path / "pages") as writer:
                ticket = await writer.write(b"first")
                flushes.fails = True
                await anyio.sleep(1.5)
                assert flushes.count == 1
                match call:
                    case "write":
                        await writer.write(b"second")
                    case "write_many":
                        await writer.write_many([b"second"])
                    case "flush":
                        await writer.flush()
                    case "commit":
                        await writer.commit()
                    case "wait":
                        await writer.wait(ticket, "committed")
                assert call == "exit"

    async def test_failed_flush_releases_waiting_callers(self, tmp_path: Path, flushes: Flushes) -> None:
        with pytest.raises(StorageError, match="No space left"):
            async with asyncrec.open_sharded_writer(tmp_path / "pages") as writer:
                ticket = await writer.write(b"first")
                flushes.fails = True
                with anyio.fail_after(6):
                    await writer.wait(ticket, "committed")

    async def test_failed_flush_keeps_earlier_durable_records(self, tmp_path: Path, flushes: Flushes) -> None:
        with pytest.raises(StorageError, match="No space left"):
            async with asyncrec.open_sharded_writer(tmp_path / "pages") as writer:
                await writer.write_many(RECORDS[:50])
                await anyio.sleep(1.5)
                await writer.write_many(RECORDS[50:])
                flushes.fails = True
                await anyio.sleep(1.5)
        await asyncrec.recover(tmp_path / "pages")
        found = await stored(tmp_path / "pages")
        assert found == RECORDS[: len(found)]
        assert len(found) >= 50


class TestTimer:
    async def test_timer_is_due_by_age_of_oldest_unspooled_record(self) -> None:
        levels = Levels()
        timer = FlushTimer(levels, 5)
        assert timer.due() == float("inf")
        levels.taken(1, 10.0)
        levels.taken(2, 12.0)
        assert timer.due() == 15
        levels.spooled(1)
        assert timer.due() == 17
        levels.spooled(2)
        assert timer.due() == float("inf")

    async def test_timer_is_not_due_during_or_soon_after_flush(self) -> None:
        levels = Levels()
        timer = FlushTimer(levels, 5)
        levels.taken(1, anyio.current_time())
        await anyio.sleep(100)  # the record waits for the one before it
        timer.asked(request := FlushRequest())
        assert timer.due() == float("inf")
        request.finish(spooled=False)
        assert timer.due() == anyio.current_time() + 5

    async def test_timer_without_seconds_is_never_due(self) -> None:
        levels = Levels()
        levels.taken(1, 10.0)
        assert FlushTimer(levels, None).due() == float("inf")
