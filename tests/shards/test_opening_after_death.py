"""A rolling writer that opens after others died: it recovers dead rolling writers, but only reports atomic ones."""

from __future__ import annotations

import fcntl
import logging
import os
from pathlib import Path
from typing import Any

import anyio
import pytest

import asyncrec
from asyncrec import tools
from asyncrec._shards.journal.header import JobHeader
from asyncrec._shards.journal.staging import LocalStaging
from asyncrec.errors import ConflictError, StorageError
from asyncrec.storage._local.storage import LocalStorage
from asyncrec.storage._memory import MemoryStorage

from . import mortal

pytestmark = [pytest.mark.anyio, pytest.mark.virtual_clock]

RECORDS = [b"record %06d" % i for i in range(100)]


async def killed(path: Any, *, storage: Any = None, flushes: bool = True, **options: Any) -> None:
    """Run a writer whose process is killed after a flush, or after its records were flushed automatically."""
    name = path
    if storage is None:
        storage, name = LocalStorage(path.parent), path.name
    async with mortal.killed(storage, name, **options) as writer:
        for record in RECORDS:
            await writer.write(record, key=record)
        if flushes:
            await writer.flush()


def headers(folder: Path) -> list[str]:
    """Return the headers in the folder of the jobs that have not ended."""
    return [path.name for path in folder.glob(".pages.*.partial") if "~status" not in path.name]


async def stored(path: Any, storage: Any = None) -> list[bytes]:
    shards = await asyncrec.list_shards(path, storage=storage)
    return [record for shard in shards for record in await asyncrec.read_records(shard, storage=storage)]


