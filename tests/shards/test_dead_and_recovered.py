"""Records of dead writers are recovered once, into the right data set, and disk errors are reported as such."""

from __future__ import annotations

import errno
import os
import stat
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

import asyncrec
from asyncrec import tools
from asyncrec.errors import AsyncRecError, ObjectNotFoundError, TransientStorageError
from asyncrec.storage import MemoryStorage, Storage
from asyncrec.testing import virtual_backend

from .met_storage import MetStorage

pytestmark = [pytest.mark.anyio, pytest.mark.parametrize("anyio_backend", [virtual_backend("asyncio")])]


class Failing(MetStorage):
    """A store that the test can switch off."""

    def __init__(self, storage: Storage) -> None:
        super().__init__(storage, before=self._fail)
        self.down = False

    async def _fail(self, operation: str, key: str) -> None:
        if self.down:
            raise TransientStorageError(f"{operation} {key}: no answer, as asked")


async def die(storage: Storage, path: str, spool: Path, records: list[bytes], **options: Any) -> None:
    """Run a writer that dies and leaves these records, flushed, in its spool."""
    failing = Failing(storage)
    with pytest.raises(TransientStorageError):
        async with asyncrec.open_sharded_writer(
            path, storage=failing, spool=spool, exit_timeout=5, **options
        ) as writer:
            failing.down = True
            await writer.write_many(records)
            await writer.flush()


async def test_interrupted_recovery_restores_no_replaced_records(tmp_path: Path) -> None:
    """Recovery fails after each of its changes in turn, and its commits are replaced before it is run again."""

    async def race(fails_behind: int) -> int:
        storage, spool = MemoryStorage(), tmp_path / str(fails_behind)
        await die(storage, "pages", spool, [b"old"])
        changes = 0

        async def count(operation: str, key: str) -> None:
            nonlocal changes
            changes += operation in ("publish", "delete")
            if fails_behind and changes >= fails_behind:
                raise TransientStorageError(f"{operation} {key}: no answer, as asked")

        with suppress(AsyncRecError):
            await asyncrec.recover(spool, to="pages", storage=MetStorage(storage, after=count))
        committed = 0
        with suppress(ObjectNotFoundError):
            committed = (await asyncrec.read_manifest("pages", storage=storage)).records
        async with asyncrec.open_sharded_writer("pages", storage=storage, mode="replace") as new:
            await new.write(b"new")
        if fails_behind:
            await asyncrec.recover(spool, to="pages", storage=storage)
        found = await tools.verify("pages", min_age=-60, storage=storage)
        assert (found.ok, found.records, found.orphans) == (True, 1 if committed else 2, []), fails_behind
        return changes

    changes = await race(0)
    assert changes > 3
    for fails_behind in range(1, changes + 1):
        await race(fails_behind)


async def test_opening_keeps_headers_of_other_data_sets_in_spool(tmp_path: Path) -> None:
    """A writer of a different data set, which had written nothing, has left its header in the spool."""
    other, storage = MemoryStorage(), MemoryStorage()
    await die(other, "other", tmp_path, [])
    notes = sorted(tmp_path.iterdir())
    async with asyncrec.open_sharded_writer("pages", storage=storage, spool=tmp_path) as writer:
        await writer.write(b"1")
    assert not [info.key async for info in storage.list_objects() if "other" in info.key]
    assert [path for path in notes if not path.exists()] == []


async def test_failing_disk_is_not_reported_as_in_use(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    await die(MemoryStorage(), "pages", tmp_path, [b"1"])
    open_ = os.open

    def fail(path: Any, flags: int, *args: Any, **options: Any) -> int:
        if flags & os.O_RDWR and str(path).endswith(".partial"):
            raise OSError(errno.EIO, "Input/output error")
        return open_(path, flags, *args, **options)

    monkeypatch.setattr(os, "open", fail)
    with pytest.raises(OSError, match="Input/output error") as caught:
        await asyncrec.recover(tmp_path, to="pages", storage=MemoryStorage())
    assert caught.value.errno == errno.EIO


async def test_files_are_synced_before_they_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise a power cut could leave a name, such as that of a job's header, pointing to a file without its data."""
    synced: set[int] = set()
    unsynced: list[str] = []
    fsync, link, rename, replace = os.fsync, os.link, os.rename, os.replace

    def note_sync(fd: int) -> None:
        synced.add(os.fstat(fd).st_ino)
        fsync(fd)

    def noting(call: Any) -> Any:
        def named(source: Any, target: Any, **options: Any) -> None:
            found = os.stat(source, follow_symlinks=False) if not options.get("src_dir_fd") else None
            if found is not None and stat.S_ISREG(found.st_mode) and found.st_size and found.st_ino not in synced:
                unsynced.append(str(target))
            call(source, target, **options)

        return named

    monkeypatch.setattr(os, "fsync", note_sync)
    monkeypatch.setattr(os, "fdatasync", note_sync)
    for name, call in {"link": link, "rename": rename, "replace": replace}.items():
        monkeypatch.setattr(os, name, noting(call))
    async with asyncrec.open_sharded_writer(tmp_path / "pages") as writer:
        await writer.write(b"1", key="a")
        await writer.flush()
    assert unsynced == []
    assert len(synced) > 4


@pytest.mark.parametrize("how", ["uploaded", "recovered", "abandoned"])
async def test_shard_is_removed_from_disk_after_its_sidecars(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    """If the process that removes them dies in between, the sidecars can only be found by means of their shard."""
    gone: list[str] = []
    unlink = os.unlink

    def note(path: Any, **options: Any) -> None:
        name = os.path.basename(path)
        if "pages-w-" in name and os.path.exists(path):
            gone.append("sidecar" if ".index" in name or ".keys" in name else "shard")
        unlink(path, **options)

    storage = MemoryStorage()
    if how != "uploaded":
        await die(storage, "pages", tmp_path, [b"1"], writer_id="w")
    monkeypatch.setattr(os, "unlink", note)
    if how == "uploaded":
        async with asyncrec.open_sharded_writer("pages", storage=storage, spool=tmp_path, writer_id="w") as writer:
            await writer.write(b"1", key="a")
    else:
        abandoned = ["w"] if how == "abandoned" else ()
        await asyncrec.recover(tmp_path, to="pages", abandon=abandoned, storage=storage)
    assert gone[-1:] == ["shard"]
    assert "sidecar" in gone[:-1]
