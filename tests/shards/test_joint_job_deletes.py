"""When a joint job ends, it deletes only its leftovers, never committed objects or those of another data set."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from asyncrec import ShardEntry, open_sharded_writer, open_storage, recover
from asyncrec._shards.writing.joint_job import JobShare, open_joint_job, open_share
from asyncrec.errors import StorageError
from asyncrec.storage import Buffer, ObjectInfo, Storage
from asyncrec.storage._local.storage import LocalStorage
from asyncrec.storage._memory import MemoryStorage
from asyncrec.tools import verify

pytestmark = pytest.mark.anyio


async def made(share: JobShare, records: list[bytes]) -> list[ShardEntry]:
    async with open_share(share) as writer:
        await writer.write(records)
    return writer.entries


async def test_data_set_with_similar_prefix_is_not_touched(tmp_path: Path) -> None:
    for num_shards in (None, 2):
        async with open_sharded_writer(tmp_path / "d-monday_run1", num_shards=num_shards, mode="replace") as writer:
            await writer.write_many([b"a", b"b"])
        for _ in range(2):
            async with open_joint_job(tmp_path / "d", job_id="monday") as job:
                if job.committed is None:
                    await job.commit(await made(job.share, [b"c"]))
        assert (await verify(tmp_path / "d-monday_run1")).ok


# On trio, the garbage collector closes a listing whose reader failed, and issues a warning.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("commits", [False, True])
@pytest.mark.parametrize("scheme", ["", "memory://"])
async def test_recover_removes_leftovers_of_failed_deletion(
    commits: bool, scheme: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = f"{scheme}{str(tmp_path).lstrip('/') if scheme else tmp_path}/d"

    async def fail(*args: Any, **options: Any) -> None:
        raise StorageError("the disk is full")

    with monkeypatch.context() as patches, suppress(RuntimeError):
        patches.setattr(MemoryStorage if scheme else LocalStorage, "delete", fail)
        async with open_joint_job(path) as job:
            await made(job.share, [b"lost"])
            if not commits:
                raise RuntimeError
            await job.commit(await made(job.share, [b"a"]))
    await recover(path)
    async with open_storage(path.rpartition("/")[0]) as store:
        names = [info.key async for info in store.list_objects("") if info.key.startswith("d-")]
        assert names == [entry.path for entry in job.committed or ()]
        assert [info.key async for info in store.list_objects("_manifest/") if info.key.endswith("-000000.jsonl")] == []


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
@pytest.mark.parametrize("scheme", ["", "memory://"])
async def test_commit_cancelled_after_taking_effect_keeps_its_shards(
    scheme: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """anyio's shields do not stop asyncio's native cancellation, so the response to the last request is lost."""
    path = f"{scheme}{str(tmp_path).lstrip('/') if scheme else tmp_path}/d"
    put, task = Storage.put, asyncio.current_task()
    assert task is not None

    async def unheard(self: Storage, key: str, data: Buffer, *, exclusive: bool = False) -> ObjectInfo:
        made = await put(self, key, data, exclusive=exclusive)
        if key.endswith("-000001.jsonl") and not task.cancelling():
            task.cancel()
            await asyncio.sleep(0)
        return made

    monkeypatch.setattr(Storage, "put", unheard)
    with pytest.raises(asyncio.CancelledError):
        async with open_joint_job(path, job_id="monday") as job:
            await made(job.share, [b"died"])
            await job.commit(await made(job.share, [b"a"]))
    task.uncancel()
    monkeypatch.undo()
    assert (await verify(path, min_age=0)).ok
    async with open_joint_job(path, job_id="monday") as again:
        assert [entry.records for entry in again.committed or ()] == [1]
    report = await verify(path, min_age=0)
    assert (report.ok, report.orphans) == (True, [])
