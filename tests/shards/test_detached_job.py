"""A detached job, which belongs to no process, is committed once; only a later run of its id ends earlier runs."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import anyio
import pytest

from asyncrec import ConflictError, ObjectExistsError, ShardEntry, open_reader, open_storage, read_manifest, recover
from asyncrec._shards.writing.detached_job import DetachedJob, begin_detached_job
from asyncrec._shards.writing.joint_job import open_joint_job, open_share
from asyncrec.errors import DatasetError, StorageError
from asyncrec.storage import Buffer, ObjectInfo, Storage
from asyncrec.tools import verify, watch

pytestmark = pytest.mark.anyio


@pytest.fixture(params=["", "memory://"], ids=["disk", "store"])
def path(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return f"{request.param}{str(tmp_path).lstrip('/') if request.param else tmp_path}/d"


async def begin(path: str, job_id: str | None = "monday", **options: Any) -> DetachedJob:
    """Begin a job and return a pickled copy, as another process would receive it."""
    return pickle.loads(pickle.dumps(await begin_detached_job(path, job_id=job_id, **options)))  # type: ignore[no-any-return]


async def made(job: DetachedJob, records: list[bytes], part: int = 0) -> list[ShardEntry]:
    async with open_share(job.share, part=part) as writer:
        await writer.write(records)
    return writer.entries


async def commit(job: DetachedJob, entries: list[ShardEntry], records: int | None = None) -> None:
    await pickle.loads(pickle.dumps(job)).commit(entries, records=records, storage_options=None)


async def give_up(job: DetachedJob) -> None:
    await pickle.loads(pickle.dumps(job)).give_up(storage_options=None)


async def there(path: str) -> list[bytes]:
    try:
        manifest = await read_manifest(path)
    except StorageError:
        return []
    found = []
    for shard in manifest.shards:
        async with open_reader(f"{path.rpartition('/')[0]}/{shard.path}") as reader:
            found += [record async for record in reader]
    return found


async def names(path: str) -> list[str]:
    async with open_storage(path.rpartition("/")[0]) as store:
        return sorted([info.key async for info in store.list_objects("")])


async def check_clean(path: str) -> None:
    """Check that only the job's committed objects are left, both now and after a recovery."""
    assert not [key for key in await names(path) if key.endswith("-000000.jsonl")]
    recovery = await recover(path)
    assert (recovery.shards, recovery.unfinished, recovery.in_use, recovery.abandoned) == ((), (), (), ())
    assert (await verify(path, min_age=0)).orphans == []
    if "://" not in path:
        assert list(Path(path).parent.glob(".*")) == []


async def test_rows_appear_at_commit_and_rerun_adds_no_records(path: str) -> None:
    job = await begin(path, metadata={"by": "test"})
    lost = await made(job, [b"a"])
    entries = [*await made(job, [b"b"], part=1), *await made(job, [b"a"])]
    assert await there(path) == []
    with pytest.raises(
        DatasetError, match="3 records were written, but the shards that were passed hold 2; nothing was"
    ):
        await commit(job, entries, 3)
    await commit(job, entries, 2)
    assert await there(path) == [b"a", b"b"]
    assert (await read_manifest(path)).metadata == {"by": "test"}
    assert lost[0].path not in await names(path)
    again = await begin(path)
    assert again.header is None
    await commit(again, [], 0)
    await give_up(again)
    await give_up(job)
    assert await there(path) == [b"a", b"b"]
    await check_clean(path)


async def test_abandoned_job_leaves_no_shards(path: str) -> None:
    job = await begin(path)
    await made(job, [b"a"])
    await give_up(job)
    assert not [key for key in await names(path) if key.startswith("d-")]
    await made(job, [b"late"])
    await give_up(job)  # the second call deletes the objects that a late task has made
    assert not [key for key in await names(path) if key.startswith("d-")]
    assert (await recover(path)).unfinished == ()


