"""If flock(2) fails (NFS without locks, many FUSE file systems), a command can still remove every leftover file."""

from __future__ import annotations

import errno
import fcntl
import os
from pathlib import Path

import pytest

import asyncrec
from asyncrec import tools
from asyncrec.errors import ObjectNotFoundError, StorageError
from asyncrec.storage._memory import MemoryStorage

pytestmark = pytest.mark.anyio


@pytest.fixture(params=[errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP])
def without_locks(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder below which no file can be locked."""
    folder = tmp_path / "far"
    folder.mkdir()
    lock = fcntl.flock

    def flock(fd: int, operation: int) -> None:
        if os.readlink(f"/proc/self/fd/{fd}").startswith(str(folder)):
            raise OSError(request.param, os.strerror(request.param))
        lock(fd, operation)

    monkeypatch.setattr(fcntl, "flock", flock)
    return folder


def left(folder: Path) -> list[str]:
    return [str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()]


async def test_failed_opening_names_remedy_and_leaves_nothing(without_locks: Path) -> None:
    for _ in range(2):
        with pytest.raises(StorageError, match=r"locking .*does not support locks.*use a folder on a disk") as caught:
            async with asyncrec.open_sharded_writer(without_locks / "pages"):
                pass
        assert caught.value.errno == errno.ENOLCK
        assert any("spool=" in note for note in caught.value.__notes__)
    assert left(without_locks) == []


async def test_spool_on_another_disk_suffices(without_locks: Path, tmp_path: Path) -> None:
    async with asyncrec.open_sharded_writer(without_locks / "pages", spool=tmp_path / "spool") as writer:
        await writer.write(b"record")
    (shard,) = await asyncrec.list_shards(without_locks / "pages")
    assert await asyncrec.read_records(shard) == [b"record"]


async def test_spool_without_locks_is_rejected_and_leaves_no_files(without_locks: Path) -> None:
    with pytest.raises(StorageError, match="does not support locks"):
        async with asyncrec.open_sharded_writer("pages", storage=MemoryStorage(), spool=without_locks):
            pass
    assert left(without_locks) == []


async def test_leftovers_without_locks_are_unrecoverable_but_removed_by_age(without_locks: Path) -> None:
    unnamed, unfinished = without_locks / ".0123456789abcdef.partial", without_locks / ".pages.0123.partial"
    unnamed.write_bytes(b"1\n")
    unfinished.write_bytes(b"1\n")
    with pytest.raises(ObjectNotFoundError, match="no such file, folder or data set"):
        await asyncrec.recover(without_locks / "pages")
    assert len((await tools.uploads(f"{without_locks}/", remove=True)).removed) == 0
    assert len((await tools.uploads(f"{without_locks}/", remove=True, older_than=0)).removed) == 2
    assert left(without_locks) == []


async def test_cache_without_locks_fails_at_once(without_locks: Path) -> None:
    storage = MemoryStorage()
    async with asyncrec.open_sharded_writer("pages", storage=storage) as writer:
        await writer.write(b"record")
    with pytest.raises(StorageError, match="does not support locks"):
        async with asyncrec.open_dataset("pages", storage=storage, cache=without_locks) as dataset:
            await dataset.get_many([0])


async def test_appending_without_locks_raises_with_explanation(without_locks: Path) -> None:
    with pytest.raises(StorageError, match="does not support locks"):
        async with asyncrec.open_writer(without_locks / "a.tfrecord", mode="a"):
            pass
