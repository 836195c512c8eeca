"""`watch` shows each writer of a data set and its progress, without taking part in the work."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import fields
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import anyio
import numpy as np
import pytest
from mortal import dies, elsewhere

import asyncrec
from asyncrec import tools
from asyncrec._shards.journal.status import JobStatus
from asyncrec.errors import ObjectNotFoundError
from asyncrec.storage import MemoryStorage, Storage
from asyncrec.storage._local.storage import LocalStorage
from asyncrec.tools import WatchReport

pytestmark = [pytest.mark.anyio, pytest.mark.virtual_clock]


@pytest.fixture
async def storage(tmp_path: Path, anyio_backend_name: str) -> AsyncIterator[Storage]:
    async with asyncrec.open_storage(
        f"memory://{tmp_path.name}" if anyio_backend_name == "trio" else str(tmp_path / "store")
    ) as storage:
        yield storage


@asynccontextmanager
async def writing(path: object, **options: object) -> AsyncIterator[asyncrec.ShardedWriter]:
    async with asyncrec.open_sharded_writer(path, flush_seconds=None, **options) as writer:  # type: ignore[arg-type]
        yield writer


async def told(watch: tools.Watch, records: int) -> WatchReport:
    """Return the first report in which the only writer says that it has accepted this many records."""
    while True:
        report = await watch.look()
        if report.writers and report.writers[0].status and report.writers[0].status.taken_records == records:
            return report
        await anyio.sleep(30)


async def test_watch_shows_unsafe_records_of_disk_writer(tmp_path: Path) -> None:
    async with tools.open_watch(tmp_path / "pages") as watch:
        assert not (await watch.look()).there
        async with writing(tmp_path / "pages") as writer:
            await writer.write_many([b"x" * 100] * 5)
            report = await told(watch, 5)
            [seen] = report.writers
            assert (seen.id, seen.state, seen.pid) == (writer.writer_id, "at work", os.getpid())
            assert (report.records, report.uncommitted_records) == (0, 5)
            assert report.at_risk > 0
            await writer.commit()
            await writer.write(b"one more")
            report = await told(watch, 6)
            assert (report.records, report.uncommitted_records, report.shards) == (5, 1, 1)
        report = await watch.look()
        assert (report.writers, report.records, report.there) == ((), 6, True)


async def marked(storage: Storage, writer: str, since: datetime) -> None:
    """Change the start time in a writer's mark."""
    key = f"_manifest/pages/{writer}-000000.jsonl"
    mark = json.loads(await storage.get(key))
    await storage.put(key, json.dumps({**mark, "since": since.isoformat()}).encode())


async def test_watch_observes_store_writer_through_commits() -> None:
    storage = MemoryStorage()
    async with (
        asyncrec.open_sharded_writer("pages", storage=storage, writer_id="w") as writer,
        tools.open_watch("pages", storage=storage) as watch,
    ):
        await writer.write_many([b"a record"] * 50)
        report = await watch.look()
        [seen] = report.writers
        assert (seen.id, seen.state, seen.pid, seen.status) == ("w", "alive", os.getpid(), None)
        assert (seen.last_commit, report.records_per_second, report.uncommitted_records) == (None, None, 0)
        await writer.commit()
        [entry] = (await asyncrec.read_manifest("pages", storage=storage)).shards
        await marked(storage, "w", datetime.fromisoformat(entry.committed) - timedelta(seconds=100))
        report = await watch.look()
        [seen] = report.writers
        assert (seen.last_commit, seen.records) == (entry.committed, 50)
        assert seen.records_per_second == report.records_per_second == pytest.approx(0.5)
        assert report.bytes_per_second is None
        # Only the first object of its log shows that the writer is active; it is removed when the writer closes.
        begin = "_manifest/pages/w-000000.jsonl"
        assert [info.key async for info in storage.list_objects(begin)] == [begin]
    assert [info.key async for info in storage.list_objects(begin)] == []
    assert (await watch.look()).writers == ()


async def test_store_writer_is_quiet_since_last_commit() -> None:
    storage = MemoryStorage()
    long_ago = datetime.now(UTC) - timedelta(days=1)
    async with (
        asyncrec.open_sharded_writer("pages", storage=storage, writer_id="idle"),
        asyncrec.open_sharded_writer("pages", storage=storage, writer_id="busy") as busy,
    ):
        await busy.write(b"a record")
        await busy.commit()
        for writer in ("idle", "busy"):
            await marked(storage, writer, long_ago)
        report = await tools.watch("pages", storage=storage)
        assert {seen.id: seen.quiet > 80_000 for seen in report.writers} == {"idle": True, "busy": False}
        assert [seen.id for seen in report.older_than(3600)] == ["idle"]
        assert len(report.older_than(0)) == 2
        assert report.older_than(1e9) == ()