async def test_detached_job_without_process_is_not_presumed_dead(path: str) -> None:
    async with open_joint_job(path) as first:
        await first.commit([])
    job = await begin(path)
    entries = await made(job, [b"a"])
    [left] = (await recover(path)).unfinished
    assert left.id == job.share.writer
    assert [orphan.owner for orphan in (await verify(path, delete=True, min_age=0)).orphans] == [left.id]
    assert [(seen.id, seen.state) for seen in (await watch(path)).writers] == [(left.id, "unknown")]
    async with open_joint_job(path) as other:
        await other.commit([])
    with pytest.raises(ConflictError):  # a joint job, whose process owns it
        async with open_joint_job(path, job_id="monday"):
            pass
    await commit(job, entries)
    assert await there(path) == [b"a"]
    await check_clean(path)


async def test_new_run_ends_earlier_uncommitted_run(path: str) -> None:
    first = await begin(path)
    old = await made(first, [b"first"])
    second = await begin(path)
    assert second.header is not None
    assert old[0].path not in await names(path)
    late = await made(first, [b"late"])
    with pytest.raises(ConflictError, match="by another run of the same job_id"):
        await commit(first, [*old, *late])
    await give_up(first)
    assert late[0].path not in await names(path)
    await commit(second, await made(second, [b"second"]))
    assert await there(path) == [b"second"]
    await check_clean(path)


