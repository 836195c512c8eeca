"""The result of a tool does not depend on its number of jobs; tools open few shards at once and stop on Ctrl-C."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
import tracemalloc
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest
from tool_data import WatchedDisk, change, data_names, write_pages

import asyncrec
from asyncrec import tools
from asyncrec.errors import FormatError, StorageError
from asyncrec.storage._base import ByteSource, Storage
from asyncrec.storage._local.storage import LocalStorage
from asyncrec.testing import FlakyStorage

pytestmark = pytest.mark.anyio

JOBS = (1, 2, 4, None)


class Counting(FlakyStorage):
    """Counts the objects that are open for reading."""

    def __init__(self, storage: Storage) -> None:
        super().__init__(storage)
        self.open = self.most = 0

    @asynccontextmanager
    async def open_source(self, key: str, **options: Any) -> AsyncIterator[ByteSource]:
        async with super().open_source(key, **options) as source:
            self.open += 1
            self.most = max(self.most, self.open)
            try:
                yield source
            finally:
                self.open -= 1


async def damaged_folder(storage: Storage) -> None:
    """Write data sets of each compression with intact, changed, truncated and missing shards, and two plain files."""
    for compression in ("", "GZIP", "ZLIB"):
        await write_pages(storage, f"d/{compression or 'plain'}/pages", records=50, compression=compression)
        manifest = await asyncrec.read_manifest(f"d/{compression or 'plain'}/pages", storage=storage)
        shards = [f"d/{compression or 'plain'}/{shard.path}" for shard in manifest.shards]
        await change(storage, shards[0], 14)
        await storage.put(shards[1], (await storage.get(shards[1]))[:-5])
        await storage.delete(shards[2])
    await asyncrec.write_records("d/a.tfrecord", [b"x"] * 3, storage=storage)
    await asyncrec.write_records("d/empty.tfrecord", [], storage=storage)


async def same_for_all_jobs(call: Callable[[int | None], Awaitable[Any]]) -> Any:
    """Return a tool's report after checking that it is the same for every number of jobs."""
    found = []
    for jobs in JOBS:
        report = (await call(jobs)).to_json()
        report.pop("seconds", None)
        found.append(report)
    assert all(each == found[0] for each in found)
    return found[0]


async def test_verify_report_does_not_depend_on_jobs(storage: Storage) -> None:
    await damaged_folder(storage)
    report = await same_for_all_jobs(lambda jobs: tools.verify("d", jobs=jobs, storage=storage))
    paths = [shard["path"] for shard in report["shards"]]
    assert paths == [*sorted(paths[:-2]), "d/a.tfrecord", "d/empty.tfrecord"]
    assert len([shard for shard in report["shards"] if shard["problems"]]) == 9


async def test_count_and_index_do_not_depend_on_jobs(storage: Storage) -> None:
    for compression in ("", "GZIP", "ZLIB"):
        for number in range(4):
            await asyncrec.write_records(
                f"d/{compression}{number}.tfrecord",
                [b"x" * n for n in range(number)],
                storage=storage,
                compression=compression,
            )
    report = await same_for_all_jobs(lambda jobs: tools.count("d", jobs=jobs, storage=storage))
    assert [shard["records"] for shard in report["shards"]] == [0, 1, 2, 3] * 3
    written: list[dict[str, bytes]] = []

    async def index(jobs: int | None) -> Any:
        report = await tools.index("d", force=True, jobs=jobs, storage=storage)
        written.append({key: await storage.get(key) for key in report.made})
        return report

    report = await same_for_all_jobs(index)
    assert len(report["made"]) == 12
    assert all(each == written[0] for each in written)
    assert len((await tools.index("d", storage=storage)).kept) == 12


@pytest.mark.parametrize("jobs", JOBS)
@pytest.mark.parametrize("call", [tools.count, tools.index])
async def test_first_of_several_damaged_shards_raises_error(
    storage: Storage, call: Callable[..., Awaitable[Any]], jobs: int | None
) -> None:
    for number in range(6):
        size = 3_000_000 if number == 2 else 3  # the first damaged shard is the last one found
        await asyncrec.write_records(f"d/{number}.tfrecord", [b"x" * size] * 3, storage=storage)
        if number in (2, 3, 5):
            await change(storage, f"d/{number}.tfrecord", -16 - size)  # the length field of its last record
    with pytest.raises(FormatError, match=r"2\.tfrecord"):
        await call("d", jobs=jobs, storage=storage)


