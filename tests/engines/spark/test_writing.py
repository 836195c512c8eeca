"""Each row that Spark writes is stored exactly once or not at all, whichever process dies."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import anyio
import pyarrow as pa
import pytest

from asyncrec import FixedLen, Schema, VarLen, blocking
from asyncrec.errors import ObjectNotFoundError
from asyncrec.integrations.arrow import read_batches, write_batches
from asyncrec.tools import verify

pytestmark = pytest.mark.timeout(600)

ROWS = 4000


def ids(path: Path) -> list[int]:
    return sorted(read_batches(path, columns=["id"]).read_all().column("id").to_pylist())


def save(frame: Any, path: Path, mode: str = "append", **options: Any) -> None:
    frame.write.format("asyncrec").mode(mode).options(**options).save(str(path))


def spoilt(frame: Any, path: Path, fault: str, **options: Any) -> None:
    flag = str(path.parent / "flag")
    frame.write.format("faulty").mode("append").options(fault=fault, flag=flag, **options).save(str(path))


def rows(spark: Any) -> Any:
    return spark.range(0, ROWS, 1, 8)


def check_clean(path: Path) -> None:
    """Check that the committed data is intact, and that nothing else is left, even after a recovery."""
    assert blocking.recover(path).shards == ()
    report = anyio.run(lambda: verify(path, min_age=0))
    assert report.ok
    assert report.orphans == []


def check_nothing(path: Path) -> None:
    assert list(path.parent.glob("d-*")) == []
    assert blocking.recover(path).shards == ()


def test_rows_are_written_once_despite_repeated_job(spark: Any, tmp_path: Path) -> None:
    path = tmp_path / "d"
    save(rows(spark), path, job_id="job", max_shard_records="300", metadata='{"by": "spark"}', compression="GZIP")
    manifest = blocking.read_manifest(path)
    assert manifest.records == ROWS
    assert max(shard.records for shard in manifest.shards) == 300
    assert manifest.metadata["by"] == "spark"
    save(rows(spark), path, job_id="job")
    assert ids(path) == list(range(ROWS))
    check_clean(path)
    save(rows(spark), path)
    assert len(ids(path)) == 2 * ROWS
    assert [row["id"] for row in spark.read.format("asyncrec").load(str(path)).where("id = 7").collect()] == [7, 7]


@pytest.mark.parametrize("fault", ["killed before", "killed after", "raises once"])
def test_failed_task_reruns_without_leftovers(spark: Any, tmp_path: Path, fault: str) -> None:
    spoilt(rows(spark), tmp_path / "d", fault)
    assert (tmp_path / "flag").exists()
    assert ids(tmp_path / "d") == list(range(ROWS))
    check_clean(tmp_path / "d")


@pytest.mark.parametrize(
    ("fault", "told"),
    [
        ("raises", "no more"),
        ("commit fails", "the store is full"),
        ("forgets", "the shards that were passed hold 0; nothing was committed"),
    ],
)
def test_failed_job_leaves_no_data_and_reruns(spark: Any, tmp_path: Path, fault: str, told: str) -> None:
    with pytest.raises(Exception, match=told):
        spoilt(rows(spark), tmp_path / "d", fault, job_id="job")
    if fault != "raises":  # if it raises, Spark does not wait for the other tasks, whose output may come later
        check_nothing(tmp_path / "d")
    save(rows(spark), tmp_path / "d", job_id="job")
    assert ids(tmp_path / "d") == list(range(ROWS))
    if fault == "raises":
        anyio.run(lambda: verify(tmp_path / "d", delete=True, min_age=0))
    check_clean(tmp_path / "d")
    assert ids(tmp_path / "d") == list(range(ROWS))


@pytest.mark.parametrize("fault", ["answer lost", "commit killed"])
def test_lost_commit_response_is_resolved_by_next_run(spark: Any, tmp_path: Path, fault: str) -> None:
    with pytest.raises(Exception, match=r"no answer|EOF|exited|crashed|reset"):
        spoilt(rows(spark), tmp_path / "d", fault, job_id="job")
    save(rows(spark), tmp_path / "d", job_id="job")
    assert ids(tmp_path / "d") == list(range(ROWS))
    check_clean(tmp_path / "d")


FIRST = """
import sys, time
from pathlib import Path
from started import start

folder = Path(sys.argv[1])

def waits(batches):
    while not list(folder.rglob("*job_run2*")):  # its header, or what it has committed
        time.sleep(0.05)
    yield from batches

