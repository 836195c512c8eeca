"""Many processes make the shards of one job: committed shards appear exactly once, and uncommitted ones never do."""

from __future__ import annotations

import pickle
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from asyncrec import ConflictError, ObjectExistsError, ShardEntry, open_reader, open_storage, read_manifest, recover
from asyncrec._framing.compression import CompressionOptions
from asyncrec._shards.writing.joint_job import JobShare, open_joint_job, open_share
from asyncrec.errors import DatasetError, ObjectNotFoundError, StorageError
from asyncrec.testing import cancel_at_every_checkpoint
from asyncrec.tools import verify

pytestmark = pytest.mark.anyio


async def made(share: JobShare, records: list[bytes], part: int = 0, **limits: Any) -> list[ShardEntry]:
    async with open_share(pickle.loads(pickle.dumps(share)), part=part, **limits) as writer:
        await writer.write(records)
    return pickle.loads(pickle.dumps(writer.entries))  # type: ignore[no-any-return]


async def there(path: Path) -> list[bytes]:
    try:
        manifest = await read_manifest(path)
    except StorageError:
        return []
    found = []
    for shard in manifest.shards:
        async with open_reader(path.parent / shard.path) as reader:
            found += [record async for record in reader]
    return found


def files(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir() if path.is_file() and not path.name.endswith(".lock")}


async def test_parts_of_job_are_committed_together_in_order(tmp_path: Path) -> None:
    async with open_joint_job(tmp_path / "d", metadata={"by": "test"}) as job:
        second = await made(job.share, [b"c", b"d"], part=1, max_shard_records=1)
        first = await made(job.share, [b"a", b"b"], part=0)
        assert await there(tmp_path / "d") == []
        await job.commit([*second, *first], records=4)
    assert await there(tmp_path / "d") == [b"a", b"b", b"c", b"d"]
    assert (await read_manifest(tmp_path / "d")).metadata == {"by": "test"}
    assert (await verify(tmp_path / "d")).ok
    assert job.committed == tuple((await read_manifest(tmp_path / "d")).shards)
    assert len(job.committed) == 3


async def test_unlisted_attempt_is_removed_on_commit(tmp_path: Path) -> None:
    async with open_joint_job(tmp_path / "d") as job:
        await made(job.share, [b"a"])  # its process died, so the part was made again
        again = await made(job.share, [b"a"])
        await job.commit(again)
    assert await there(tmp_path / "d") == [b"a"]
    assert len(list(tmp_path.glob("d-*.tfrecord"))) == 1
    assert len(list(tmp_path.glob("_index/*"))) == 1


async def test_late_attempt_is_never_adopted_and_can_be_deleted(tmp_path: Path) -> None:
    async with open_joint_job(tmp_path / "d") as job:
        await job.commit(await made(job.share, [b"a"]))
    await made(job.share, [b"late"])
    assert (await recover(tmp_path / "d")).shards == ()
    report = await verify(tmp_path / "d", delete=True, min_age=0)
    assert len(report.orphans) == 1
    assert await there(tmp_path / "d") == [b"a"]
    assert len(list(tmp_path.glob("d-*.tfrecord"))) == 1


async def test_running_job_is_protected_from_recover_and_verify(tmp_path: Path) -> None:
    async with open_joint_job(tmp_path / "d") as first:
        await first.commit(await made(first.share, [b"a"]))
    async with open_joint_job(tmp_path / "d") as job:
        entries = await made(job.share, [b"b"])
        assert (await recover(tmp_path / "d")).in_use == (job.share.writer,)
        report = await verify(tmp_path / "d", delete=True, min_age=0)
        assert [orphan.owner for orphan in report.orphans] == [job.share.writer]
        await job.commit(entries)
    assert sorted(await there(tmp_path / "d")) == [b"a", b"b"]


async def test_uncommitted_job_leaves_no_files(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError):
        async with open_joint_job(tmp_path / "d") as job:
            await made(job.share, [b"a"])
            raise RuntimeError
    assert await there(tmp_path / "d") == []
    assert files(tmp_path) == set()
    assert list(tmp_path.glob("_manifest/*/*-000000.jsonl")) == []


