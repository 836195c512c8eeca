"""Promised records are never lost: a flush records its promise after the records, and locks prove death if possible."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest

import asyncrec
from asyncrec import blocking, tools
from asyncrec.errors import ArgumentValueError, ConflictError, ObjectNotFoundError, StorageError
from asyncrec.storage import Storage
from asyncrec.storage._local import lock, mounts
from asyncrec.storage._local.storage import LocalStorage
from asyncrec.storage._memory import MemoryStorage

from . import mortal

pytestmark = pytest.mark.anyio

RECORDS = [b"%d" % number for number in range(5)]
MORE = [b"more %d" % number for number in range(5)]


class Disk:
    """A replacement for `os` that, after `count`, calls ``before`` with the number of each changing operation."""

    def __init__(self, before: Callable[[int], None]) -> None:
        self.number: int | None = None
        self._before = before

    def count(self) -> None:
        self.number = 0

    def __getattr__(self, name: str) -> Any:
        real = getattr(os, name)
        if name not in ("fsync", "ftruncate", "link", "open", "pwrite", "replace", "unlink", "write", "writev"):
            return real

        def call(*args: Any) -> Any:
            if self.number is not None:
                self.number += 1
                self._before(self.number)
            return real(*args)

        return call


async def stored(path: Path | str, storage: Storage | None = None) -> list[bytes]:
    try:
        await asyncrec.read_manifest(path, storage=storage)
    except ObjectNotFoundError:
        return []
    report = await tools.verify(path, storage=storage)
    assert report.ok, report.to_json()
    shards = await asyncrec.list_shards(path, storage=storage)
    return sorted([record for shard in shards for record in await asyncrec.read_records(shard, storage=storage)])


class TestFixedSets:
    async def test_failed_first_flush_leaves_no_records_behind(self, tmp_path: Path) -> None:
        """Whichever operation fails, the same job can run again, and none of the failed run's records are recovered."""
        flushed = False
        at = 0
        while not flushed:
            at += 1
            folder = tmp_path / str(at)

            def fail(number: int, at: int = at) -> None:
                if number == at:
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

            disk = Disk(fail)
            storage = LocalStorage(folder, system=disk)
            try:
                async with asyncrec.open_sharded_writer("pages", num_shards=2, storage=storage) as writer:
                    await writer.write_many(RECORDS)
                    disk.count()
                    await writer.flush()
                    disk.number, flushed = None, True
            except StorageError:
                assert not flushed
                assert [path.name for path in folder.rglob("*") if path.is_file()] == [], at
                async with asyncrec.open_sharded_writer(folder / "pages", num_shards=2) as writer:
                    await writer.write_many(MORE)
                assert await stored(folder / "pages") == MORE
        assert at > 5

    async def test_kill_within_first_flush_keeps_all_or_no_records(self, tmp_path: Path) -> None:
        disk = Disk(lambda number: shutil.copytree(tmp_path / "run", tmp_path / str(number)) and None)
        storage = LocalStorage(tmp_path / "run", system=disk)
        async with asyncrec.open_sharded_writer("pages", num_shards=2, storage=storage) as writer:
            await writer.write_many(RECORDS)
            disk.count()
            assert await writer.flush() == "spooled"
            moments = disk.number
            disk.number = None
            shutil.copytree(tmp_path / "run", tmp_path / "told")
        assert (moments or 0) > 5
        for moment in [*map(str, range(1, (moments or 0) + 1)), "told"]:
            path = tmp_path / moment / "pages"
            await asyncrec.recover(path)
            found = await stored(path)
            assert found in ([RECORDS] if moment == "told" else [[], RECORDS]), moment

    async def test_wait_counts_records_of_cancelled_flush(self, tmp_path: Path) -> None:
        """The cancelled flush returns nothing, but all records are on disk for a caller that waits."""
        scope = anyio.CancelScope()
        syncs = 0

        def cancel(number: int) -> None:
            nonlocal syncs
            syncs += 1
            if syncs == 1:
                anyio.from_thread.run_sync(scope.cancel)

        disk = Disk(cancel)
        storage = LocalStorage(tmp_path / "run", system=disk)
        async with asyncrec.open_sharded_writer("pages", num_shards=2, storage=storage) as writer:
            last = await writer.write_many(RECORDS)
            disk.count()
            with scope:
                await writer.flush()
            assert scope.cancelled_caught
            while writer.stats().buffered_bytes:
                await anyio.lowlevel.checkpoint()
            await writer.wait(last, "spooled")
            shutil.copytree(tmp_path / "run", tmp_path / "killed")
        await asyncrec.recover(tmp_path / "killed" / "pages")
        assert await stored(tmp_path / "killed" / "pages") == RECORDS


