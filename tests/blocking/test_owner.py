"""An object that was not closed is closed when it is collected, with a warning; an object in use is not collected."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio.lowlevel
import pytest

from asyncrec import blocking
from asyncrec.blocking._owner import Handle
from asyncrec.blocking._portal import current_portal


@pytest.fixture
def file(tmp_path: Path) -> Path:
    blocking.write_records(tmp_path / "a.tfrecord", [b"%d" % number for number in range(5000)])
    return tmp_path / "a.tfrecord"


@pytest.fixture
def dataset(tmp_path: Path) -> Path:
    with blocking.open_sharded_writer(tmp_path / "pages") as writer:
        writer.write_many([b"%d" % number for number in range(5000)])
    return tmp_path / "pages"


def drop(kept: list[Any]) -> None:
    kept.clear()
    gc.collect()


def dropped(make: Callable[[], Handle[Any]]) -> None:
    """Open something, drop it, and wait until it is closed."""
    kept = [make()]
    held = kept[0]._owner._held
    with pytest.warns(ResourceWarning, match="was not closed"):
        drop(kept)
    while not held.ended:
        current_portal().run(anyio.lowlevel.checkpoint)


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


def test_dropped_reader_is_closed_with_warning(file: Path) -> None:
    with blocking.open_reader(file) as reader:
        next(reader)
    before = descriptors()
    for _ in range(20):
        dropped(lambda: blocking.open_reader(file).__enter__())
    assert descriptors() == before


def test_dropped_reader_is_closed_after_first_read(file: Path) -> None:
    def begun() -> Handle[Any]:
        reader = blocking.open_reader(file).__enter__()
        assert next(reader) == b"0"
        return reader

    dropped(begun)


def test_dropped_writer_publishes_nothing(tmp_path: Path) -> None:
    def begun() -> Handle[Any]:
        writer = blocking.open_writer(tmp_path / "new.tfrecord").__enter__()
        writer.write_many([b"x"] * 5000)
        return writer

    dropped(begun)
    assert list(tmp_path.iterdir()) == []


def test_dropped_handles_of_every_kind_are_closed(file: Path, dataset: Path) -> None:
    dropped(lambda: blocking.open_dataset(dataset).__enter__())
    dropped(lambda: blocking.interleave([file]).__enter__())
    dropped(lambda: blocking.open_storage(file.parent).__enter__())
    dropped(lambda: blocking.open_sharded_writer(file.parent / "more").__enter__())


def test_batch_iterator_keeps_its_reader_open(file: Path) -> None:
    """Only the batches still refer to the reader, which is closed when they are dropped."""
    kept = [blocking.open_reader(file).__enter__().batches()]
    gc.collect()
    assert sum(map(len, kept[0])) == 5000
    with pytest.warns(ResourceWarning, match="open_reader"):
        drop(kept)


def test_stream_keeps_its_dataset_or_store_open(file: Path, dataset: Path) -> None:
    streams = [blocking.open_dataset(dataset).__enter__().shuffled(seed=1).__enter__()]
    gc.collect()
    assert sum(1 for _ in streams[0]) == 5000
    streams[0]._owner.leave(None)
    with pytest.warns(ResourceWarning, match="open_dataset"):
        drop(streams)
    sources = [blocking.open_storage(file.parent).__enter__().open_source(file.name).__enter__()]
    gc.collect()
    assert len(sources[0].receive(100)) == 100
    sources[0]._owner.leave(None)
    with pytest.warns(ResourceWarning, match="open_storage"):
        drop(sources)


def test_closed_handle_emits_no_warning(file: Path) -> None:
    with blocking.open_reader(file) as reader:
        next(reader)
    with pytest.raises(KeyError), blocking.open_reader(file) as reader:
        raise KeyError
    with pytest.raises(FileNotFoundError), blocking.open_reader(file.parent / "none"):
        pass
    del reader
    gc.collect()


PROGRAMS = {
    "the end of Python": """
import sys
import threading
from asyncrec import blocking
reader = blocking.open_reader(sys.argv[1]).__enter__()
next(reader)
""",
    "a child made by fork": """
import gc, os, sys
from asyncrec import blocking
reader = blocking.open_reader(sys.argv[1]).__enter__()
next(reader)
child = os.fork()
if not child:
    del reader
    gc.collect()
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
assert next(reader) == b"1"
reader._owner.leave(None)
""",
}


@pytest.mark.parametrize("what", PROGRAMS)
def test_open_reader_emits_no_warning_at_exit_and_fork(file: Path, what: str) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-W", "ignore::DeprecationWarning", "-c", PROGRAMS[what], str(file)],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("where", ["this thread", "another thread", "the loop's own thread"])
def test_dropped_rolling_writer_commits_its_records(where: str, tmp_path: Path) -> None:
    kept = [blocking.open_sharded_writer(tmp_path / "pages").__enter__()]
    for number in range(10):
        kept[0].write(b"%d" % number)
    held = kept[0]._owner._held

    async def on_the_loop() -> None:
        drop(kept)

    def drop_there() -> None:
        if where == "this thread":
            drop(kept)
        elif where == "another thread":
            thread = threading.Thread(target=drop, args=(kept,))
            thread.start()
            thread.join()
        else:
            current_portal().run(on_the_loop)

    with pytest.warns(ResourceWarning, match="open_sharded_writer was not closed"):
        drop_there()
    while not held.ended:
        current_portal().run(anyio.lowlevel.checkpoint)
    with blocking.open_dataset(tmp_path / "pages") as dataset:
        assert list(dataset) == [b"%d" % number for number in range(10)]


def test_dropped_discarding_writer_discards_records(tmp_path: Path) -> None:
    def begun() -> Handle[Any]:
        writer = blocking.open_sharded_writer(tmp_path / "pages", on_error="discard").__enter__()
        writer.write(b"x")
        return writer

    dropped(begun)
    assert blocking.list_shards(str(tmp_path / "pages")) == []


def test_dropped_writer_logs_lost_records(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def fail(*args: Any, **options: Any) -> None:
        raise OSError("the disk is full")

    def begun() -> Handle[Any]:
        writer = blocking.open_sharded_writer(tmp_path / "pages").__enter__()
        writer.write(b"x")
        monkeypatch.setattr(writer._value, "write", fail)
        return writer

    dropped(begun)
    (told,) = [record.getMessage() for record in caplog.records if record.name == "asyncrec.blocking"]
    assert told.startswith(f"{tmp_path / 'pages'}: the writer was not closed, and 1 records that it had buffered ")
    assert told.endswith("were lost: the disk is full")


@pytest.mark.anyio
async def test_async_with_on_blocking_object_raises(file: Path) -> None:
    with pytest.raises(
        TypeError, match=r"open_reader: open objects of asyncrec\.blocking with `with`; `async with` is for"
    ):
        async with blocking.open_reader(file):
            pass
