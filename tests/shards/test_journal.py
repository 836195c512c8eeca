"""Headers of jobs on a disk: their contents, and that other users' files in a shared folder are not trusted."""

from __future__ import annotations

import errno
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import asyncrec
from asyncrec._framing.compression import CompressionOptions
from asyncrec._shards.journal.header import JobHeader
from asyncrec.errors import ObjectNotFoundError, StorageError
from asyncrec.storage._local.storage import LocalStorage

from .mortal import killed

pytestmark = pytest.mark.anyio

NOTE = JobHeader(kind="rolling", name="pages", writer="w", url="pages", metadata={}, since="2026-11-21T00:00:00Z")


def changed(**members: Any) -> bytes:
    return json.dumps({**json.loads(NOTE.encode()), **members}).encode()


async def test_header_is_found_despite_one_byte_reads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A header that is not recognised would be removed as a leftover, along with everything that could be recovered."""
    async with killed(LocalStorage(tmp_path)) as writer:
        await writer.write(b"a record")
        await writer.flush(require="spooled")
    pread = os.pread
    monkeypatch.setattr(os, "pread", lambda fd, size, position: pread(fd, min(size, 1), position))
    assert (await asyncrec.recover(tmp_path / "pages")).records == 1


async def test_interrupted_promise_can_be_repeated(tmp_path: Path) -> None:
    class Full:
        """A replacement for `os` that writes only a part of the first acknowledgement."""

        full = True

        def __getattr__(self, name: str) -> Any:
            return getattr(os, name)

        def write(self, fd: int, data: bytes) -> int:
            return self._taken(data, lambda part: os.write(fd, part))

        def pwrite(self, fd: int, data: bytes, position: int) -> int:
            return self._taken(data, lambda part: os.pwrite(fd, part, position))

        def _taken(self, data: bytes, write: Callable[[bytes], int]) -> int:
            if not self.full or data != b"acknowledged\n":
                return write(data)
            self.full = False
            write(data[:5])
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    system, home, copy = Full(), tmp_path / "home", tmp_path / "copy"
    folder = LocalStorage(home, system=system)
    async with asyncrec.open_sharded_writer("pages", storage=folder, num_shards=1) as writer:
        await writer.write(b"a record")
        with pytest.raises(StorageError, match="No space left"):
            await writer.flush(require="spooled")
        assert not system.full
        assert await writer.flush(require="spooled") == "spooled"
        shutil.copytree(home, copy)  # the state if the writer were killed now
    assert (await asyncrec.recover(copy / "pages")).records == 1


def test_job_header_round_trips() -> None:
    note = JobHeader(
        kind="fixed",
        name="päges",
        writer="w_1",
        url="s3://b/päges",
        num_shards=3,
        stems=("a.b", "of-00003"),
        spool=True,
        compression=CompressionOptions(type="GZIP", level=3),
        schema={"a": 1},
        metadata={"b": [2]},
        host="h",
        pid=7,
        since="2026-11-21T00:00:00+00:00",
        life="0123456789abcdef",
    )
    assert JobHeader.decode(note.encode()) == note


@pytest.mark.parametrize(
    "members",
    [
        {"num_shards": "3"},
        {"num_shards": 3_000_000},
        {"num_shards": 0},
        {"num_shards": True},
        {"kind": "fixed"},
        {"kind": "other"},
        {"name": "a/b"},
        {"name": ""},
        {"name": 7},
        {"writer": "../w"},
        {"writer": ""},
        {"url": 5},
        {"metadata": [1]},
        {"metadata": None},
        {"schema": "x"},
        {"spool": 1},
        {"detached": 1},
        {"detached": True},
        {"pid": "1"},
        {"since": "yesterday"},
        {"since": "2026-11-21T00:00:00"},
        {"stems": ["a/b"]},
        {"stems": 7},
        {"compression": {"type": "ZSTD"}},
        {"compression": None},
        {"format": "asyncrec journal 3"},
        {"unknown": 1},
    ],
    ids=str,
)
def test_malformed_job_header_is_rejected(members: dict[str, Any]) -> None:
    assert JobHeader.decode(changed()) is not None
    assert JobHeader.decode(changed(**members)) is None


async def test_pipes_links_and_folders_named_like_headers_are_ignored(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / ".pages.a.partial")
    other = tmp_path / "other"
    other.write_bytes(b"1\n" + changed(writer="b"))
    (tmp_path / ".pages.b.partial").symlink_to(other)
    (tmp_path / ".pages.c.partial").mkdir()
    with pytest.raises(ObjectNotFoundError, match="no such file, folder or data set"):
        await asyncrec.recover(tmp_path / "pages")
    assert other.read_bytes() == b"1\n" + changed(writer="b")


async def test_link_named_like_spool_lock_is_not_followed(tmp_path: Path) -> None:
    precious = tmp_path / "precious"
    precious.write_bytes(b"of the user")
    spool = tmp_path / "spool"
    spool.mkdir()
    (spool / ".asyncrec-spool").symlink_to(precious)
    with pytest.raises(StorageError, match="link"):
        async with asyncrec.open_sharded_writer(tmp_path / "pages", spool=spool):
            pass
    with pytest.raises(ObjectNotFoundError):
        await asyncrec.recover(spool / "pages")  # it is not a spool
    assert precious.read_bytes() == b"of the user"


async def test_unlinked_header_is_removed_unless_in_use(
    tmp_path: Path,
) -> None:
    (tmp_path / ".0123456789abcdef.partial").write_bytes(b"1\n")
    async with asyncrec.open_sharded_writer(tmp_path / "pages", writer_id="w"):
        os.link(tmp_path / ".pages.w.partial", tmp_path / ".fedcba9876543210.partial")
        await asyncrec.recover(tmp_path / "pages")
        assert sorted(path.name for path in tmp_path.iterdir()) == [".fedcba9876543210.partial", ".pages.w.partial"]
    await asyncrec.recover(tmp_path / "pages")
    assert list(tmp_path.glob(".*")) == []


async def test_second_writer_with_same_id_changes_nothing(tmp_path: Path) -> None:
    async with asyncrec.open_sharded_writer(tmp_path / "pages", writer_id="w"):
        header = (tmp_path / ".pages.w.partial").read_bytes()
        with pytest.raises(asyncrec.ObjectExistsError, match="id w"):
            async with asyncrec.open_sharded_writer(tmp_path / "pages", writer_id="w"):
                pass
        assert (tmp_path / ".pages.w.partial").read_bytes() == header
        assert [path.name for path in tmp_path.iterdir()] == [".pages.w.partial"]
    assert list(tmp_path.glob(".*")) == []
