"""A source meets grain's requirements: pickling, a stable repr, and reads from threads and processes.

tests/loaders has the tests with grain itself.
"""

from __future__ import annotations

import multiprocessing
import os
import pickle
import random
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from pathlib import Path

import pytest

from asyncrec import blocking, decode_example, encode_example
from asyncrec.integrations import _snapshot
from asyncrec.integrations.grain import RecordDataSource

COUNT = 500


@pytest.fixture(params=["", "GZIP"], ids=["plain", "GZIP"])
def numbers(tmp_path: Path, request: pytest.FixtureRequest) -> str:
    write(tmp_path, request.param)
    return str(tmp_path / "numbers")


def write(folder: Path, compression: str = "", first: int = 0) -> None:
    with blocking.open_sharded_writer(folder / "numbers", max_shard_records=90, compression=compression) as writer:
        writer.write_many(b"%d" % number for number in range(first, COUNT))


@pytest.fixture
def source(numbers: str) -> Iterator[RecordDataSource]:
    made = RecordDataSource(numbers)
    yield made
    made.close()


def read(source: RecordDataSource, index: int) -> tuple[int, bytes, str]:
    """Read a record in another process."""
    return os.getpid(), source[index], repr(source)


def test_source_returns_single_and_multiple_records(source: RecordDataSource) -> None:
    assert len(source) == COUNT
    assert source[3] == b"3"
    assert source[-1] == b"499"
    assert source.__getitems__([400, 3, 3]) == source._getitems([400, 3, 3]) == [b"400", b"3", b"3"]
    with pytest.raises(IndexError):
        source[COUNT]


def test_source_repr_depends_only_on_snapshot(numbers: str, tmp_path: Path) -> None:
    one, other = RecordDataSource(numbers), pickle.loads(pickle.dumps(RecordDataSource(numbers)))
    other[0]
    assert repr(one) == repr(other)
    assert str(tmp_path) not in repr(one)
    before = blocking.read_manifest(numbers)
    write(tmp_path, first=COUNT - 1)
    grown = RecordDataSource(numbers)
    assert repr(grown) != repr(one)
    assert repr(RecordDataSource(before)) == repr(one)
    assert (len(grown), len(one)) == (COUNT + 1, COUNT)
    for each in (one, other, grown):
        each.close()


def test_source_repr_changes_after_replacement_of_same_size(
    tmp_path: Path,
) -> None:
    shown = []
    for record in (b"one", b"one", b"two"):
        if not shown or record == b"two":
            blocking.write_records(tmp_path / "files-0.tfrecord", [record])
        source = RecordDataSource(tmp_path / "files-*.tfrecord")
        shown.append(repr(source))
        source.close()
    assert shown[0] == shown[1] != shown[2]


def test_concurrent_threads_open_data_set_once(source: RecordDataSource, monkeypatch: pytest.MonkeyPatch) -> None:
    opened = []
    open_dataset = blocking.open_dataset

    def counted(*args: object, **options: object) -> object:
        opened.append(args)
        return open_dataset(*args, **options)  # type: ignore[arg-type]  # handed on

    monkeypatch.setattr(_snapshot.blocking, "open_dataset", counted)
    wanted = random.Random(1).choices(range(COUNT), k=400)
    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(source.__getitem__, wanted)) == [b"%d" % number for number in wanted]
    assert len(opened) == 1


@pytest.mark.slow
def test_spawned_processes_read_from_source_in_use(source: RecordDataSource) -> None:
    assert source[0] == b"0"
    with ProcessPoolExecutor(2, mp_context=multiprocessing.get_context("spawn")) as pool:
        found = [pool.submit(read, source, number).result(60) for number in (7, 8, 9)]
    assert [record for _, record, _ in found] == [b"7", b"8", b"9"]
    assert {shown for _, _, shown in found} == {repr(source)}
    assert os.getpid() not in {process for process, _, _ in found}
    assert source[1] == b"1"


# Runs in its own process: pytest's process has threads, and forking a process with threads is unsafe.
FORKS = """
import os, sys
from asyncrec.integrations.grain import RecordDataSource
source = RecordDataSource(sys.argv[1])
assert source[7] == b"7"
child = os.fork()
assert source.__getitems__([8, 400]) == [b"8", b"400"]
if child:
    sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


@pytest.mark.slow
def test_forked_child_reopens_source(numbers: str) -> None:
    subprocess.run([sys.executable, "-W", "ignore", "-c", FORKS, numbers], check=True, timeout=100)


def test_closed_source_reopens(source: RecordDataSource) -> None:
    assert source[1] == b"1"
    source.close()
    source.close()
    assert source[2] == b"2"


def test_source_contains_newest_versions_only(tmp_path: Path) -> None:
    with blocking.open_sharded_writer(tmp_path / "pages", on_duplicate="write") as writer:
        for number in range(6):
            writer.write(encode_example({"n": number, "date": number % 4}), key=f"k{number % 3}")
    source = RecordDataSource(tmp_path / "pages", newest="date")
    copy = pickle.loads(pickle.dumps(source))
    for each in (source, copy):
        # The dates of the two versions of k0, k1 and k2 are 0 and 3, 1 and 0, 2 and 1.
        assert [decode_example(record)["n"].tolist() for record in each] == [[1], [2], [3]]
        assert (len(each), each[-1], each.__getitems__([2, 0])) == (3, each[2], [each[2], each[0]])
        with pytest.raises(IndexError):
            each[3]
    everything = RecordDataSource(tmp_path / "pages")
    assert repr(copy) == repr(source) != repr(everything)
    for each in (source, copy, everything):
        each.close()