@pytest.mark.parametrize("where", ["disk", "store"])
async def test_flush_of_replacing_writer_promises_no_published_shard(tmp_path: Path, where: str) -> None:
    storage: Storage = LocalStorage(tmp_path) if where == "disk" else MemoryStorage()
    async with asyncrec.open_sharded_writer("pages", storage=storage) as writer:
        await writer.write(b"old")
    async with mortal.killed(storage, mode="replace", max_shard_seconds=0.01) as writer:
        await writer.write_many(RECORDS[:4])
        await anyio.sleep(0.3)
        assert len([info async for info in storage.list_objects("") if info.key.endswith(".tfrecord")]) == 2
        assert await writer.flush() == "buffered"
        assert writer.stats().oldest_buffered_seconds > 0
    await asyncrec.recover("pages", storage=storage)
    assert await stored("pages", storage) == [b"old"]


class TestNames:
    @pytest.mark.parametrize("what", ["the folder", "the journals", "the headers", "the folder's name"])
    async def test_flush_fails_after_its_files_vanish(self, tmp_path: Path, what: str) -> None:
        folder = tmp_path / "data"
        with pytest.raises(StorageError, match="not safe"):
            async with asyncrec.open_sharded_writer(folder / "pages", on_error="discard") as writer:
                await writer.write_many(RECORDS)
                assert await writer.flush() == "spooled"
                if what == "the folder":
                    shutil.rmtree(folder)
                elif what == "the folder's name":
                    folder.rename(tmp_path / "elsewhere")
                else:
                    for path in folder.glob(".*.partial"):
                        if (".tfrecord." in path.name) == (what == "the journals"):
                            path.unlink()
                await writer.write_many(MORE)
                await writer.flush()

    async def test_flush_fails_after_file_removal(self, tmp_path: Path) -> None:
        with pytest.raises(ObjectNotFoundError, match="not safe"):
            async with asyncrec.open_writer(tmp_path / "a.tfrecord", mode="a") as writer:
                await writer.write(b"record")
                await writer.flush()
                (tmp_path / "a.tfrecord").unlink()
                await writer.write(b"record")
                await writer.flush()


