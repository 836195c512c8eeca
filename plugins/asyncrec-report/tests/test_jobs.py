"""The page does not depend on how many shards are read at once; memory is limited, and cancellation works."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import anyio
import pytest
from asyncrec_report import making, report
from asyncrec_report.reading import _Collected
from hypothesis import given, settings
from hypothesis import strategies as st
from report_pages import change, folder, png, written

import asyncrec
from asyncrec.errors import ObjectChangedError, StorageError
from asyncrec.storage import Storage
from asyncrec.storage._memory import MemoryStorage
from asyncrec.testing import FlakyStorage, SlowStorage, virtual_backend

JOBS = (1, 2, 3, None)


@pytest.fixture(autouse=True, scope="module")
def always_now() -> Iterator[None]:
    """Make all pages at the same time of day."""

    class Now(datetime):
        @classmethod
        def now(cls, tz: Any = None) -> Any:
            return datetime(2026, 11, 23, tzinfo=UTC)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(making, "datetime", Now)
        yield


async def one_page(path: str, storage: Storage, **options: Any) -> making.PageReport:
    """Return the report, after checking that it is the same for every number of jobs."""
    pages = [await report(path, jobs=jobs, storage=storage, **options) for jobs in JOBS]
    assert all(page == pages[0] for page in pages)
    return pages[0]


def rows(count: int) -> list[dict[str, Any]]:
    return [
        {"label": n % 7, "x": [n / 3] * (n % 3), "text": f"number {n} " * (n % 40), "image": png(1 + n % 9)}
        for n in range(count)
    ]


@pytest.mark.slow
@pytest.mark.anyio
@pytest.mark.parametrize("compression", ["", "GZIP", "ZLIB"])
@pytest.mark.parametrize("sample", [None, 20_000, 130])
async def test_page_is_identical_for_any_number_of_jobs(compression: Any, sample: int | None) -> None:
    storage = await written(rows(700), max_shard_records=100, compression=compression)
    manifest = await asyncrec.read_manifest("pages", storage=storage)
    names = [shard.path for shard in manifest.shards]
    await change(storage, names[1], 30)
    await storage.put(names[2], (await storage.get(names[2]))[:-5])
    await storage.delete(names[4])
    await storage.delete(f"_index/{names[5]}.index")
    found = await one_page("pages", storage, sample=sample)
    assert found.sampled == (sample == 130)
    assert "is missing" in [fault.message for fault in found.faults]
    assert [fault.path for fault in found.faults] == sorted(fault.path for fault in found.faults)


@pytest.mark.slow
@pytest.mark.anyio
async def test_uncounted_and_oversized_files_give_identical_pages(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    storage = MemoryStorage()
    for number in range(9):
        records = [asyncrec.encode_example({"n": n, "body": bytes(1000 * number)}) for n in range(30)]
        await asyncrec.write_records(f"d/{number}.tfrecord", records, storage=storage)
    assert (await one_page("d", storage)).read == 270
    assert (await one_page("d", storage, sample=27)).read == 27
    monkeypatch.setattr("asyncrec_report.gather.SAMPLE_BYTES", 20_000)
    found = await one_page("d", storage)
    assert found.sampled
    assert 8 < found.read < 270


RECORDS = st.one_of(
    st.binary(max_size=8),
    st.dictionaries(
        st.sampled_from(("label", "x", "y")),
        st.one_of(st.integers(0, 5), st.lists(st.floats(width=32), max_size=3), st.binary(max_size=5), st.just([])),
    ).map(asyncrec.encode_example),
)


@pytest.mark.slow
@settings(deadline=None, max_examples=25)
@given(st.lists(st.lists(RECORDS, max_size=6), max_size=5), st.none() | st.integers(1, 12), st.integers(1, 4))
def test_random_records_give_identical_page_for_any_jobs(
    shards: list[list[bytes]], sample: int | None, at_once: int
) -> None:
    async def pages() -> None:
        storage = MemoryStorage()
        for number, records in enumerate(shards):
            await asyncrec.write_records(f"d/{number}.tfrecord", records, storage=storage)
        await asyncrec.write_records("d/last.tfrecord", [b"x"], storage=storage)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("asyncrec_report.reading._BLOCK_RECORDS", at_once)
            patch.setattr("asyncrec_report.gather._PLACES", 3)
            await one_page("d", storage, sample=sample)

    anyio.run(pages)


@given(st.lists(st.lists(st.binary(max_size=40), max_size=9), max_size=9), st.integers(0, 5))
def test_block_boundaries_are_independent_of_input_batches(batches: list[list[bytes]], first: int) -> None:
    def blocks(batches: list[list[bytes]]) -> list[Any]:
        collected = _Collected(first)
        found = [block for batch in batches for block in collected.add(batch, known=True)]
        return [*found, *collected.rest()]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("asyncrec_report.reading._BLOCK_RECORDS", 5)
        patch.setattr("asyncrec_report.reading._BLOCK_BYTES", 60)
        records = [record for batch in batches for record in batch]
        found = blocks(batches)
        assert found == blocks([records]) == blocks([[record] for record in records])
        assert [record for block, _ in found for record in block] == records
        assert all(start == first + sum(len(block) for block, _ in found[:n]) for n, (_, start) in enumerate(found))


class Counting(FlakyStorage):
    """Counts the objects that are open for reading, and refuses to open some."""

    def __init__(self, storage: Storage, refused: tuple[str, ...] = ()) -> None:
        super().__init__(storage)
        self.open = self.most = 0
        self._refused = refused

    @asynccontextmanager
    async def open_source(self, key: str, **options: Any) -> AsyncIterator[Any]:
        if key.endswith(self._refused):
            raise StorageError(f"{key}: refused")
        async with super().open_source(key, **options) as source:
            self.open += 1
            self.most = max(self.most, self.open)
            try:
                yield source
            finally:
                self.open -= 1


@pytest.mark.anyio
@pytest.mark.parametrize("jobs", [1, 3])
async def test_number_of_open_shards_equals_number_of_jobs(jobs: int) -> None:
    storage = Counting(await folder(records=4, size=2_500_000))
    assert (await report("d", jobs=jobs, storage=storage, sample=None)).read == 32
    assert storage.open == 0
    assert storage.most == jobs


@pytest.mark.anyio
@pytest.mark.parametrize("jobs", JOBS)
async def test_first_unreadable_shard_determines_error(jobs: int | None) -> None:
    storage = Counting(await folder(), ("3.tfrecord", "4.tfrecord", "6.tfrecord"))
    seen: list[int] = []
    with pytest.raises(StorageError, match=r"3\.tfrecord"):
        await report("d", jobs=jobs, storage=storage, progress=lambda done, total: seen.append(done))
    assert seen == [3, 6, 9]
    assert storage.open == 0


@pytest.mark.anyio
async def test_cancelled_report_closes_all_sources() -> None:
    storage = Counting(await folder(records=4, size=2_500_000))
    with anyio.CancelScope() as scope:
        await report("d", jobs=3, storage=storage, progress=lambda done, total: scope.cancel())
    assert scope.cancelled_caught
    assert storage.open == 0


@pytest.mark.anyio
@pytest.mark.parametrize(("jobs", "error"), [(0, ValueError), (-1, ValueError), (True, TypeError), ("2", TypeError)])
async def test_invalid_number_of_jobs_is_rejected_before_opening(jobs: Any, error: type[Exception]) -> None:
    with pytest.raises(error, match="jobs must be "):
        await report("nowhere", jobs=jobs)


class Replaced(MemoryStorage):
    """Replaces each shard by another version when it is opened for the nth time."""

    def __init__(self, opening: int) -> None:
        super().__init__()
        self.opened: Counter[str] = Counter()
        self._opening = opening

    @asynccontextmanager
    async def open_source(self, key: str, **options: Any) -> AsyncIterator[Any]:
        self.opened[key] += key.endswith(".tfrecord")
        if self.opened[key] == self._opening:
            await self.put(key, bytes(await self.get(key)))
        async with super().open_source(key, **options) as source:
            yield source


@pytest.mark.anyio
async def test_report_rejects_shard_replaced_before_second_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("asyncrec_report.reading_ahead._AHEAD_RECORD", 1000)
    storage = Replaced(opening=2)
    for number in range(3):
        await asyncrec.write_records(f"d/{number}.tfrecord", [b"small"] * 9 + [bytes(2000)], storage=storage)
    storage.opened.clear()
    with pytest.raises(ObjectChangedError, match=r"0\.tfrecord"):
        await report("d", jobs=2, storage=storage, sample=None)


@pytest.mark.anyio
@pytest.mark.parametrize("jobs", [1, 2])
async def test_report_rejects_shard_replaced_between_stretches(jobs: int) -> None:
    storage = Replaced(opening=2)
    await written(rows(3000), storage=storage, max_shard_records=1500)
    storage.opened.clear()
    with pytest.raises(ObjectChangedError, match=r"\.tfrecord"):
        await report("pages", jobs=jobs, storage=storage, sample=500)


class TestVirtualClock:
    @pytest.fixture(params=["asyncio", "trio"])
    def anyio_backend(self, request: pytest.FixtureRequest) -> Any:
        return virtual_backend(request.param)

    @pytest.mark.anyio
    @pytest.mark.parametrize("read_ahead", [0, 16 << 20])
    async def test_eight_jobs_read_slow_store_eight_times_faster(self, read_ahead: int) -> None:
        inner = await folder(files=32)
        inner.read_ahead = read_ahead
        storage = SlowStorage(inner, latency=1)
        took = {}
        for jobs in (1, 8):
            before = anyio.current_time()
            assert (await report("d", jobs=jobs, storage=storage, sample=None)).read == 96
            took[jobs] = anyio.current_time() - before
        listing = 3
        assert took[1] > 64
        assert took[8] - listing < took[1] / 7


@pytest.mark.slow
@pytest.mark.anyio
@pytest.mark.parametrize("room", [1, 100, 20_000])
async def test_page_is_identical_with_room_below_one_block(room: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("asyncrec_report.reading_ahead._AHEAD_BYTES", room)
    monkeypatch.setattr("asyncrec_report.reading_ahead._BATCH_BYTES", 500)
    monkeypatch.setattr("asyncrec_report.reading._BLOCK_RECORDS", 7)
    storage = await written(rows(300), max_shard_records=40)
    with anyio.fail_after(60):
        assert (await one_page("pages", storage, sample=None)).read == 300
        assert (await one_page("pages", storage, sample=90)).read == 90


@pytest.mark.anyio
@pytest.mark.parametrize("compression", ["", "GZIP", "ZLIB"])
async def test_reread_part_yields_each_record_once(compression: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("asyncrec_report.reading_ahead._AHEAD_RECORD", 900)
    monkeypatch.setattr("asyncrec_report.reading._BLOCK_RECORDS", 4)
    storage = MemoryStorage()
    for number in range(6):
        records = [asyncrec.encode_example({"n": n, "body": bytes(n * 100 % (1100 + number))}) for n in range(40)]
        await asyncrec.write_records(f"d/{number}.tfrecord", records, compression=compression, storage=storage)
    content = await storage.get("d/4.tfrecord")
    await change(storage, "d/4.tfrecord", len(content) // 2)
    await storage.put("d/5.tfrecord", (await storage.get("d/5.tfrecord"))[:-7])
    found = await one_page("d", storage, sample=None)
    assert 160 < found.read < 240
    assert found.faults
    assert (await one_page("d", storage, sample=50)).read < 60


INTERRUPTED = """
import os, signal, sys
import anyio
from asyncrec_report import report

def interrupt(done, total):
    os.kill(os.getpid(), signal.SIGINT)

try:
    anyio.run(lambda: report(sys.argv[1], jobs=2, progress=interrupt))
except KeyboardInterrupt:
    print("interrupted")
"""


def test_ctrl_c_ends_report_without_traceback(tmp_path: Path) -> None:
    async def write() -> None:
        for number in range(8):
            await asyncrec.write_records(tmp_path / f"{number}.tfrecord", [bytes(1000)] * 3000)

    anyio.run(write)
    command = [sys.executable, "-W", "error", "-c", INTERRUPTED, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, timeout=300)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"interrupted\n", b"")


def test_report_command_writes_identical_page_for_any_jobs(run: Callable[..., Any], data: Path) -> None:
    pages = []
    for jobs in (1, 3):
        assert run("report", "data", "--jobs", jobs, "-o", "page.html").code == 0
        pages.append(re.sub(r"<footer>.*", "", Path("page.html").read_text("utf-8")))
    assert pages[0] == pages[1]
    assert run("report", "data", "-j", "0", "-o", "none.html").code == 2
    assert not os.path.exists("none.html")