async def test_records_and_keys_of_dead_writer_are_recovered(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    await killed(tmp_path / "pages", writer_id="one")
    async with asyncrec.open_sharded_writer(tmp_path / "pages", on_duplicate="skip") as writer:
        assert "the writer one died; 100 records that it left in " in caplog.text
        assert "flush_seconds may be lost: write them again" in caplog.text
        assert "recovered 100 records" in caplog.text
        assert await stored(tmp_path / "pages") == RECORDS
        assert all(writer.has(record) for record in RECORDS)
        caplog.clear()
        async with asyncrec.open_sharded_writer(tmp_path / "pages"):  # while the first writer is open
            assert caplog.text == ""
        await writer.write(b"more")
    assert sorted(await stored(tmp_path / "pages")) == [b"more", *RECORDS]
    assert headers(tmp_path) == []


async def test_dead_writer_without_records_reports_no_recovery(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    header = JobHeader(kind="rolling", name="pages", writer="one", url=str(tmp_path / "pages"), metadata={})
    LocalStaging.begin(LocalStorage(tmp_path), header).end(keep=True)
    async with asyncrec.open_sharded_writer(tmp_path / "pages"):
        assert "the writer one died; it left no complete record; records that it accepted" in caplog.text
    assert "recovered" not in caplog.text
    (info,) = (await tools.info(tmp_path / "pages")).datasets
    assert sorted(writer.state for writer in info.writers) == ["closed", "died"]


async def test_spool_of_dead_writer_is_recovered_with_keys(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    storage, spool = MemoryStorage(), tmp_path / "spool"
    await killed("pages", storage=storage, spool=spool, writer_id="one")
    async with asyncrec.open_sharded_writer("pages", storage=storage, spool=spool, on_duplicate="skip") as writer:
        assert "the writer one died" in caplog.text
        assert all(writer.has(record) for record in RECORDS)
    assert await stored("pages", storage) == RECORDS


async def unlisted(storage: MemoryStorage) -> None:
    """Kill a writer without a disk after it has published a shard of 50 records but before it has committed it."""
    await killed("pages", storage=storage, writer_id="one", max_shard_records=50, flush_seconds=None)
    async for info in storage.list_objects("_manifest/"):
        if not info.key.endswith("-000000.jsonl"):
            await storage.delete(info.key)


async def test_skipping_writer_knows_keys_of_published_uncommitted_shard(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Otherwise the records could be written again before `recover` commits the shard."""
    storage = MemoryStorage()
    await unlisted(storage)
    async with asyncrec.open_sharded_writer("pages", storage=storage, on_duplicate="skip") as writer:
        assert "the writer one died" in caplog.text
        assert "recovered 50 records" in caplog.text
        for record in RECORDS:
            await writer.write(record, key=record)
    assert sorted(await stored("pages", storage)) == RECORDS
    assert (await asyncrec.recover("pages", storage=storage)).records == 0


async def test_skipping_writer_warns_about_unknown_dead_keys(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    storage = MemoryStorage()
    await unlisted(storage)
    await killed("pages", storage=storage, writer_id="two", spool=tmp_path / "spool")
    caplog.clear()
    options: dict[str, Any] = {"storage": storage, "on_duplicate": "skip", "spool": tmp_path / "other"}
    async with asyncrec.open_sharded_writer("pages", recover=False, **options):
        assert "the writer one died and left records that are not committed" in caplog.text
        assert "the writer two died and left records that are in a spool on this machine" in caplog.text
    caplog.clear()
    async with asyncrec.open_sharded_writer("pages", **options):
        assert "the writer two died and left records that are in a spool on this machine" in caplog.text
    assert await stored("pages", storage) == RECORDS[:50]
    await asyncrec.recover(tmp_path / "spool", to="pages", storage=storage)
    caplog.clear()
    async with asyncrec.open_sharded_writer("pages", **options) as writer:
        async with asyncrec.open_sharded_writer("pages", storage=storage, on_duplicate="skip"):  # beside the first
            assert caplog.text == ""
        assert all(writer.has(record) for record in RECORDS)


@pytest.mark.parametrize("spool", [False, True])
async def test_writer_without_recovery_warns_and_leaves_records_untouched(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, spool: bool
) -> None:
    storage = MemoryStorage() if spool else None
    path: Any = "pages" if spool else tmp_path / "pages"
    options: dict[str, Any] = {"storage": storage, "spool": tmp_path / "spool" if spool else None}
    await killed(path, writer_id="one", **options)
    async with asyncrec.open_sharded_writer(path, recover=False, **options) as writer:
        assert caplog.text.count("the writer one died and left uncommitted records") == 1
        assert "--abandon one'" in caplog.text
        await writer.write(b"more")
    assert await stored(path, storage) == [b"more"]
    assert (
        await asyncrec.recover(tmp_path / "spool" if spool else path, to="pages" if spool else None, storage=storage)
    ).records == 100


@pytest.mark.parametrize("options", [{"mode": "new"}, {"mode": "replace"}, {"num_shards": 2}])
async def test_writer_of_other_kind_warns_without_recovering(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, options: dict[str, Any]
) -> None:
    await killed(tmp_path / "pages", writer_id="one")
    async with asyncrec.open_sharded_writer(tmp_path / "pages", **options):
        assert caplog.text.count("the writer one died and left uncommitted records") == 1
    assert (await asyncrec.recover(tmp_path / "pages")).records == 100


class TestAllOrNothing:
    @pytest.mark.parametrize("flushes", [False, True])
    async def test_dead_fixed_writer_is_reported_with_both_remedies(
        self, tmp_path: Path, caplog: pytest.LogCaptureFixture, flushes: bool
    ) -> None:
        await killed(tmp_path / "pages", num_shards=2, writer_id="one", flushes=flushes)
        async with asyncrec.open_sharded_writer(tmp_path / "pages") as writer:
            assert caplog.text.count("the writer one died before it committed its fixed shards") == 1
            assert f"'asyncrec recover {tmp_path / 'pages'}' commits them" in caplog.text
            assert f"'asyncrec recover {tmp_path / 'pages'} --abandon one' discards the records" in caplog.text
            await writer.write(b"mine")
        assert await stored(tmp_path / "pages") == [b"mine"]
        assert (await asyncrec.recover(tmp_path / "pages")).records == (100 if flushes else 0)

    async def test_dead_fixed_writer_can_be_abandoned_as_documented(self, tmp_path: Path) -> None:
        await killed(tmp_path / "pages", num_shards=2, writer_id="one")
        assert (await asyncrec.recover(tmp_path / "pages", abandon=["one"])).abandoned == ("one",)
        assert headers(tmp_path) == []

    async def test_dead_fixed_writer_in_spool_stays_uncommitted(
        self, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        storage, spool = MemoryStorage(), tmp_path / "spool"
        await killed("pages", storage=storage, spool=spool, num_shards=2, writer_id="one")
        with pytest.raises(ConflictError, match="recover the spool there"):
            async with asyncrec.open_sharded_writer("pages", storage=storage, spool=spool, num_shards=2):
                pass
        caplog.clear()
        async with asyncrec.open_sharded_writer("pages", storage=storage, spool=spool) as writer:
            assert caplog.text.count("the writer one died before it committed its fixed shards") == 1
            assert f"'asyncrec recover {spool} --to memory://pages --abandon one' discards the records" in caplog.text
            await writer.write(b"mine")
        assert await stored("pages", storage) == [b"mine"]
        assert (await asyncrec.recover(spool, to="pages", storage=storage)).records == 100
        assert sorted(await stored("pages", storage)) == [b"mine", *RECORDS]

    async def test_unflushed_fixed_writer_in_spool_is_abandoned(self, tmp_path: Path) -> None:
        storage, spool = MemoryStorage(), tmp_path / "spool"
        await killed("pages", storage=storage, spool=spool, num_shards=2, flushes=False)
        async with asyncrec.open_sharded_writer("pages", storage=storage, spool=spool, num_shards=2) as writer:
            await writer.write_many(RECORDS)
        assert sorted(await stored("pages", storage)) == RECORDS
        assert headers(spool) == []

    async def test_dead_replacing_writer_is_reported_but_uncommitted(
        self, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        await killed(tmp_path / "pages", mode="replace", writer_id="one")
        async with asyncrec.open_sharded_writer(tmp_path / "pages"):
            assert caplog.text.count("the writer one died before it committed its shards") == 1
            assert "removes the remaining files" in caplog.text
        assert await stored(tmp_path / "pages") == []


class TestFailing:
    async def test_failed_recovery_raises_and_keeps_records(self, tmp_path: Path) -> None:
        await killed(tmp_path / "pages", writer_id="one")
        in_the_way = tmp_path / "pages-one-000000.tfrecord"
        in_the_way.mkdir()
        with pytest.raises(StorageError) as caught:
            async with asyncrec.open_sharded_writer(tmp_path / "pages"):
                pass
        assert any("pass recover=False" in note for note in caught.value.__notes__)
        async with asyncrec.open_sharded_writer(tmp_path / "pages", recover=False) as writer:
            await writer.write(b"mine")
        in_the_way.rmdir()
        async with asyncrec.open_sharded_writer(tmp_path / "pages"):
            assert sorted(await stored(tmp_path / "pages")) == [b"mine", *RECORDS]

    async def test_briefly_locked_header_is_checked_again(self, tmp_path: Path) -> None:
        await killed(tmp_path / "pages", writer_id="one")
        (header,) = headers(tmp_path)
        fd = os.open(tmp_path / header, os.O_RDWR)
        fcntl.flock(fd, fcntl.LOCK_EX)

        async def look_away() -> None:
            await anyio.sleep(0.07)
            os.close(fd)

        async with anyio.create_task_group() as group:
            group.start_soon(look_away)
            async with asyncrec.open_sharded_writer(tmp_path / "pages"):
                assert (await asyncrec.read_manifest(tmp_path / "pages")).records == 100

    async def test_living_writer_is_not_touched_without_long_wait(
        self, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        caplog.set_level(logging.WARNING, "asyncrec")
        async with asyncrec.open_sharded_writer(tmp_path / "pages") as first:
            await first.write_many(RECORDS)
            await first.flush()
            begun = anyio.current_time()
            async with asyncrec.open_sharded_writer(tmp_path / "pages"):
                assert anyio.current_time() - begun < 0.2
            assert caplog.text == ""
        assert await stored(tmp_path / "pages") == RECORDS