class TestLocks:
    @pytest.mark.parametrize("takes", ["recover", "another writer"])
    @pytest.mark.parametrize("flushed", [True, False])
    async def test_living_writer_declared_dead_raises(
        self, tmp_path: Path, takes: str, flushed: bool, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Other machines do not see the writer's locks. All records that it promised are stored exactly once."""
        path = tmp_path / "pages"
        with pytest.raises(StorageError) as caught:
            async with asyncrec.open_sharded_writer(path, on_error="discard") as writer:
                for record in RECORDS:
                    await writer.write(record, key=record)
                if flushed:
                    assert await writer.flush() == "spooled"
                with monkeypatch.context() as patches:
                    patches.setattr(lock, "try_flock", lambda fd, **_: True)
                    if takes == "recover":
                        await asyncrec.recover(path)
                    else:
                        async with asyncrec.open_sharded_writer(path) as other:
                            await other.write(b"other", key=b"other")
                for record in MORE:
                    await writer.write(record, key=record)
                await writer.flush()
        assert "declared this writer dead" in str(caught.value)
        await asyncrec.recover(path)
        found = await stored(path)
        assert found == (RECORDS if flushed else []) + ([b"other"] if takes != "recover" else [])
        assert list(tmp_path.glob(".*.partial")) == []

    async def test_idle_writer_declared_dead_raises_on_flush(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        path = tmp_path / "pages"
        with pytest.raises(StorageError, match="not safe"):
            async with asyncrec.open_sharded_writer(path, on_error="discard") as writer:
                await writer.write_many(RECORDS)
                await writer.commit()
                monkeypatch.setattr(lock, "try_flock", lambda fd, **_: True)
                await asyncrec.recover(path)
                await writer.write_many(MORE)
                await writer.flush()
        assert await stored(path) == RECORDS

    @pytest.mark.parametrize("kind", ["ext4", "nfs4"])
    async def test_journal_of_other_boot_needs_silence_on_shared_mounts(
        self, tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        path = tmp_path / "pages"
        monkeypatch.setattr(mounts, "mount_of", lambda fd: (kind, "0:1"))
        await killed(path)
        boot_again(tmp_path)
        if kind == "nfs4":
            (left,) = (await asyncrec.recover(path)).unfinished
            async with asyncrec.open_sharded_writer(path):
                pass
            assert (await states(path))[left.id] == "unknown"
            for partial in tmp_path.glob(".*.partial"):
                os.utime(partial, (partial.stat().st_mtime - 200,) * 2)
            assert (await states(path))[left.id] == "dead"
        assert (await asyncrec.recover(path)).records == 5
        assert await stored(path) == RECORDS

    async def test_user_may_declare_writer_dead(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        path = tmp_path / "pages"
        monkeypatch.setattr(mounts, "mount_of", lambda fd: ("nfs4", "0:1"))
        await killed(path)
        boot_again(tmp_path)
        (left,) = (await asyncrec.recover(path)).unfinished
        assert (await asyncrec.recover(path, dead=[left.id])).records == 5
        assert await stored(path) == RECORDS
        assert list(tmp_path.glob(".*.partial")) == []


async def states(path: Path) -> dict[str, str]:
    return {writer.id: writer.state for writer in (await tools.watch(path)).writers}


def boot_again(folder: Path) -> None:
    """Change the headers as if they had been locked before this machine was rebooted."""
    for path in folder.glob(".pages.*.partial"):
        if "~status" not in path.name:
            process, header, _, *rest = path.read_bytes().split(b"\n")
            path.write_bytes(b"\n".join([process, header, b"another-boot 0:1", *rest]))


async def killed(path: Path) -> None:
    async with mortal.killed(LocalStorage(path.parent), path.name) as writer:
        await writer.write_many(RECORDS)
        await writer.flush()


class TestGoneMachines:
    @asynccontextmanager
    async def gone(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, **options: Any
    ) -> AsyncIterator[tuple[Storage, str]]:
        """Yield a store and a writer whose machine was lost between publishing and committing a shard."""

        storage = MemoryStorage()
        machine = mortal.Process(storage, "-000001.jsonl")
        (tmp_path / "another machine").mkdir()
        with monkeypatch.context() as patches:
            patches.setenv("XDG_RUNTIME_DIR", str(tmp_path / "another machine"))
            options = {"on_error": "discard", "writer_id": "w", **options}
            with pytest.raises(StorageError, match="killed"):
                async with asyncrec.open_sharded_writer("pages", storage=machine.storage, **options) as writer:
                    await writer.write_many(RECORDS)
        yield storage, "w"

    @pytest.mark.parametrize("spool", [False, True])
    async def test_published_shard_of_dead_writer_is_committed(
        self, tmp_path: Path, spool: bool, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        options = {"spool": tmp_path / "spool"} if spool else {}
        async with self.gone(tmp_path, monkeypatch, **options) as (storage, writer):
            if spool:
                shutil.rmtree(tmp_path / "spool")
            (left,) = (await asyncrec.recover("pages", storage=storage)).unfinished
            assert left.id == writer
            found = await asyncrec.recover("pages", storage=storage, dead=[writer])
            assert (found.records, found.lost, found.unfinished) == (5, (writer,), ())
            assert await stored("pages", storage) == RECORDS
            assert await asyncrec.recover("pages", storage=storage) == asyncrec.Recovery()

    async def test_returning_spool_of_abandoned_writer_is_kept(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        async with self.gone(tmp_path, monkeypatch, spool=tmp_path / "spool") as (storage, writer):
            await asyncrec.recover("pages", storage=storage, dead=[writer])
            with pytest.raises(ConflictError, match="abandoned"):
                await asyncrec.recover(tmp_path / "spool", to="pages", storage=storage)
            assert [path.name for path in (tmp_path / "spool").glob("pages-*.tfrecord")] == ["pages-w-000000.tfrecord"]

    async def test_unknown_ids_are_rejected_before_any_change(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        async with self.gone(tmp_path, monkeypatch) as (storage, writer):
            with pytest.raises(ObjectNotFoundError, match="no unfinished job with the id v"):
                await asyncrec.recover("pages", storage=storage, dead=[writer, "v"])
            with pytest.raises(ArgumentValueError, match="in both abandon and dead"):
                await asyncrec.recover("pages", storage=storage, dead=[writer], abandon=[writer])
            (left,) = (await asyncrec.recover("pages", storage=storage)).unfinished
            assert left.id == writer

    async def test_recover_refuses_to_declare_living_writer_dead(self, tmp_path: Path) -> None:
        async with asyncrec.open_sharded_writer(tmp_path / "pages", writer_id="w") as writer:
            await writer.write_many(RECORDS)
            with pytest.raises(ConflictError, match="is still running"):
                await asyncrec.recover(tmp_path / "pages", dead=["w"])
        assert await stored(tmp_path / "pages") == RECORDS

    async def test_blocking_recover_accepts_dead_option(self, tmp_path: Path) -> None:
        with pytest.raises(ObjectNotFoundError):
            await anyio.to_thread.run_sync(lambda: blocking.recover(tmp_path / "pages", dead=["v"]))
