"""Unfinished files are found by folder and by data set, and removed once they are old."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import anyio.to_thread
import pytest
from mortal import dies, elsewhere

import asyncrec
from asyncrec import tools
from asyncrec.errors import StorageError
from asyncrec.storage._base import ObjectInfo
from asyncrec.storage._memory import MemoryStorage

pytestmark = pytest.mark.anyio


async def test_old_uploads_on_disk_are_removed(tmp_path: Path) -> None:
    for name in ("a/.pages-x-000000.tfrecord.0123456789abcdef.partial", "a/.other.0123456789abcdef.partial"):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(b"half")
    os.utime(tmp_path / "a/.other.0123456789abcdef.partial", (0, 0))
    assert len((await tools.uploads(tmp_path / "a")).found) == 2
    assert len((await tools.uploads(tmp_path / "a/pages")).found) == 1
    assert (await tools.uploads(tmp_path / "b")).found == []
    report = await tools.uploads(tmp_path, remove=True)
    assert [Path(info.key).name for info in report.removed] == [".other.0123456789abcdef.partial"]
    assert [each["removed"] for each in report.to_json()["uploads"]] == [True, False]
    assert len((await tools.uploads(tmp_path)).found) == 1


def make_old(folder: Path) -> set[str]:
    found = list(folder.rglob("*.partial"))
    for path in found:
        os.utime(path, (0, 0))
    return {path.name for path in found}


async def test_files_of_living_writer_are_kept_at_any_age(tmp_path: Path) -> None:
    async with asyncrec.open_sharded_writer(tmp_path / "pages") as writer:
        await writer.write(b"a record", key="its key")
        await writer.flush(require="spooled")
        there = make_old(tmp_path)
        assert len(there) == 4, "a note, a journal, its index and its keys"
        report = await tools.uploads(tmp_path, remove=True)
        assert report.removed == []
        assert {Path(info.key).name for info in report.kept} == there
        assert [each["kept"] for each in report.to_json()["uploads"]] == [True] * 4
    assert (await asyncrec.read_manifest(tmp_path / "pages")).records == 1


async def test_folder_jobs_are_looked_up_once_for_many_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []
    for files in (1, 12):
        top = tmp_path / str(files) / "top"
        for folder in (top, top / "below", top / "_index"):
            folder.mkdir(parents=True)
            for number in range(files):
                (folder / f".pages-x-{number:06d}.tfrecord.0123456789abcdef.partial").write_bytes(b"half")
        make_old(top)
        listed: list[str] = []
        with monkeypatch.context() as patches:
            for name in ("listdir", "scandir"):
                patches.setattr(os, name, noting(listed, getattr(os, name)))
            assert len((await tools.uploads(top, remove=True)).removed) == 3 * files
        asked.append(sorted(os.path.relpath(folder, top) for folder in listed))
    assert asked[0] == asked[1] != []


def noting(listed: list[str], call: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap a function that lists a folder, to record which folders it lists."""

    def noted(path: Any = ".") -> Any:
        listed.append(os.readlink(f"/proc/self/fd/{path}") if isinstance(path, int) else os.fspath(path))
        return call(path)

    return noted


async def test_files_of_dead_writer_are_kept_for_recovery(tmp_path: Path) -> None:
    program = """
import os, anyio, asyncrec
async def main():
    async with asyncrec.open_sharded_writer('pages') as writer:
        await writer.write(b"a record", key="its key")
        await writer.flush(require="spooled")
        os._exit(9)
anyio.run(main)
"""
    done = await anyio.to_thread.run_sync(
        lambda: subprocess.run([sys.executable, "-c", program], cwd=tmp_path, check=False)
    )
    assert done.returncode == 9
    (tmp_path / ".other.0123456789abcdef.partial").write_bytes(b"nobody's")
    there = make_old(tmp_path) - {".other.0123456789abcdef.partial"}
    report = await tools.uploads(tmp_path, remove=True)
    assert [Path(info.key).name for info in report.removed] == [".other.0123456789abcdef.partial"]
    assert {Path(info.key).name for info in report.kept} == there
    assert (await asyncrec.recover(tmp_path / "pages")).records == 1
    assert (await tools.uploads(tmp_path)).found == []


@pytest.mark.parametrize("code", [errno.EIO, errno.EMFILE])
async def test_unreadable_header_is_not_treated_as_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    real = os.open

    def fail(path: Any, flags: int, *args: Any, **options: Any) -> int:
        if str(path).endswith(".w.partial") and not flags & (os.O_WRONLY | os.O_RDWR):
            raise OSError(code, os.strerror(code), path)
        return real(path, flags, *args, **options)

    async with asyncrec.open_sharded_writer(tmp_path / "pages", writer_id="w") as writer:
        await writer.write(b"a record")
        await writer.flush(require="spooled")
        there = make_old(tmp_path)
        monkeypatch.setattr(os, "open", fail)
        with pytest.raises(StorageError, match=r"opening .*\.w\.partial") as raised:
            await tools.uploads(tmp_path, remove=True)
        with pytest.raises(StorageError, match=r"opening .*\.w\.partial"):
            await asyncrec.recover(tmp_path / "pages")
        monkeypatch.undo()
        assert raised.value.errno == code
        assert {path.name for path in tmp_path.rglob("*.partial")} == there


