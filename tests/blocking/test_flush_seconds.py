"""``flush_seconds`` of a blocking writer: records reach the disk in time even if its thread makes no further calls."""

from __future__ import annotations

import gc
import shutil
import threading
import weakref
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from asyncrec import blocking
from asyncrec.blocking._collected import flush_in_time
from asyncrec.blocking._portal import current_portal
from asyncrec.errors import StorageError
from asyncrec.storage._local import unfinished
from asyncrec.testing._clock import virtual_backend

_PATIENCE = 60.0


class Flushes:
    def __init__(self) -> None:
        self.fails = False
        self.done = threading.Event()

    def wait(self) -> None:
        assert self.done.wait(_PATIENCE), "nothing was flushed"
        self.done.clear()


@pytest.fixture
def flushes(monkeypatch: pytest.MonkeyPatch) -> Flushes:
    real, seen = unfinished.UnfinishedFile.flush, Flushes()

    def flush(self: unfinished.UnfinishedFile, tail: Any) -> int:
        try:
            if seen.fails:
                raise OSError(28, "No space left on device")
            return real(self, tail)
        finally:
            seen.done.set()

    monkeypatch.setattr(unfinished.UnfinishedFile, "flush", flush)
    return seen


def killed_now(folder: Path) -> list[bytes]:
    copy = folder.with_name("killed")
    shutil.copytree(folder, copy)
    blocking.recover(copy / "pages")
    found = [record for path in blocking.list_shards(copy / "pages") for record in blocking.read_records(path)]
    shutil.rmtree(copy)
    return found


def test_writer_flushes_collected_records_after_flush_seconds(tmp_path: Path, flushes: Flushes) -> None:
    with blocking.open_sharded_writer(tmp_path / "d" / "pages", flush_seconds=0.01) as writer:
        assert writer.flush_seconds == 0.01
        assert writer.write(b"alone", key="alone") == 1
        flushes.wait()  # first for the keys, and then for the shard
        while killed_now(tmp_path / "d") != [b"alone"]:
            flushes.wait()
        assert writer.write(b"another", key="another") == 2
        while killed_now(tmp_path / "d") != [b"alone", b"another"]:
            flushes.wait()
        writer.wait(2, "spooled")


def test_flush_seconds_affects_neither_tickets_nor_duplicates(tmp_path: Path, flushes: Flushes) -> None:
    with blocking.open_sharded_writer(
        tmp_path / "pages", flush_seconds=0.001, on_duplicate="skip", max_shard_records=100
    ) as writer:
        tickets = [writer.write(b"%d" % number, key=str(number % 500)) for number in range(1000)]
        assert tickets == [*range(1, 501), *[500] * 500]
        assert writer.has("499")
        flushes.wait()
        assert not writer.has("500")
    assert blocking.read_manifest(tmp_path / "pages").records == 500


def test_failed_flush_is_raised_by_next_call(tmp_path: Path, flushes: Flushes) -> None:
    with pytest.raises(StorageError, match="No space left"):
        with blocking.open_sharded_writer(tmp_path / "pages", flush_seconds=0.01) as writer:
            flushes.fails = True
            writer.write(b"first")
            flushes.wait()
            writer.flush()
            raise AssertionError("it was not told")


@pytest.mark.parametrize("options", [{"num_shards": 2}, {"mode": "replace"}, {"flush_seconds": None}])
def test_flush_seconds_is_unset_for_writers_that_cannot_flush(tmp_path: Path, options: dict[str, Any]) -> None:
    with blocking.open_sharded_writer(tmp_path / "pages", **options) as writer:
        assert writer.flush_seconds is None
        writer.write(b"one")


def test_flush_timer_does_not_keep_unreferenced_writer_alive(tmp_path: Path) -> None:
    writer = blocking.open_sharded_writer(tmp_path / "pages", flush_seconds=1000.0).__enter__()
    writer.write(b"lost")
    there, held = weakref.ref(writer), writer._owner._held
    with pytest.warns(ResourceWarning):
        del writer
    gc.collect()
    assert there() is None
    while not held.ended:  # otherwise, the next test would count its file descriptors
        current_portal().run(anyio.lowlevel.checkpoint)


class Collector:
    """A writer for which each flush finds records, finds none, or finds the writer's thread busy."""

    def __init__(self, *found: bool | None) -> None:
        self.found = list(found)
        self.times: list[float] = []

    async def flush(self) -> bool | None:
        self.times.append(anyio.current_time())
        return self.found.pop(0)


@pytest.mark.anyio
class TestTimer:
    @pytest.fixture(params=["asyncio", "trio"])
    def anyio_backend(self, request: pytest.FixtureRequest) -> Any:
        return virtual_backend(request.param)

    async def test_flush_timer_ends_without_new_records(self) -> None:
        collector = Collector(True, True, False)
        await flush_in_time(weakref.WeakMethod(collector.flush), 5)
        assert collector.times == [5, 10, 15]

    async def test_flush_timer_retries_soon_during_concurrent_write(self) -> None:
        collector = Collector(None, None, None, True, False)
        await flush_in_time(weakref.WeakMethod(collector.flush), 5)
        assert collector.times == pytest.approx([5, 5.001, 5.003, 5.007, 10.007])

    async def test_flush_loop_references_collector_weakly(self) -> None:
        collector = Collector(True)
        there = weakref.ref(collector)
        async with anyio.create_task_group() as group:
            group.start_soon(flush_in_time, weakref.WeakMethod(collector.flush), 5)
            await anyio.sleep(1)
            del collector
            gc.collect()
            assert there() is None
        assert anyio.current_time() == 5