async def test_second_run_of_job_id_finds_earlier_commit(tmp_path: Path) -> None:
    async with open_joint_job(tmp_path / "d", job_id="monday") as job:
        await job.commit(await made(job.share, [b"a"]))
    async with open_joint_job(tmp_path / "d", job_id="monday", mode="new") as again:
        assert again.committed is not None
        assert [entry.records for entry in again.committed] == [1]
        with pytest.raises(DatasetError, match="has ended"):
            await again.commit([])
    assert await there(tmp_path / "d") == [b"a"]


async def test_run_after_failed_run_is_separate_job(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError):
        async with open_joint_job(tmp_path / "d", job_id="monday") as job:
            old = await made(job.share, [b"a"])
            raise RuntimeError
    async with open_joint_job(tmp_path / "d", job_id="monday") as again:
        assert again.committed is None
        assert again.share.writer != job.share.writer
        await again.commit(await made(again.share, [b"b"]))
    assert old[0].path not in files(tmp_path)
    assert await there(tmp_path / "d") == [b"b"]


async def test_active_job_id_is_rejected(tmp_path: Path) -> None:
    async with open_joint_job(tmp_path / "d", job_id="monday") as job:
        with pytest.raises(ConflictError):
            async with open_joint_job(tmp_path / "d", job_id="monday"):
                pass
        await job.commit(await made(job.share, [b"a"]))
    assert await there(tmp_path / "d") == [b"a"]


DRIVER = """
import os, sys
import anyio
from asyncrec._shards.writing.joint_job import open_joint_job, open_share

async def main():
    async with open_joint_job(sys.argv[1], job_id="monday", mode=sys.argv[3]) as job:
        async with open_share(job.share) as writer:
            await writer.write([b"dead"])
        if sys.argv[2] == "after":
            await job.commit(writer.entries)
        os.kill(os.getpid(), 9)

anyio.run(main)
"""


@pytest.mark.parametrize(("when", "expected"), [("before", b"alive"), ("after", b"dead")])
async def test_killed_driver_can_be_rerun(tmp_path: Path, when: str, expected: bytes) -> None:
    killed = subprocess.run([sys.executable, "-c", DRIVER, str(tmp_path / "d"), when, "append"], check=False)  # noqa: ASYNC221
    assert killed.returncode == -9
    async with open_joint_job(tmp_path / "d", job_id="monday") as job:
        assert (job.committed is None) == (when == "before")
        if job.committed is None:
            await job.commit(await made(job.share, [b"alive"]))
    assert await there(tmp_path / "d") == [expected]
    assert len(list(tmp_path.glob("d-*.tfrecord"))) == 1
    assert (await recover(tmp_path / "d")).shards == ()


async def test_killed_replacing_driver_is_finished_by_rerun(tmp_path: Path) -> None:
    async with open_joint_job(tmp_path / "d") as job:
        await job.commit(await made(job.share, [b"old"]))
    killed = subprocess.run(  # noqa: ASYNC221
        [sys.executable, "-c", DRIVER, str(tmp_path / "d"), "after", "replace"], check=False
    )
    assert killed.returncode == -9
    async with open_joint_job(tmp_path / "d", job_id="monday", mode="replace") as again:
        assert again.committed is not None
    assert await there(tmp_path / "d") == [b"dead"]
    assert len(list(tmp_path.glob("d-*.tfrecord"))) == 1
    assert len(list(tmp_path.glob("_index/*"))) == 1