async def test_convert_output_does_not_depend_on_jobs(storage: Storage) -> None:
    for number in range(5):
        lines = [json.dumps({"id": n, "text": "x" * n}) for n in range(20 * number)]
        lines[3:3] = ["not JSON"] * number
        await storage.put(f"d/{number}.jsonl", "\n".join(lines).encode())
    written: list[dict[str, bytes]] = []

    async def convert(jobs: int | None) -> Any:
        target = f"jobs{jobs}/set"
        report = await tools.convert("d", target, jobs=jobs, storage=storage, target_storage=storage)
        report.target = ""
        names = await data_names(storage, f"jobs{jobs}/")
        written.append({name.partition("/")[2]: await storage.get(name) for name in names})
        return report

    report = await same_for_all_jobs(convert)
    assert report["files"] == [f"{number}.jsonl" for number in range(5)]
    assert [bad["path"] for bad in report["bad"]] == sorted(bad["path"] for bad in report["bad"])
    assert (report["records"], report["bad_count"]) == (200, 10)
    assert all(each == written[0] for each in written)


CALLS: dict[str, Callable[..., Awaitable[Any]]] = {
    "verify": tools.verify,
    "count": tools.count,
    "index": tools.index,
    "reshard": lambda path, jobs: tools.reshard(path, "new", jobs=jobs),
    "convert": lambda path, jobs: tools.convert(path, "new", jobs=jobs),
}


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize(("jobs", "error"), [(0, ValueError), (-1, ValueError), (True, TypeError), ("2", TypeError)])
async def test_invalid_job_count_is_rejected_before_opening(name: str, jobs: Any, error: type[Exception]) -> None:
    with pytest.raises(error, match="jobs must be "):
        await CALLS[name]("nowhere", jobs=jobs)


async def test_verify_reports_file_truncated_during_reading(tmp_path: Path) -> None:
    path = tmp_path / "a.tfrecord"
    await asyncrec.write_records(path, [bytes(1 << 20)] * 20)

    def cut(done: int, total: int | None) -> None:
        with path.open("r+b") as file:
            file.truncate(1000)

    (shard,) = (await tools.verify(path, progress=cut)).shards
    assert [(problem.kind, "was truncated from" in problem.message) for problem in shard.problems] == [
        ("unreadable", True)
    ]


async def test_disk_failure_at_first_bytes_names_path(tmp_path: Path) -> None:
    def reading(position: int) -> None:
        if position == 0:
            raise OSError(errno.EIO, os.strerror(errno.EIO))

    await asyncrec.write_records(tmp_path / "a.tfrecord", [b"x" * 1000] * 40)
    storage = LocalStorage(tmp_path, system=WatchedDisk(reading))
    (shard,) = (await tools.verify("a.tfrecord", storage=storage)).shards
    (problem,) = shard.problems
    assert problem.kind == "unreadable"
    assert "a.tfrecord" in problem.message
    with pytest.raises(StorageError, match=r"a\.tfrecord.*Input/output error"):
        await tools.reshard("a.tfrecord", tmp_path / "new" / "pages", storage=storage)


@pytest.mark.parametrize("jobs", [1, 3])
async def test_verify_reads_at_most_one_shard_per_job(storage: Storage, jobs: int) -> None:
    await write_pages(storage, records=60)
    counting = Counting(storage)
    assert (await tools.verify("pages", jobs=jobs, storage=counting)).ok
    assert counting.open == 0
    assert counting.most <= jobs


async def test_progress_ends_at_total_despite_rereading_damaged_shards(storage: Storage) -> None:
    await write_pages(storage)
    shard = (await asyncrec.read_manifest("pages", storage=storage)).shards[1].path
    await change(storage, shard, 14)
    seen: list[tuple[int, int | None]] = []
    report = await tools.verify("pages", jobs=2, storage=storage, progress=lambda *each: seen.append(each))
    assert seen[-1] == (report.bytes, report.bytes)
    assert seen == sorted(seen)


async def test_cancelled_verify_closes_all_sources(storage: Storage) -> None:
    await write_pages(storage, records=60)
    counting = Counting(storage)
    with anyio.CancelScope() as scope:
        await tools.verify("pages", jobs=3, storage=counting, progress=lambda done, total: scope.cancel())
    assert scope.cancelled_caught
    assert counting.open == 0


