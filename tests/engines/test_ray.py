"""Ray reads all records, and writes each row exactly once, whichever process dies."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import ray
from ray.data import DataContext

from asyncrec import FixedLen, Schema, VarLen, blocking
from asyncrec.errors import DatasetError, SchemaError, StorageError
from asyncrec.integrations.arrow import read_batches, write_batches
from asyncrec.integrations.ray import AsyncrecDatasink, read_asyncrec, write_asyncrec
from asyncrec.integrations.ray import _writing as writing
from asyncrec.tools import verify

pytestmark = [pytest.mark.usefixtures("started_ray"), pytest.mark.timeout(300)]

ROWS = 4000


def source(folder: Path, **options: Any) -> Path:
    table = pa.table({"id": range(ROWS), "body": [b"%d" % n * 100 for n in range(ROWS)]})
    write_batches(folder / "source", table, max_shard_records=500, **options)
    return folder / "source"


def ids(path: Path) -> list[int]:
    return sorted(read_batches(path, columns=["id"]).read_all().column("id").to_pylist())


def check_clean(path: Path) -> None:
    """Check that the committed data is intact, and that nothing else is left, even after a recovery."""
    assert blocking.recover(path).shards == ()
    import anyio

    report = anyio.run(lambda: verify(path, min_age=0))
    assert report.ok
    assert report.orphans == []


def fail_once(flag: Path, how: Callable[[], None]) -> Callable[[Any], Any]:
    """Return a function for `map_batches` that runs ``how`` in the task with row 2000, but only the first time."""

    def work(batch: Any) -> Any:
        if 2000 in batch["id"]:
            try:
                os.close(os.open(flag, os.O_CREAT | os.O_EXCL))
            except FileExistsError:
                return batch
            how()
        return batch

    return work


def die() -> None:
    os._exit(1)


def test_newest_version_of_each_key_is_read(tmp_path: Path) -> None:
    schema = Schema({"id": FixedLen((), "int64"), "date": FixedLen((), "int64")})
    with blocking.open_sharded_writer(
        tmp_path / "pages", schema=schema, max_shard_records=30, on_duplicate="write"
    ) as writer:
        for number in range(150):
            writer.write({"id": number, "date": number if number % 2 else -number}, key=f"{number % 100}")
    wanted = sorted([*range(50, 100), *(n if n % 2 == 0 else n + 100 for n in range(50))])
    found = read_asyncrec(tmp_path / "pages", newest="date", part_bytes=300)
    assert found.count() == len(wanted)
    assert sorted(row["id"] for row in found.take_all()) == wanted


def test_records_are_read_once_by_shards_and_ranges(tmp_path: Path) -> None:
    path = source(tmp_path, compression="GZIP")
    assert read_asyncrec(path).count() == ROWS
    parts = read_asyncrec(path, part_bytes=2000, columns=["id"], override_num_blocks=30)
    assert sorted(row["id"] for row in parts.take_all()) == list(range(ROWS))
    assert parts.schema().names == ["id"]
    assert sorted(row["id"] for row in read_asyncrec(tmp_path, split="source[10:20]").take_all()) == list(range(10, 20))
    assert len(read_asyncrec(path).take(7)) == 7


def test_column_types_round_trip(tmp_path: Path) -> None:
    table = pa.table(
        {
            "when": pa.array([0, 10**9], pa.timestamp("us")),
            "maybe": pa.array([None, 3], pa.int32()),
            "words": pa.array([["a"], []]),
            "name": ["x", "y"],
        }
    )
    schema = Schema(
        {"when": FixedLen((), "int64"), "maybe": VarLen("int32"), "words": VarLen("str"), "name": FixedLen((), "str")}
    )
    report = write_asyncrec(ray.data.from_arrow(table), tmp_path / "d", schema=schema, metadata={"by": "ray"})
    assert (report.rows, report.repeated) == (2, False)
    manifest = blocking.read_manifest(tmp_path / "d")
    assert manifest.metadata["by"] == "ray"
    assert read_asyncrec(tmp_path / "d").take_all() == [
        {"when": 0, "maybe": None, "words": ["a"], "name": "x"},
        {"when": 10**9, "maybe": [3], "words": [], "name": "y"},
    ]


def test_rows_are_written_once_despite_repeated_job(tmp_path: Path) -> None:
    dataset = read_asyncrec(source(tmp_path))
    first = write_asyncrec(dataset, tmp_path / "d", job_id="job", max_shard_records=300)
    assert (first.rows, first.repeated) == (ROWS, False)
    again = write_asyncrec(dataset, tmp_path / "d", job_id="job")
    assert (again.rows, again.repeated, again.shards) == (ROWS, True, first.shards)
    assert ids(tmp_path / "d") == list(range(ROWS))
    assert max(shard.records for shard in first.shards) == 300
    check_clean(tmp_path / "d")


def test_worker_dying_before_its_shard_reruns(tmp_path: Path) -> None:
    dataset = read_asyncrec(source(tmp_path)).map_batches(fail_once(tmp_path / "flag", die))
    assert write_asyncrec(dataset, tmp_path / "d").rows == ROWS
    assert (tmp_path / "flag").exists()
    assert ids(tmp_path / "d") == list(range(ROWS))
    check_clean(tmp_path / "d")


class DiesOnce(AsyncrecDatasink):
    """A task whose process dies once, after it has written its shards."""

    flag = ""

    def write(self, blocks: Any, ctx: Any) -> Any:
        entries = super().write(blocks, ctx)
        if self.flag and any(entry.records for entry in entries):
            try:
                os.close(os.open(self.flag, os.O_CREAT | os.O_EXCL))
            except FileExistsError:
                return entries
            os._exit(1)
        return entries


def test_worker_dying_after_its_shard_adds_no_duplicate(tmp_path: Path, monkeypatch: Any) -> None:
    class Here(DiesOnce):
        flag = str(tmp_path / "flag")

    monkeypatch.setattr(writing, "AsyncrecDatasink", Here)
    assert write_asyncrec(read_asyncrec(source(tmp_path)), tmp_path / "d").rows == ROWS
    assert (tmp_path / "flag").exists()
    assert ids(tmp_path / "d") == list(range(ROWS))
    check_clean(tmp_path / "d")


def test_raising_task_fails_job_without_leftovers(tmp_path: Path) -> None:
    def fail(batch: Any) -> Any:
        if 3999 in batch["id"]:
            raise RuntimeError("no more")
        return batch

    with pytest.raises(Exception, match="no more"):
        write_asyncrec(read_asyncrec(source(tmp_path)).map_batches(fail), tmp_path / "d", job_id="job")
    assert list(tmp_path.glob("d-*")) == []
    assert write_asyncrec(read_asyncrec(tmp_path / "source"), tmp_path / "d", job_id="job").rows == ROWS
    assert ids(tmp_path / "d") == list(range(ROWS))
    check_clean(tmp_path / "d")


def test_mismatched_row_is_named_by_column_and_number(tmp_path: Path) -> None:
    dataset = ray.data.from_arrow(pa.table({"a": [1, None]}))
    with pytest.raises(Exception, match="'a': row 1 is null") as raised:
        write_asyncrec(dataset, tmp_path / "d")
    assert isinstance(getattr(raised.value, "cause", raised.value), SchemaError)


def test_tolerated_block_failures_are_not_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(batch: Any) -> Any:
        if 3999 in batch["id"]:
            raise RuntimeError("no more")
        return batch

    context = DataContext.get_current()
    monkeypatch.setattr(context, "max_errored_blocks", 100)
    dataset = read_asyncrec(source(tmp_path)).map_batches(fail)
    report = write_asyncrec(dataset, tmp_path / "d")
    assert 0 < report.rows < ROWS  # as requested; Ray does not count the rows of a failed block
    assert len(ids(tmp_path / "d")) == report.rows
    check_clean(tmp_path / "d")


def test_missing_shard_fails_whole_write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Forgets(AsyncrecDatasink):
        def write(self, blocks: Any, ctx: Any) -> Any:
            entries = super().write(blocks, ctx)
            return entries if ctx.task_idx else []

    monkeypatch.setattr(writing, "AsyncrecDatasink", Forgets)
    with pytest.raises(DatasetError, match="the shards that were passed hold 2,500; nothing was committed"):
        write_asyncrec(read_asyncrec(source(tmp_path)), tmp_path / "d")
    assert list(tmp_path.glob("d-*")) == []


def test_failed_commit_leaves_no_shards(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any) -> None:
        raise StorageError("the store is full")

    monkeypatch.setattr(writing.DriverJob, "commit", refuse)
    with pytest.raises(StorageError, match="full"):
        write_asyncrec(read_asyncrec(source(tmp_path)), tmp_path / "d", job_id="job")
    assert list(tmp_path.glob("d-*")) == []
    monkeypatch.undo()
    assert write_asyncrec(read_asyncrec(tmp_path / "source"), tmp_path / "d", job_id="job").rows == ROWS
    check_clean(tmp_path / "d")


def test_lost_commit_response_is_resolved_by_next_run(tmp_path: Path, monkeypatch: Any) -> None:
    commit = writing.DriverJob.commit

    def lose(self: Any, entries: Any, records: int) -> None:
        commit(self, entries, records)
        raise StorageError("no answer")

    monkeypatch.setattr(writing.DriverJob, "commit", lose)
    with pytest.raises(StorageError, match="no answer"):
        write_asyncrec(read_asyncrec(source(tmp_path)), tmp_path / "d", job_id="job")
    monkeypatch.undo()
    report = write_asyncrec(read_asyncrec(tmp_path / "source"), tmp_path / "d", job_id="job")
    assert (report.rows, report.repeated) == (ROWS, True)
    assert ids(tmp_path / "d") == list(range(ROWS))
    check_clean(tmp_path / "d")


def test_empty_data_set_can_be_written(tmp_path: Path) -> None:
    schema = Schema({"id": FixedLen((), "int64")})
    empty = read_asyncrec(source(tmp_path)).filter(lambda row: row["id"] < 0)
    report = write_asyncrec(empty, tmp_path / "d", schema=schema)
    assert (report.rows, report.shards) == (0, ())
    assert blocking.read_manifest(tmp_path / "d").records == 0
    assert read_asyncrec(tmp_path / "d").count() == 0


def test_write_modes_match_writer_modes(tmp_path: Path) -> None:
    dataset = read_asyncrec(source(tmp_path), columns=["id"])
    write_asyncrec(dataset, tmp_path / "d", mode="new")
    with pytest.raises(StorageError):
        write_asyncrec(dataset, tmp_path / "d", mode="new")
    write_asyncrec(dataset.limit(10), tmp_path / "d", mode="replace")
    assert len(ids(tmp_path / "d")) == 10
    write_asyncrec(dataset.limit(10), tmp_path / "d")
    assert len(ids(tmp_path / "d")) == 20


@pytest.mark.parametrize("known", [True, False])
def test_appended_times_are_cast_to_stored_unit(tmp_path: Path, known: bool) -> None:
    write_batches(tmp_path / "d", pa.table({"when": pa.array([7_000_000], pa.timestamp("us"))}))
    rows = pa.table({"when": pa.array([8000, 9000], pa.timestamp("ms"))})
    schema = None if known else Schema({"when": FixedLen((), "int64")})
    write_asyncrec(ray.data.from_arrow(rows), tmp_path / "d", schema=schema)
    found = read_batches(tmp_path / "d").read_all().column("when").combine_chunks().sort()
    assert found.equals(pa.array([7_000_000, 8_000_000, 9_000_000], pa.timestamp("us")))
    with pytest.raises(SchemaError, match=r"'when' is duration\[us\].*stores timestamp\[us\]"):
        write_asyncrec(ray.data.from_arrow(pa.table({"when": pa.array([1], pa.duration("us"))})), tmp_path / "d")


DRIVER = """
import os, signal, sys, threading, time
os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
from pathlib import Path
import ray
from asyncrec.integrations.ray import read_asyncrec, write_asyncrec

