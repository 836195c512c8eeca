"""A job that another process keeps ends once: by a commit, by being given up, or with the process it hangs on."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from asyncrec import blocking
from asyncrec.errors import ConflictError, DatasetError, StorageError
from asyncrec.integrations._engines import write_share
from asyncrec.integrations._kept_job import KeptJob, keep_job
from asyncrec.integrations.arrow import read_batches, schema_of

TABLE = pa.table({"id": range(10)})
SCHEMA = schema_of(TABLE.schema)


def keep(path: Path, parent: int | None = None, **options: Any) -> KeptJob:
    return keep_job(str(path), parent=parent or os.getpid(), schema=SCHEMA.to_json(), **options)


def write(job: KeptJob) -> Any:
    return write_share(job.share, [TABLE], SCHEMA, part=0, narrow=True, limits={}, storage_options=None)


def rows(path: Path) -> int:
    return int(read_batches(path).read_all().num_rows)


def test_what_is_committed_is_there_and_a_second_run_finds_it(tmp_path: Path) -> None:
    job = keep(tmp_path / "d", job_id="job")
    entries = write(job)
    with pytest.raises(ConflictError):  # it lives, though the call that began it has ended
        keep(tmp_path / "d", job_id="job")
    with pytest.raises(DatasetError, match="11 records were written and 10 arrived"):
        job.commit(entries, 11)
    job.commit(entries, 10)
    assert rows(tmp_path / "d") == 10
    again = keep(tmp_path / "d", job_id="job")
    assert again.repeated
    again.commit([], 0)
    assert rows(tmp_path / "d") == 10
    with pytest.raises(StorageError, match="has ended, and with it the job"):
        job.give_up()
    assert rows(tmp_path / "d") == 10


def test_what_is_given_up_leaves_nothing(tmp_path: Path) -> None:
    job = keep(tmp_path / "d", job_id="job")
    write(job)
    assert len(list(tmp_path.glob("d-*.tfrecord"))) == 1
    job.give_up()
    assert list(tmp_path.glob("d-*.tfrecord")) == []


@pytest.mark.slow
def test_a_job_ends_with_the_process_that_it_hangs_on(tmp_path: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as parent:
        job = keep(tmp_path / "d", parent.pid, job_id="job")
        entries = write(job)
        folder = Path(job.address).parent
        with job.connected() as connection:
            parent.send_signal(signal.SIGKILL)
            # A reset, where the process ended before it had read the last message of its greeting.
            with pytest.raises((EOFError, ConnectionResetError)):
                connection.recv()
    assert not folder.exists()
    with pytest.raises(StorageError, match="run it again"):
        job.commit(entries, 10)
    again = keep(tmp_path / "d", job_id="job")  # the dead one is given up, and what it made is gone
    assert not again.repeated
    assert list(tmp_path.glob("d-*.tfrecord")) == []
    again.commit(write(again), 10)
    assert rows(tmp_path / "d") == 10
    assert blocking.recover(tmp_path / "d").shards == ()


@pytest.mark.parametrize("temporary", ["short", "x" * 90])
def test_no_other_user_can_connect_to_a_kept_job(tmp_path: Path, monkeypatch: Any, temporary: str) -> None:
    (tmp_path / temporary).mkdir()
    monkeypatch.setenv("TMPDIR", str(tmp_path / temporary))
    job = keep(tmp_path / "d")
    folder = Path(job.address).parent
    assert (folder.stat().st_uid, stat.S_IMODE(folder.stat().st_mode)) == (os.geteuid(), 0o700)
    assert stat.S_ISSOCK(os.stat(job.address).st_mode)
    job.give_up()
    assert not folder.exists()


def test_a_kept_job_imports_nothing_from_the_current_folder(tmp_path: Path, monkeypatch: Any) -> None:
    """The folder may be shared: a neighbour's `secrets.py` would run as this user."""
    shared = tmp_path / "shared"
    shared.mkdir()
    for module in {*sys.stdlib_module_names, "asyncrec", "anyio", "numpy"} - set(sys.builtin_module_names):
        (shared / f"{module}.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'a').write('{module} ')\n")
    monkeypatch.chdir(shared)
    keep(tmp_path / "d").give_up()
    assert not (tmp_path / "ran").exists()


@pytest.mark.slow
def test_what_cannot_be_begun_is_raised_where_it_was_asked_for(tmp_path: Path) -> None:
    keep(tmp_path / "d").commit([], 0)
    with pytest.raises(FileExistsError):
        keep(tmp_path / "d", mode="new")
    with pytest.raises(ValueError, match="job_id"):
        keep(tmp_path / "d", job_id="x" * 60)