async def test_verify_memory_depends_on_jobs_not_shards(tmp_path: Path) -> None:
    path = str(tmp_path / "set")
    async with asyncrec.open_sharded_writer(path, num_shards=8) as writer:
        for _ in range(96):
            await writer.write(bytes(1_000_000))
    peaks = {}
    for jobs in (1, 4):
        tracemalloc.start()
        assert (await tools.verify(path, jobs=jobs)).ok
        peaks[jobs] = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    assert peaks[1] < 17 << 20
    assert peaks[4] < 4 * (17 << 20)


INTERRUPTED = """
import os, signal, sys, threading
import anyio
from asyncrec import tools

def interrupt(done, total):
    os.kill(os.getpid(), signal.SIGINT)

try:
    anyio.run(lambda: getattr(tools, sys.argv[1])(*sys.argv[2:], jobs=2, progress=interrupt))
except KeyboardInterrupt:
    print("interrupted")
"""


async def interrupted(name: str, *paths: str) -> None:
    """Run a tool in another process, which is interrupted as if by Ctrl-C once it has made some progress."""
    command = [sys.executable, "-W", "error", "-c", INTERRUPTED, name, *paths]
    done = await anyio.to_thread.run_sync(lambda: subprocess.run(command, capture_output=True, timeout=300))
    assert (done.returncode, done.stdout, done.stderr) == (0, b"interrupted\n", b"")


async def test_ctrl_c_ends_verify_without_traceback(tmp_path: Path) -> None:
    async with asyncrec.open_storage(str(tmp_path)) as storage:
        await write_pages(storage, records=60)
    await interrupted("verify", str(tmp_path / "pages"))


async def test_ctrl_c_ends_reshard_quietly_without_leftovers(tmp_path: Path) -> None:
    async with asyncrec.open_storage(str(tmp_path)) as storage:
        await write_pages(storage, records=60)
        await interrupted("reshard", str(tmp_path / "pages"), str(tmp_path / "new" / "set"))
        assert await data_names(storage, "new/") == []


async def test_transient_damage_is_ignored_and_index_still_compared(storage: Storage) -> None:
    await write_pages(storage, compression="GZIP")
    shard = (await asyncrec.read_manifest("pages", storage=storage)).shards[1].path

    class Once(FlakyStorage):
        """Returns damaged bytes the first time that one shard is read."""

        reads = 0

        @asynccontextmanager
        async def open_source(self, key: str, **options: Any) -> AsyncIterator[ByteSource]:
            async with super().open_source(key, **options) as source:
                self.reads += key == shard
                yield Damaging(source) if key == shard and self.reads == 1 else source

    class Damaging(ByteSource):
        def __init__(self, source: ByteSource) -> None:
            self.info = source.info
            self._source = source

        async def receive(self, max_bytes: int) -> bytes:
            block = bytearray(await self._source.receive(max_bytes))
            if len(block) > 60:
                block[60] ^= 1
            return bytes(block)

    assert (await tools.verify("pages", jobs=2, storage=Once(storage))).ok
    await change(storage, f"_index/{shard}.index", 0, ord("7"))
    flaky = Once(storage)
    report = await tools.verify("pages", jobs=2, storage=flaky)
    assert flaky.reads == 2
    assert [[problem.kind for problem in each.problems] for each in report.shards] == [[], ["index"], []]


class SlowDisk:
    """Like `os`, but each read takes a second on a simulated clock."""

    def __init__(self) -> None:
        self.now = 0.0

    def perf_counter(self) -> float:
        return self.now

    def __getattr__(self, name: str) -> Any:
        return getattr(os, name)

    def pread(self, fd: int, size: int, position: int) -> bytes:
        self.now += 1
        return os.pread(fd, size, position)


async def test_slow_disk_is_read_in_short_cancellable_hops(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    await asyncrec.write_records(tmp_path / "a.tfrecord", [bytes(1 << 20)] * 7)
    disk = SlowDisk()
    monkeypatch.setattr("asyncrec._records.reading.frame_scan.time", disk)
    with anyio.CancelScope() as scope:
        storage = LocalStorage(tmp_path, system=disk)
        await tools.verify("a.tfrecord", storage=storage, progress=lambda done, total: scope.cancel())
    assert scope.cancelled_caught
    assert disk.now == 2  # the first bytes, and one block
