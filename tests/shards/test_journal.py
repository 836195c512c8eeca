"""`asyncrec._shards.journal.journal`: what lies in a folder that others may write to is not obeyed."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import asyncrec
from asyncrec._framing.compression import CompressionOptions
from asyncrec._shards.journal.header import JobHeader
from asyncrec._shards.journal.journal import Journal, find_job_headers, remove_unnamed_headers
from asyncrec._shards.spool.folder import LOCK_NAME
from asyncrec.errors import StorageError
from asyncrec.storage._local.storage import LocalStorage

pytestmark = pytest.mark.anyio

NOTE = JobHeader(kind="rolling", name="pages", writer="w", url="pages", metadata={}, since="2026-11-21T00:00:00Z")


def changed(**members: Any) -> bytes:
    return json.dumps({**json.loads(NOTE.encode()), **members}).encode()


def test_a_note_is_found_though_each_read_gives_one_byte(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that is not found is removed by whoever tidies up, and with it what could be recovered."""
    folder = LocalStorage(tmp_path)
    Journal.begin(folder, NOTE).end(keep=True)
    pread = os.pread
    monkeypatch.setattr(os, "pread", lambda fd, size, position: pread(fd, min(size, 1), position))
    assert [note for _, note in find_job_headers(folder)] == [NOTE]


def test_a_promise_is_read_again_though_a_full_disk_took_only_a_part_of_it_at_first(tmp_path: Path) -> None:
    class Full:
        """Of the first promise it takes a part."""

        full = True

        def __getattr__(self, name: str) -> Any:
            return getattr(os, name)

        def write(self, fd: int, data: bytes) -> int:
            return (
                self._taken(data, lambda part: os.write(fd, part)) if data == b"acknowledged\n" else os.write(fd, data)
            )

        def pwrite(self, fd: int, data: bytes, position: int) -> int:
            return self._taken(data, lambda part: os.pwrite(fd, part, position))

        def _taken(self, data: bytes, write: Callable[[bytes], int]) -> int:
            if not self.full:
                return write(data)
            self.full = False
            write(data[:5])
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    folder = LocalStorage(tmp_path, system=Full())
    journal = Journal.begin(folder, NOTE)
    with pytest.raises(StorageError, match="No space left"):
        journal.acknowledge()
    journal.acknowledge()
    journal.end(keep=True)
    ((path, _),) = find_job_headers(folder)
    dead = Journal.claim(folder, path)
    assert dead is not None
    assert dead.acknowledged
    dead.end()


def test_what_is_encoded_is_decoded_again() -> None:
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
def test_a_note_that_is_not_as_it_should_be_is_none(members: dict[str, Any]) -> None:
    assert JobHeader.decode(changed()) is not None
    assert JobHeader.decode(changed(**members)) is None


async def test_a_pipe_a_link_and_a_folder_under_the_name_of_a_note_are_passed_over(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / ".pages.a.partial")
    other = tmp_path / "other"
    other.write_bytes(b"1\n" + changed(writer="b"))
    (tmp_path / ".pages.b.partial").symlink_to(other)
    (tmp_path / ".pages.c.partial").mkdir()
    assert find_job_headers(LocalStorage(tmp_path)) == []
    assert await asyncrec.recover(tmp_path / "pages") == asyncrec.Recovery()
    assert other.read_bytes() == b"1\n" + changed(writer="b")


async def test_a_link_under_the_name_of_a_spools_lock_is_not_followed(tmp_path: Path) -> None:
    precious = tmp_path / "precious"
    precious.write_bytes(b"of the user")
    spool = tmp_path / "spool"
    spool.mkdir()
    (spool / LOCK_NAME).symlink_to(precious)
    with pytest.raises(StorageError, match="link"):
        async with asyncrec.open_sharded_writer(tmp_path / "pages", spool=spool):
            pass
    await asyncrec.recover(spool / "pages")  # it is no spool
    assert precious.read_bytes() == b"of the user"


async def test_what_was_left_of_a_note_before_it_had_its_name_is_removed_unless_it_is_being_written(
    tmp_path: Path,
) -> None:
    dead = tmp_path / ".0123456789abcdef.partial"
    dead.write_bytes(b"1\n")
    folder = LocalStorage(tmp_path)
    living = Journal.begin(folder, NOTE)
    os.link(tmp_path / ".pages.w.partial", tmp_path / ".fedcba9876543210.partial")
    remove_unnamed_headers(folder)
    assert sorted(path.name for path in tmp_path.iterdir()) == [".fedcba9876543210.partial", ".pages.w.partial"]
    living.end()
    remove_unnamed_headers(folder)
    assert list(tmp_path.iterdir()) == []


async def test_of_two_that_begin_with_one_id_the_second_is_told_and_the_first_keeps_its_note(tmp_path: Path) -> None:
    folder = LocalStorage(tmp_path)
    first = Journal.begin(folder, NOTE)
    with pytest.raises(asyncrec.ObjectExistsError, match="id w"):
        Journal.begin(folder, NOTE)
    assert [note for _, note in find_job_headers(folder)] == [NOTE]
    first.end()
    assert list(tmp_path.iterdir()) == []