rows = start().range(0, 4000, 1, 8).mapInArrow(waits, "id bigint")
rows.write.format("asyncrec").mode("append").option("job_id", "job").save(str(folder / "d"))
"""


def test_concurrent_runs_of_one_job_commit_once(spark: Any, tmp_path: Path) -> None:
    first = subprocess.Popen([sys.executable, "-c", FIRST, str(tmp_path)], stderr=subprocess.PIPE, text=True)
    while not (tmp_path / ".d.job_run1.partial").exists():
        assert first.poll() is None
        time.sleep(0.05)
    save(rows(spark), tmp_path / "d", job_id="job")
    _, said = first.communicate()
    assert first.returncode == 1
    assert "by another run of the same job_id" in said
    assert ids(tmp_path / "d") == list(range(ROWS))
    anyio.run(lambda: verify(tmp_path / "d", delete=True, min_age=0))
    check_clean(tmp_path / "d")


def test_appended_times_are_cast_to_stored_unit(spark: Any, tmp_path: Path) -> None:
    stored = pa.table({"when": pa.array([7000], pa.timestamp("ms"))})
    write_batches(tmp_path / "d", stored)
    save(spark.sql("select timestamp_ntz'1970-01-01 00:00:08' as when"), tmp_path / "d")
    found = read_batches(tmp_path / "d").read_all().column("when").combine_chunks().sort()
    assert found.equals(pa.array([7000, 8000], pa.timestamp("ms")))
    for wrong, fault in (
        ("timestamp_ntz'1970-01-01 00:00:08.000001'", "would lose data"),
        ("timestamp'1970-01-01 00:00:08'", r"'when' is timestamp\[us, tz=UTC\]"),
    ):
        with pytest.raises(Exception, match=fault):
            save(spark.sql(f"select {wrong} as when"), tmp_path / "d")
    assert len(read_batches(tmp_path / "d").read_all()) == 2


def test_recover_abandons_job_of_killed_driver_on_request(tmp_path: Path) -> None:
    killed = subprocess.run([sys.executable, "-c", DRIVER, str(tmp_path)], check=False, capture_output=True, text=True)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    [left] = blocking.recover(tmp_path / "d").unfinished
    assert left.id == "job_run1"
    assert blocking.recover(tmp_path / "d", abandon=[left.id]).abandoned == (left.id,)
    assert blocking.recover(tmp_path / "d").unfinished == ()
    with pytest.raises(ObjectNotFoundError):
        blocking.read_manifest(tmp_path / "d")


def test_empty_frame_writes_empty_data_set(spark: Any, tmp_path: Path) -> None:
    save(rows(spark).where("id < 0"), tmp_path / "d")
    assert blocking.read_manifest(tmp_path / "d").records == 0
    assert spark.read.format("asyncrec").load(str(tmp_path / "d")).collect() == []
    check_clean(tmp_path / "d")


def test_write_modes_determine_fate_of_existing_data(spark: Any, tmp_path: Path) -> None:
    frame = rows(spark).limit(10)
    save(frame, tmp_path / "d", if_exists="fail")
    with pytest.raises(Exception, match="a data set with this name already exists"):
        save(frame, tmp_path / "d", if_exists="fail")
    save(frame.limit(3), tmp_path / "d", mode="overwrite")
    assert len(ids(tmp_path / "d")) == 3
    with pytest.raises(Exception, match="if_exists"):
        save(frame, tmp_path / "d", mode="overwrite", if_exists="fail")
    check_clean(tmp_path / "d")


def test_column_types_round_trip(spark: Any, tmp_path: Path) -> None:
    made = "select 1Y as b, 2S as s, 3 as i, 4L as l, cast(0.5 as float) as f, true as y, 'ä' as t, X'00ff' as x"
    more = "array(1, 2) as n, timestamp_ntz'2026-11-22 12:00:00.000005' as w, date'2026-11-22' as d, 0.5D as e"
    frame = spark.sql(f"{made}, {more}, timestamp'2026-11-22 12:00:00' as z")
    save(frame, tmp_path / "d")
    found = spark.read.format("asyncrec").load(str(tmp_path / "d"))
    assert found.dtypes == frame.dtypes
    assert found.collect() == frame.collect()
    with pytest.raises(Exception, match="column 'm' is map<string,int>, which no feature can hold"):
        save(spark.sql("select map('a', 1) as m"), tmp_path / "e")


def test_null_requires_schema_with_varlen(spark: Any, tmp_path: Path) -> None:
    frame = spark.sql("select 1L as a union all select null as a")
    with pytest.raises(Exception, match="'a': row 0 is null, which only a VarLen"):
        save(frame, tmp_path / "d")
    import json

    save(frame, tmp_path / "d", schema=json.dumps(Schema({"a": VarLen("int64")}).to_json()))
    table = read_batches(tmp_path / "d").read_all()
    assert sorted(table.column("a").to_pylist(), key=str) == [None, [1]] or table.column("a").to_pylist() == [[1], None]
    wide = Schema({"a": FixedLen((), "float64", raw=True)})
    save(spark.sql("select 0.1D as a"), tmp_path / "f", schema=json.dumps(wide.to_json()))
    assert read_batches(tmp_path / "f").read_all() == pa.table({"a": [0.1]}).cast(
        pa.schema([pa.field("a", pa.float64(), nullable=False)])
    )


DRIVER = """
import os, signal, sys, threading, time
from pathlib import Path
from started import start

folder = Path(sys.argv[1])
spark = start()

def slow(batches):
    time.sleep(2)
    yield from batches

def kill():
    while not list(folder.glob("d-*.tfrecord")):
        time.sleep(0.05)
    os.kill(os.getpid(), signal.SIGKILL)

threading.Thread(target=kill, daemon=True).start()
rows = spark.range(0, 4000, 1, 8).mapInArrow(slow, "id bigint")
rows.write.format("asyncrec").mode("append").option("job_id", "job").save(str(folder / "d"))
"""


def test_killed_driver_reruns_with_same_job_id(spark: Any, tmp_path: Path) -> None:
    killed = subprocess.run([sys.executable, "-c", DRIVER, str(tmp_path)], check=False, capture_output=True, text=True)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    assert list(tmp_path.glob("d-*.tfrecord"))
    save(rows(spark), tmp_path / "d", job_id="job")
    assert ids(tmp_path / "d") == list(range(ROWS))
    anyio.run(lambda: verify(tmp_path / "d", delete=True, min_age=0))  # tasks of the dead driver may have ended late
    check_clean(tmp_path / "d")
    assert ids(tmp_path / "d") == list(range(ROWS))