@pytest.mark.parametrize("before", [True, False])
async def test_commit_racing_next_run_has_one_winner(path: str, before: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """The next run begins just before the commit creates its only object, or just after."""
    first = await begin(path)
    entries = await made(first, [b"first"])
    second: list[DetachedJob] = []
    put = Storage.put

    async def met(self: Storage, key: str, data: Buffer, *, exclusive: bool = False) -> ObjectInfo:
        async def come() -> None:
            patches.undo()
            second.append(await begin(path))

        decides = key.endswith(f"{first.share.writer}-000001.jsonl")
        if decides and before:
            await come()
        info = await put(self, key, data, exclusive=exclusive)
        if decides and not before:
            await come()
        return info

    with monkeypatch.context() as patches:
        patches.setattr(Storage, "put", met)
        if before:
            with pytest.raises(
                ConflictError, match="was ended before it committed, by another run of the same job_id, or by 'asyncrec"
            ):
                await commit(first, entries)
        else:
            await commit(first, entries)
    [next_] = second
    assert (next_.header is None) == (not before)
    await commit(next_, await made(next_, [b"second"]) if before else [])
    assert await there(path) == [b"second" if before else b"first"]
    await check_clean(path)


async def test_concurrent_runs_commit_once_and_others_conflict(path: str) -> None:
    committed: list[int] = []
    late: list[int] = []

    async def run(number: int) -> None:
        try:
            job = await begin(path)
            await commit(job, await made(job, [b"%d" % number]))
            (late if job.header is None else committed).append(number)
        except ConflictError:
            late.append(number)

    async with anyio.create_task_group() as group:
        for number in range(5):
            group.start_soon(run, number)
    if not committed:  # each run was ended by the next one; a run on its own must commit
        await run(9)
    assert await there(path) == [b"%d" % number for number in committed]
    assert len(committed) == 1
    assert len(late) >= 4
    async with open_joint_job(path) as other:
        await other.commit([])
    assert await there(path) == [b"%d" % number for number in committed]


async def test_run_with_recently_used_id_raises_conflict(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between this run's two checks, another run begins and commits, so the id is taken but no job with it exists."""
    path = f"memory://{str(tmp_path).lstrip('/')}/d"
    put = Storage.put

    async def met(self: Storage, key: str, data: Buffer, *, exclusive: bool = False) -> ObjectInfo:
        if not key.endswith("monday_run1-000000.jsonl"):
            return await put(self, key, data, exclusive=exclusive)
        patches.undo()
        other = await begin(path)
        try:
            return await put(self, key, data, exclusive=exclusive)
        finally:
            await commit(other, await made(other, [b"other"]))

    with monkeypatch.context() as patches:
        patches.setattr(Storage, "put", met)
        with pytest.raises(ConflictError, match="another run of the job monday started at the same moment"):
            await begin(path)
    assert await there(path) == [b"other"]
    await check_clean(path)


async def test_replacement_keeps_concurrently_appended_records(path: str) -> None:
    old = await begin(path, "old")
    await commit(old, await made(old, [b"old"]))
    job = await begin(path, mode="replace")
    more = await begin(path, "more")
    await commit(more, await made(more, [b"more"]))
    await commit(job, await made(job, [b"new"]))
    assert sorted(await there(path)) == [b"more", b"new"]
    await check_clean(path)


async def test_second_of_two_replacements_conflicts(path: str) -> None:
    old = await begin(path, "old")
    await commit(old, await made(old, [b"old"]))
    first, second = await begin(path, "first", mode="replace"), await begin(path, "second", mode="replace")
    await commit(first, await made(first, [b"first"]))
    entries = await made(second, [b"second"])
    with pytest.raises(
        ConflictError, match="which this job was replacing, was removed by another process; no record of this job"
    ):
        await commit(second, entries)
    await give_up(second)
    assert await there(path) == [b"first"]
    await check_clean(path)


async def test_new_mode_rejects_existing_data_set(path: str) -> None:
    job = await begin(path, mode="new")
    await commit(job, await made(job, [b"a"]))
    with pytest.raises(
        ObjectExistsError, match="a data set with this name already exists; to replace it, pass mode='replace'"
    ):
        await begin(path, "other", mode="new")
    assert (await begin(path, mode="new")).header is None
    await check_clean(path)


class Killed(BaseException):
    """Raised to end a process without any cleanup."""


@pytest.mark.parametrize("when", ["begun", "committed"])
async def test_next_run_removes_leftovers_of_killed_run(path: str, when: str, monkeypatch: pytest.MonkeyPatch) -> None:
    job = await begin(path)
    entries = await made(job, [b"first"])
    if when == "committed":

        async def killed(*args: Any, **options: Any) -> bool:
            raise Killed

        with monkeypatch.context() as patches, pytest.raises(Killed):
            patches.setattr("asyncrec._shards.writing.detached_job.settle_dead", killed)
            await commit(job, entries)
    again = await begin(path)
    assert (again.header is None) == (when == "committed")
    await commit(again, [] if again.header is None else await made(again, [b"second"]))
    assert await there(path) == [b"first" if when == "committed" else b"second"]
    await check_clean(path)


@pytest.mark.parametrize("job_id", ["monday", None])
async def test_recover_abandons_killed_run_on_request(path: str, job_id: str | None) -> None:
    job = await begin(path, job_id)
    await made(job, [b"a"])
    [left] = (await recover(path)).unfinished
    assert (await recover(path, abandon=[left.id])).abandoned == (job.share.writer,)
    assert not [key for key in await names(path) if key.startswith("d-")]
    with pytest.raises(
        ConflictError, match="was ended before it committed, by another run of the same job_id, or by 'asyncrec"
    ):
        await commit(job, [])
    assert (await recover(path)).unfinished == ()


async def test_recover_cleans_up_after_killed_committed_run(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    job = await begin(path)
    lost = await made(job, [b"lost"])

    async def fail(*args: Any, **options: Any) -> bool:
        raise StorageError("no")

    with monkeypatch.context() as patches:
        patches.setattr("asyncrec._shards.writing.detached_job.settle_dead", fail)
        await commit(job, await made(job, [b"a"]))
    assert lost[0].path in await names(path)
    await recover(path)
    assert lost[0].path not in await names(path)
    assert await there(path) == [b"a"]
    await check_clean(path)


@pytest.mark.parametrize("job_id", ["", "a-b", "x" * 51])
async def test_invalid_job_id_is_rejected(path: str, job_id: str) -> None:
    with pytest.raises(ValueError, match="id"):
        await begin(path, job_id)
    assert await names(path) == []