async def test_reporting_writer_without_new_records_is_idle(tmp_path: Path) -> None:
    async with tools.open_watch(tmp_path / "pages") as watch, writing(tmp_path / "pages") as writer:
        await writer.write(b"a record")
        await writer.commit()
        await anyio.sleep(90)
        report = await told(watch, 1)
        assert report.older_than(60) == ()
        assert [seen.id for seen in report.idle_for(60)] == [writer.writer_id]
        assert report.to_json()["writers"][0]["idle_seconds"] > 60
        assert report.idle_for(1e9) == ()
        await writer.write(b"another")
        assert (await told(watch, 2)).idle_for(60) == ()


async def test_store_writer_without_commit_is_idle_since_start() -> None:
    storage = MemoryStorage()
    async with asyncrec.open_sharded_writer("pages", storage=storage, writer_id="w"):
        await marked(storage, "w", datetime.now(UTC) - timedelta(days=1))
        report = await tools.watch("pages", storage=storage)
        assert [seen.id for seen in report.idle_for(3600)] == ["w"]
        assert report.idle_for(1e9) == ()


async def test_records_flushed_to_disk_are_not_at_risk(tmp_path: Path) -> None:
    async with tools.open_watch(tmp_path / "pages") as watch, writing(tmp_path / "pages") as writer:
        await writer.write(b"a record")
        await writer.flush(require="spooled")
        report = await told(watch, 1)
        while report.at_risk:
            report = await watch.look()
        assert report.uncommitted_records == 1


async def test_writer_leaves_no_status_file_after_being_watched(tmp_path: Path) -> None:
    async with writing(tmp_path / "pages") as writer:
        await writer.write(b"a record")
        async with tools.open_watch(tmp_path / "pages") as watch:
            await told(watch, 1)
        assert list(tmp_path.glob(".*~status.partial"))
    assert not [path for path in tmp_path.rglob("*") if path.name.startswith(".") or "status" in path.name]


async def test_recovery_removes_status_of_dead_writer(tmp_path: Path) -> None:
    await dies(LocalStorage(tmp_path), writer_id="gone")
    status = tmp_path / ".pages.gone~status.partial"
    status.write_bytes(b"00000000 half a sta")
    report = await tools.watch(tmp_path / "pages")
    assert [(seen.id, seen.state, seen.status) for seen in report.writers] == [("gone", "dead", None)]
    await asyncrec.recover(tmp_path / "pages")
    assert not status.exists()
    assert (await tools.watch(tmp_path / "pages")).writers == ()
    with pytest.raises(ObjectNotFoundError):
        await tools.watch(tmp_path / "others")