async def test_recover_abandons_job_of_killed_driver(tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-c", DRIVER, str(tmp_path / "d"), "before", "append"], check=False)  # noqa: ASYNC221
    recovery = await recover(tmp_path / "d")
    assert (recovery.shards, recovery.abandoned) == ((), ("monday_run1",))
    assert list(tmp_path.glob("d-*.tfrecord")) == []


def test_job_share_repr_hides_credentials() -> None:
    share = JobShare(path="s3://key:secret@bucket/d", writer="w", compression=CompressionOptions(), index=True)
    assert "secret" not in repr(share)


async def test_inconsistent_shards_are_not_committed(tmp_path: Path) -> None:
    for wrong in (3, 1):
        with pytest.raises(
            DatasetError, match="records were written, but the shards that were passed hold 2; nothing was"
        ):
            async with open_joint_job(tmp_path / "d") as job:
                await job.commit(await made(job.share, [b"a", b"b"]), records=wrong)
    with pytest.raises(DatasetError, match="passed twice"):
        async with open_joint_job(tmp_path / "d") as job:
            entries = await made(job.share, [b"a"])
            await job.commit([*entries, *entries])
    assert await there(tmp_path / "d") == []
    assert list(tmp_path.glob("d-*.tfrecord")) == []


async def test_new_and_replace_modes_match_writers(tmp_path: Path) -> None:
    async with open_joint_job(tmp_path / "d", mode="new") as job:
        await job.commit(await made(job.share, [b"a"]))
    with pytest.raises(ObjectExistsError):
        async with open_joint_job(tmp_path / "d", mode="new"):
            pass
    async with open_joint_job(tmp_path / "d", mode="replace") as job:
        await job.commit(await made(job.share, [b"b"]))
    assert await there(tmp_path / "d") == [b"b"]
    assert len(list(tmp_path.glob("d-*.tfrecord"))) == 1


async def test_empty_job_commits_empty_data_set(tmp_path: Path) -> None:
    async with open_joint_job(tmp_path / "d", schema={"features": {}, "version": 1}) as job:
        assert await made(job.share, []) == []
        await job.commit([])
    assert (await read_manifest(tmp_path / "d")).shards == ()


async def test_failed_share_removes_its_shards(tmp_path: Path) -> None:
    async with open_joint_job(tmp_path / "d") as job:
        with pytest.raises(RuntimeError):
            async with open_share(job.share, max_shard_records=1) as writer:
                await writer.write([b"a", b"b", b"c"])
                raise RuntimeError
        assert list(tmp_path.glob("d-*.tfrecord")) == []
        await job.commit([])


async def test_cancelled_job_leaves_all_records_or_none(tmp_path: Path) -> None:
    count = 0

    async def use() -> None:
        nonlocal count
        count += 1
        folder = tmp_path / str(count)
        folder.mkdir()
        async with open_joint_job(folder / "d") as job:
            await job.commit(await made(job.share, [b"a"]))

    await cancel_at_every_checkpoint(use)
    for number in range(1, count + 1):
        found = await there(tmp_path / str(number) / "d")
        assert found in ([], [b"a"])
        with suppress(ObjectNotFoundError):  # the job had not begun
            await recover(tmp_path / str(number) / "d")
        assert len(list((tmp_path / str(number)).glob("d-*.tfrecord"))) == len(found)


@pytest.mark.parametrize("job_id", ["", "a-b", "x" * 51, "_x"])
async def test_invalid_job_id_is_rejected(tmp_path: Path, job_id: str) -> None:
    with pytest.raises(ValueError, match="id"):
        async with open_joint_job(tmp_path / "d", job_id=job_id):
            pass


async def test_store_marks_appear_and_vanish_as_on_disk(tmp_path: Path) -> None:
    path = f"memory://{tmp_path.name}/d"

    async def objects() -> list[str]:
        async with open_storage(f"memory://{tmp_path.name}") as store:
            return sorted([info.key async for info in store.list_objects("")])

    with pytest.raises(RuntimeError):
        async with open_joint_job(path, job_id="monday") as job:
            await made(job.share, [b"a"])
            assert [key for key in await objects() if key.endswith("-000000.jsonl")] == [
                "_manifest/d/monday_run1-000000.jsonl"
            ]
            raise RuntimeError
    assert await objects() == ["_manifest/d/monday_run1-000001.jsonl"]  # its tombstone
    async with open_joint_job(path, job_id="monday") as job:
        await made(job.share, [b"dead"])
        with pytest.raises(ConflictError, match="it is still running"):
            async with open_joint_job(path, job_id="monday"):
                pass
        await job.commit(await made(job.share, [b"a", b"b"]), records=2)
    async with open_joint_job(path, job_id="monday") as again:
        assert again.committed is not None
    assert (await read_manifest(path)).records == 2
    assert not [key for key in await objects() if key.endswith("-000000.jsonl")]
    assert len([key for key in await objects() if key.startswith("d-")]) == 1
    assert (await verify(path, min_age=0)).orphans == []
