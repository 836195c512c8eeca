"""Files that are kept open for reuse: which thread closes them, and who waits for that."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import asyncrec
from asyncrec._concurrency.tasks import in_thread
from asyncrec.errors import ObjectNotFoundError
from asyncrec.storage._local import open_files
from asyncrec.storage._local.disk import Disk, Place
from asyncrec.storage._local.open_files import OpenFile, OpenFiles

pytestmark = pytest.mark.anyio


class Closing:
    """A replacement for `os` that calls a function before it closes anything."""

    def __init__(self, before: Callable[[], object]) -> None:
        self._before = before

    def __getattr__(self, name: str) -> Any:
        return getattr(os, name)

    def close(self, fd: int) -> None:
        self._before()
        os.close(fd)


def kept(folder: Path, names: str) -> OpenFiles:
    files = OpenFiles(Disk())
    for name in names:
        (folder / name).write_bytes(b"content")
        assert opened(files, folder, name) is not None
    return files


def opened(files: OpenFiles, folder: Path, name: str) -> OpenFile | None:
    return files.open(name, Place(key=name, path=str(folder / name), shown=name), lambda info: True)


async def test_event_loop_closes_no_removed_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with asyncrec.open_sharded_writer(tmp_path / "pages", max_shard_records=10) as writer:
        await writer.write_many([b"record"] * 40)
    closed: list[int] = []
    monkeypatch.setattr(open_files, "os", Closing(lambda: closed.append(threading.get_ident())))
    async with asyncrec.open_dataset(tmp_path / "pages") as dataset:
        assert len(await dataset.get_many(range(40))) == 40
        for wanted in (3, 13):
            (tmp_path / dataset.manifest.shards[wanted // 10].path).unlink()
            with pytest.raises(ObjectNotFoundError):
                await (dataset.get(wanted) if wanted == 3 else dataset.get_many([wanted, 35]))
        assert len(closed) == 2
    assert len(closed) == 4
    assert threading.get_ident() not in closed


async def test_lookup_does_not_wait_for_concurrent_close(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(open_files, "_MOST_OPEN", 2)
    files = kept(tmp_path, "ab")
    (tmp_path / "c").write_bytes(b"content")
    closing, go_on = threading.Event(), threading.Event()

    def wait() -> None:
        closing.set()
        go_on.wait(20)

    with monkeypatch.context() as patch:
        patch.setattr(open_files, "os", Closing(wait))
        other = threading.Thread(target=opened, args=(files, tmp_path, "c"))
        other.start()
        try:
            assert await in_thread(closing.wait, 20)
            looking: list[OpenFile | None] = []
            looker = threading.Thread(target=lambda: looking.append(files.held("b", waits=True)))
            looker.start()
            await in_thread(looker.join, 10)
            assert len(looking) == 1, "it waits"
        finally:
            go_on.set()
            await in_thread(other.join)
    assert len(files) == 2
    assert files.held("a", waits=True) is None


async def test_removed_file_stays_open_until_requested_by_thread(tmp_path: Path) -> None:
    files = kept(tmp_path, "a")
    (tmp_path / "a").unlink()
    assert files.held("a", waits=False) is None
    assert len(files) == 1
    assert await in_thread(lambda: files.held("a", waits=True)) is None
    assert len(files) == 0


@pytest.mark.parametrize(
    ("in_memory", "tells", "waitless"), [(True, False, True), (False, True, True), (False, False, False)]
)
async def test_open_file_is_waitless_for_data_known_as_cached(
    tmp_path: Path, in_memory: bool, tells: bool, waitless: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = Disk()
    monkeypatch.setattr(disk, "lives_in_memory", lambda device: in_memory)
    monkeypatch.setattr(open_files, "tells_what_is_cached", lambda fd, system: tells)
    (tmp_path / "a").write_bytes(b"content")
    file = OpenFile(disk, Place(key="a", path=str(tmp_path / "a"), shown="a"))
    assert file.waitless is waitless
    if not waitless:
        assert file.cached([(4, 0), (3, 4)], memoryview(bytearray(7))) == [(4, 0, 0), (3, 4, 4)]
    assert file.read(7, 0) == b"content"


_FORKS = """
import os, sys
from asyncrec.storage._local.disk import Disk, Place
from asyncrec.storage._local.open_files import OpenFiles

files = OpenFiles(Disk())
place = Place(key="x", path=sys.argv[1], shown="x")
file = files.open("x", place, lambda info: True)
number = file._fd
child = os.fork()
if not child:
    try:
        os.fstat(number)
    except OSError:
        os._exit(0 if files.held("x", waits=True) is None and files.open("x", place, lambda info: True) else 1)
    os._exit(2)
sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) or files.held("x", waits=True) is not file)
"""


def test_forked_child_inherits_no_open_files(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(b"content")
    assert subprocess.run([sys.executable, "-c", _FORKS, tmp_path / "x"], check=False).returncode == 0
