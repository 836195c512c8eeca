"""Files that other users plant under a dead writer's names are harmless, and are neither read nor removed."""

from __future__ import annotations

import json
import os
import shutil
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import asyncrec
from asyncrec import tools
from asyncrec._framing.crc import masked_crc32c
from asyncrec._framing.frames import encode_frames
from asyncrec.errors import StorageError
from asyncrec.storage._memory import MemoryStorage

pytestmark = pytest.mark.anyio

PRIVATE = b"".join(encode_frames([b"private"]))
OWN = [b"own %d" % number for number in range(5)]
ANOTHERS: set[int] = set()  # inodes of another user's files


def pipe(path: Path, private: Path) -> None:
    os.mkfifo(path)


def link(path: Path, private: Path) -> None:
    path.symlink_to(private)


def link_to_nothing(path: Path, private: Path) -> None:
    path.symlink_to(private.with_name("not there"))


def link_to_folder(path: Path, private: Path) -> None:
    path.symlink_to(private.parent)


def folder(path: Path, private: Path) -> None:
    path.mkdir()


def listener(path: Path, private: Path) -> None:
    before = os.getcwd()
    os.chdir(path.parent)  # a socket's address is limited in length
    try:
        with socket.socket(socket.AF_UNIX) as made:
            made.bind(path.name)
    finally:
        os.chdir(before)


def of_another_user(path: Path, private: Path) -> None:
    path.write_bytes(PRIVATE)
    ANOTHERS.add(path.stat().st_ino)


KINDS = (pipe, link, link_to_nothing, link_to_folder, folder, listener, of_another_user)
NAMES = (
    ".pages-w-000007.tfrecord.w.partial", ".pages-w-000007.tfrecord.w~begun.partial",
    "_keys/.pages-w-000000.tfrecord.keys.w.partial", "_keys/.pages-w-000007.tfrecord.keys.w~begun.partial",
    "_index/.pages-w-000000.tfrecord.index.w.partial", ".pages.w~status.partial", ".pages.x.partial",
    ".0123456789abcdef.partial",
)  # fmt: skip
# A spool also contains files with the names of complete shards.
WHOLE = ("pages-w-000008.tfrecord", "_keys/pages-w-000000.tfrecord.keys")