async def test_writer_on_another_machine_is_unknown_not_dead(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    storage = MemoryStorage()
    with elsewhere(monkeypatch, tmp_path):
        await dies(storage, writer_id="far")
    [seen] = (await tools.watch("pages", storage=storage)).writers
    assert (seen.state, seen.status, seen.host) == ("unknown", None, "elsewhere")


async def test_spool_folder_can_be_watched(tmp_path: Path, storage: Storage) -> None:
    async with writing("pages", storage=storage, spool=tmp_path / "spool") as writer:
        await writer.write(b"a record")
        async with tools.open_watch(tmp_path / "spool") as watch:
            report = await told(watch, 1)
    assert [(seen.id, seen.spool, seen.state) for seen in report.writers] == [(writer.writer_id, True, "at work")]
    assert [path.name for path in (tmp_path / "spool").iterdir() if "status" in path.name] == []


class UntoldDisk:
    """A disk on which no status can be written."""

    def __init__(self, tried: list[str]) -> None:
        self._tried = tried

    def __getattr__(self, name: str) -> Any:
        return getattr(os, name)

    def open(self, path: Any, *args: Any, **options: Any) -> int:
        if "~status" in os.fspath(path):
            self._tried.append(path)
            raise OSError(errno.EIO, "no")
        return os.open(path, *args, **options)


async def test_status_write_failure_does_not_disturb_writer(tmp_path: Path) -> None:
    tried: list[str] = []
    storage = LocalStorage(tmp_path, system=UntoldDisk(tried))
    async with writing("pages", storage=storage) as writer:
        while len(tried) < 3:
            await writer.write(b"a record")
            await writer.flush()
            await anyio.sleep(30)
    assert (await asyncrec.read_manifest("pages", storage=storage)).records == writer.stats().records


async def test_look_reads_only_new_segments(storage: Storage, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[str] = []
    get = type(storage).get

    async def counted(self: Storage, key: str, **options: int) -> bytes:
        if "_manifest" in key and "-000000." not in key:
            read.append(key)
        return await get(self, key, **options)

    monkeypatch.setattr(type(storage), "get", counted)
    async with asyncrec.open_sharded_writer("pages", storage=storage) as writer:
        async with tools.open_watch("pages", storage=storage) as watch:
            for number in range(3):
                await writer.write(b"a record")
                await writer.commit()
                assert (await watch.look()).records == number + 1
                assert (await watch.look()).records == number + 1
    assert len(read) == len(set(read)) == 3


async def test_watch_counts_first_records_of_shards_by_feature(storage: Storage) -> None:
    async with asyncrec.open_sharded_writer("pages", storage=storage, max_shard_records=10) as writer:
        for number in range(30):
            await writer.write(asyncrec.encode_example({"label": number % 3, "text": "a"}))
    report = await tools.watch("pages", by="label", storage=storage)
    assert report.classes == {"0": 10, "1": 10, "2": 10}
    assert (await tools.watch("pages", by="nothing", storage=storage)).classes == {"absent": 30}


async def test_feature_without_value_is_counted_separately(storage: Storage) -> None:
    async with asyncrec.open_sharded_writer("pages", storage=storage) as writer:
        await writer.write(asyncrec.encode_example({"label": np.array([], np.int64)}))
        await writer.write(asyncrec.encode_example({"label": [b"a", b"b"]}))
    assert (await tools.watch("pages", by="label", storage=storage)).classes == {"[]": 1, "a": 1}


async def test_watch_of_store_folder_ignores_local_spool(
    tmp_path: Path, storage: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A local spool with the same name is unrelated."""
    monkeypatch.chdir(tmp_path)
    async with writing("pages", storage=storage, spool="spool") as writer:
        await writer.write(b"a record")
        async with tools.open_watch("spool", storage=storage) as watch:
            assert not (await watch.look()).there
        async with tools.open_watch("spool") as watch:
            assert [seen.id for seen in (await told(watch, 1)).writers] == [writer.writer_id]


async def test_local_writer_without_status_is_silent(tmp_path: Path) -> None:
    numbers: dict[str, Any] = {each.name: 1 for each in fields(JobStatus) if each.type in ("int", "float")}
    async with asyncrec.open_sharded_writer(tmp_path / "pages") as writer:
        said = JobStatus(writer=writer.writer_id, time="2026-01-01T00:00:00+00:00", waiting_for="nothing", **numbers)
        (tmp_path / f".pages.{writer.writer_id}~status.partial").write_bytes(said.encode())
        report = await tools.watch(tmp_path / "pages")
        assert [(seen.state, seen.quiet > 60) for seen in report.writers] == [("silent", True)]
        assert report.records_per_second is None
        assert report.older_than(60) == report.writers
        assert report.older_than(1e12) == ()


@pytest.mark.parametrize(
    ("kind", "seconds", "state"), [("rolling", 30, "alive"), ("rolling", 90, "silent"), ("whole", 90, "alive")]
)
async def test_writer_without_status_is_silent_after_one_minute(
    tmp_path: Path, kind: str, seconds: float, state: str
) -> None:
    """The writer stopped before its first report. Jobs that commit everything at once, such as a copy, never report."""
    storage = LocalStorage(tmp_path, system=UntoldDisk([]))
    async with writing("pages", storage=storage, writer_id="w") as writer:
        await writer.write(b"a record")
        await writer.commit()
        header = tmp_path / ".pages.w.partial"
        before = header.read_bytes()
        process, line, *rest = before.split(b"\n")
        since = (datetime.now(UTC) - timedelta(seconds=seconds)).isoformat()
        said = json.dumps({**json.loads(line), "since": since, "kind": kind}).encode()
        header.write_bytes(b"\n".join([process, said, *rest]))
        report = await tools.watch(tmp_path / "pages")
        header.write_bytes(before)
    [seen] = report.writers
    assert (seen.id, seen.state, seen.status) == ("w", state, None)
    assert (report.records_per_second is None) == (state == "silent")