folder = Path(sys.argv[1])
ray.init("local", num_cpus=2, object_store_memory=100 << 20, include_dashboard=False, log_to_driver=False)

def slow(batch):
    time.sleep(1)
    return batch

def kill():
    while not list(folder.glob("d-*.tfrecord")):
        time.sleep(0.05)
    os.kill(os.getpid(), signal.SIGKILL)

threading.Thread(target=kill, daemon=True).start()
rows = read_asyncrec(folder / "source", override_num_blocks=8).map_batches(slow)
write_asyncrec(rows, folder / "d", job_id="job")
"""


def test_killed_driver_reruns_with_same_job_id(tmp_path: Path) -> None:
    path = source(tmp_path)
    killed = subprocess.run([sys.executable, "-c", DRIVER, str(tmp_path)], check=False, capture_output=True, text=True)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    assert list(tmp_path.glob("d-*.tfrecord"))
    deadline = time.monotonic() + 60
    report = write_asyncrec(read_asyncrec(path), tmp_path / "d", job_id="job")
    assert (report.rows, report.repeated) == (ROWS, False)
    assert time.monotonic() < deadline
    assert ids(tmp_path / "d") == list(range(ROWS))
    import anyio

    anyio.run(lambda: verify(tmp_path / "d", delete=True, min_age=0))  # tasks of the dead driver may have ended late
    check_clean(tmp_path / "d")
    assert ids(tmp_path / "d") == list(range(ROWS))


@pytest.mark.timeout(1800)
def test_ten_thousand_tasks_write_each_row_once(tmp_path: Path) -> None:
    rows = ray.data.range(20_000, override_num_blocks=10_000)
    report = write_asyncrec(rows, tmp_path / "d")
    assert report.rows == 20_000
    assert ids(tmp_path / "d") == list(range(20_000))
    check_clean(tmp_path / "d")


def test_lost_node_neither_loses_nor_duplicates_rows(tmp_path: Path) -> None:
    script = Path(__file__).parent / "lost_node.py"
    ran = subprocess.run([sys.executable, script, tmp_path], check=False, capture_output=True, text=True)
    assert "4000 1 True True" in ran.stdout, ran.stdout + ran.stderr
