"""Shards that belong together become visible together, in current and past snapshots. Hidden files never do."""

from __future__ import annotations

import time
from datetime import datetime
from pathlib import Path

import anyio
import pytest

import asyncrec
from asyncrec._shards.writing.joint_job import open_joint_job, open_share
from asyncrec.errors import StorageError
from asyncrec.storage import MemoryStorage
from asyncrec.testing import virtual_backend

from .met_storage import MetStorage

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


async def test_parts_of_job_are_committed_at_its_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """This also holds for a reader that asks for the data set as it was while the parts were being made."""
    async with asyncrec.open_sharded_writer(tmp_path / "d") as writer:
        await writer.write(b"before")
    entries = []
    begun = time.time()
    async with open_joint_job(tmp_path / "d") as job:
        for part in range(3):
            now = begun + 60 * (part + 1)
            monkeypatch.setattr(time, "time", lambda now=now: now)
            async with open_share(job.share, part=part) as share:
                await share.write([b"%d" % part])
            entries += share.entries
        now = begun + 3600
        monkeypatch.setattr(time, "time", lambda: now)
        await job.commit(entries)
    for minutes in (1, 2, 3, 30, 59):
        at = datetime.fromtimestamp(begun + 60 * minutes).astimezone()
        assert (await asyncrec.read_manifest(tmp_path / "d", at)).records == 1, minutes
    assert (await asyncrec.read_manifest(tmp_path / "d")).records == 4


@pytest.mark.parametrize("anyio_backend", [virtual_backend("asyncio")], ids=["asyncio"])
async def test_fixed_shards_appear_only_after_all_are_uploaded(tmp_path: Path) -> None:
    """One shard takes an hour to upload. Until then, the others must not become visible."""
    seen: list[str] = []

    async def slow(operation: str, key: str) -> None:
        if operation == "send" and key.endswith("00001-of-00003.tfrecord"):
            await anyio.sleep(3600)
            seen.extend([info.key async for info in store.list_objects("pages-")])

    store = MemoryStorage()
    async with asyncrec.open_sharded_writer(
        "pages", storage=MetStorage(store, before=slow), num_shards=3, spool=tmp_path / "spool"
    ) as writer:
        await writer.write_many([b"1", b"2", b"3"])
    assert seen == []
    assert len((await asyncrec.read_manifest("pages", storage=store)).shards) == 3


async def test_fixed_shards_with_failed_end_stay_uncommitted() -> None:
    async def fail(operation: str, key: str) -> None:
        if failing and operation == "publish" and key.endswith("-000001.jsonl"):
            raise StorageError("no room, as asked")

    failing = False
    with pytest.raises(StorageError, match="as asked"):
        async with asyncrec.open_sharded_writer(
            "pages", storage=MetStorage(MemoryStorage(), before=fail), num_shards=2
        ) as writer:
            ticket = await writer.write(b"1")
            failing = True
    with pytest.raises((StorageError, anyio.ClosedResourceError), match=r"as asked|ended before"):
        await writer.wait(ticket, "committed")


async def test_hidden_files_are_never_shards() -> None:
    storage = MemoryStorage()
    hidden = ["_old-1.tfrecord", ".tmp-1.tfrecord", "_x/a-1.tfrecord", "a/_b/c-1.tfrecord", "a/.d/c-1.tfrecord"]
    for key in [*hidden, "a-1.tfrecord"]:
        await asyncrec.write_records(key, [b"1"], storage=storage)
    found = [
        *await asyncrec.list_shards("*", storage=storage),
        *await asyncrec.list_shards("a", storage=storage),
        *await asyncrec.list_shards("?old*", storage=storage),
        *await asyncrec.list_shards("?tmp*", storage=storage),
    ]
    assert set(found) == {"a-1.tfrecord"}