async def test_file_held_open_by_process_is_kept(tmp_path: Path) -> None:
    async with asyncrec.open_storage(str(tmp_path)) as storage:
        async with storage.open_sink("x") as sink:
            await sink.send([b"half"])
            make_old(tmp_path)
            report = await tools.uploads(tmp_path, remove=True)
            assert (len(report.found), len(report.kept), report.removed) == (1, 1, [])
        assert await storage.get("x") == b"half"


async def test_store_without_upload_list_reports_unsupported(tmp_path: Path) -> None:
    async with asyncrec.open_storage(f"memory://{tmp_path.name}") as storage:
        assert not (await tools.uploads("x", storage=storage)).supported


class Bucket(MemoryStorage):
    """A store that keeps unfinished uploads, but does not report their sizes."""

    def __init__(self, *keys: str) -> None:
        super().__init__()
        self.uploads = [ObjectInfo(key, 0, f"id of {key}", None, datetime.fromtimestamp(0, UTC)) for key in keys]

    async def list_unfinished(self, prefix: str = "") -> AsyncIterator[ObjectInfo]:
        for info in [info for info in self.uploads if info.key.startswith(prefix)]:
            yield info

    async def remove_unfinished(self, upload: ObjectInfo) -> None:
        self.uploads.remove(upload)


def uploads_of(writer: str) -> list[str]:
    shard = f"pages-{writer}-000003.tfrecord"
    return [f"crawl/{shard}", f"crawl/_index/{shard}.index", f"crawl/_keys/{shard}.keys"]


async def test_upload_of_living_writer_to_store_is_kept() -> None:
    nobodys = [*uploads_of("other"), "crawl/pages.tfrecord", "pages-alive-000003.tfrecord"]
    store = Bucket(*uploads_of("alive"), *nobodys)
    async with asyncrec.open_sharded_writer("crawl/pages", storage=store, writer_id="alive") as writer:
        await writer.write(b"a record")
        report = await tools.uploads("", storage=store, remove=True, older_than=0)
    assert [info.key for info in report.kept] == uploads_of("alive")
    assert {info.key for info in report.removed} == set(nobodys)
    rows = report.to_json()["uploads"]
    assert [row["reason"] for row in rows] == ["its writer alive is still running"] * 3 + [None] * len(nobodys)
    assert {row["bytes"] for row in rows} == {None}
    assert [info.key for info in store.uploads] == uploads_of("alive")
    assert len((await tools.uploads("", storage=store, remove=True, older_than=0)).removed) == 3, "it has ended"


async def test_upload_of_unreachable_writer_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = Bucket(*uploads_of("far"), *uploads_of("dead"), "crawl/pages-00001-of-00002.tfrecord")
    with elsewhere(monkeypatch, tmp_path):
        await dies(store, "crawl/pages", writer_id="fixed", num_shards=2)
        await dies(store, "crawl/pages", writer_id="far")
    await dies(store, "crawl/pages", writer_id="dead")
    report = await tools.uploads("crawl/", storage=store, remove=True)
    assert [info.key for info in report.removed] == uploads_of("dead")
    assert [info.key for info in report.kept] == [*uploads_of("far"), "crawl/pages-00001-of-00002.tfrecord"]
    assert "its writer far, on elsewhere, may still be running" in str(report.to_json()["uploads"][0]["reason"])
    await asyncrec.recover("crawl/pages", storage=store, abandon=["far", "fixed"])
    assert len((await tools.uploads("crawl/", storage=store, remove=True)).removed) == 4


async def test_recover_reports_dead_writer_without_spool_as_lost() -> None:
    store = Bucket()
    await dies(store, "crawl/pages", writer_id="dead")
    report = await tools.recover("crawl/pages", storage=store)
    assert report.recovery.lost == ("dead",)
    assert report.to_json()["lost"] == ["dead"]


@pytest.mark.parametrize("seconds", [1e30, float("inf"), float("nan")])
async def test_ages_of_more_than_century_are_rejected(seconds: float, tmp_path: Path) -> None:
    await asyncrec.write_records(tmp_path / "x-00000-of-00001.tfrecord", [b"x"])
    for call in (
        lambda: tools.uploads(tmp_path, remove=True, older_than=seconds),
        lambda: tools.compact(tmp_path / "x", grace=seconds),
        lambda: tools.verify(tmp_path / "x", min_age=seconds),
    ):
        with pytest.raises(ValueError, match="must be at most 3155760000 seconds, a century"):
            await call()