@pytest.fixture(autouse=True)
def another_user(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the files in `ANOTHERS` appear to be owned by another user."""
    ANOTHERS.clear()
    for name in ("lstat", "fstat"):
        ask: Callable[..., os.stat_result] = getattr(os, name)

        def answered(*args: Any, ask: Callable[..., os.stat_result] = ask, **kwargs: Any) -> os.stat_result:
            status = ask(*args, **kwargs)
            if status.st_ino not in ANOTHERS:
                return status
            return os.stat_result([*status[:4], status.st_uid + 1, *status[5:10]])

        monkeypatch.setattr(os, name, answered)


async def died(tmp_path: Path, spool: bool) -> tuple[Path, dict[str, Any], dict[str, Any]]:
    """Return the folder of a dead writer, the arguments to open another writer there, and those to recover it."""
    live, dead = tmp_path / "live", tmp_path / "dead"
    options: dict[str, Any] = {"path": live / "pages"}
    if spool:
        options = {"path": "pages", "storage": MemoryStorage(), "spool": live}
    there = {}
    async with asyncrec.open_sharded_writer(**options, writer_id="w") as writer:
        for record in OWN:
            await writer.write(record)
        await writer.flush()
        shutil.copytree(live, dead)  # the copies are not locked
        shutil.copy(live / ".pages.w.partial", tmp_path / "dead.header")
        if spool:
            store = options["storage"]
            there = {info.key: await store.get(info.key) async for info in store.list_objects()}
    if not spool:
        return dead, {"path": dead / "pages"}, {"path": dead / "pages"}
    store = MemoryStorage()
    for key, content in there.items():
        await store.put(key, content)
    return dead, {"path": "pages", "storage": store, "spool": dead}, {"path": dead, "to": "pages", "storage": store}


async def stored(opening: dict[str, Any]) -> list[bytes]:
    storage = opening.get("storage")
    found = []
    for shard in await asyncrec.list_shards(opening["path"], storage=storage):
        found += await asyncrec.read_records(shard, storage=storage)
    return sorted(found)


@pytest.mark.parametrize("opens", [False, True])
@pytest.mark.parametrize("spool", [False, True])
@pytest.mark.parametrize("plant", KINDS)
async def test_planted_files_are_kept_and_records_recovered(
    tmp_path: Path, plant: Callable[[Path, Path], None], spool: bool, opens: bool
) -> None:
    home, opening, recovering = await died(tmp_path, spool)
    private = tmp_path / "home" / "private"
    private.parent.mkdir()
    private.write_bytes(PRIVATE)
    names = [*NAMES, *(WHOLE if spool else ())]
    for name in names:
        (home / name).parent.mkdir(exist_ok=True)
        if os.path.lexists(home / name):
            (home / name).unlink()
        plant(home / name, private)
    if opens:
        async with asyncrec.open_sharded_writer(**opening):
            pass
    else:
        assert (await asyncrec.recover(**recovering)).records == 5
    assert await stored(opening) == OWN
    assert [name for name in names if not os.path.lexists(home / name)] == []
    await tools.uploads(f"{home}/", remove=True, older_than=0)
    assert private.read_bytes() == PRIVATE
    again = await asyncrec.recover(**recovering)
    assert (again.records, again.in_use) == (0, ())
    assert [name for name in names if not os.path.lexists(home / name)] == []
    if not spool:
        await tools.watch(opening["path"])
        assert (await tools.verify(opening["path"])).ok


@pytest.mark.parametrize("spool", [False, True])
async def test_hard_link_to_private_file_is_rejected(tmp_path: Path, spool: bool) -> None:
    home, opening, recovering = await died(tmp_path, spool)
    private = tmp_path / "private"
    private.write_bytes(PRIVATE)
    planted = home / ".pages-w-000007.tfrecord.w.partial"
    os.link(private, planted)
    with pytest.raises(StorageError, match="it has another hard link"):
        await asyncrec.recover(**recovering)
    assert await stored(opening) == OWN
    assert private.read_bytes() == PRIVATE
    (left,) = home.glob(".pages-w-000007*")  # under the name that the recovery gave it
    left.unlink()
    await asyncrec.recover(**recovering)
    assert await stored(opening) == OWN
    assert [path.name for path in home.glob(".pages*")] == []


async def test_header_posing_as_spool_removes_no_shards(tmp_path: Path) -> None:
    home, opening, recovering = await died(tmp_path, spool=False)
    await asyncrec.recover(**recovering)
    header = json.loads((tmp_path / "dead.header").read_bytes().splitlines()[1])
    (home / ".pages.w.partial").write_bytes(b"1\n" + json.dumps({**header, "spool": True}).encode() + b"\n")
    with pytest.raises(StorageError, match="declares the data set's own folder to be a spool"):
        await asyncrec.recover(**recovering)
    assert await stored(opening) == OWN


async def test_huge_sparse_journal_is_recovered_quickly(tmp_path: Path) -> None:
    home, opening, recovering = await died(tmp_path, spool=False)
    length = (1 << 39).to_bytes(8, "little")
    for number, begin in ((7, b""), (8, length + masked_crc32c(length).to_bytes(4, "little"))):
        (home / f".pages-w-{number:06d}.tfrecord.w.partial").write_bytes(begin)
        os.truncate(home / f".pages-w-{number:06d}.tfrecord.w.partial", 1 << 40)
    assert (await asyncrec.recover(**recovering)).records == 5
    assert await stored(opening) == OWN


async def test_damaged_journal_is_kept_under_another_name(tmp_path: Path) -> None:
    home, _, recovering = await died(tmp_path, spool=False)
    journal = home / ".pages-w-000000.tfrecord.w.partial"
    content = bytearray(journal.read_bytes())
    content[20] ^= 1
    journal.write_bytes(content)
    os.mkfifo(journal.with_suffix(".damaged"))
    (kept,) = (await asyncrec.recover(**recovering)).damaged
    assert Path(kept).read_bytes() == content
