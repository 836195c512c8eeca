"""All jobs share one memory limit for data that is read ahead, and release it after use."""

from __future__ import annotations

import threading
import tracemalloc
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from asyncrec_report import reading_ahead, report
from report_pages import change, folder, written

import asyncrec
from asyncrec.storage import Storage
from asyncrec.storage._memory import MemoryStorage


@pytest.mark.slow
@pytest.mark.anyio
async def test_memory_grows_with_jobs_but_not_with_shards(tmp_path: Path) -> None:
    for number in range(8):
        await asyncrec.write_records(tmp_path / f"{number}.tfrecord", [bytes(1_000_000)] * 24)
    peaks = {}
    for jobs in (1, 4):
        tracemalloc.start()
        assert (await report(tmp_path, jobs=jobs, sample=None)).read == 192
        peaks[jobs] = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    assert peaks[1] < 24 << 20
    assert peaks[4] < 4 * (24 << 20)


async def peak(storage: Storage, jobs: int, reads: int) -> int:
    """Return the peak of Python's memory while a report is made."""
    tracemalloc.start()
    try:
        assert (await report("d", jobs=jobs, storage=storage, sample=None)).read == reads
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


MIB = 1 << 20


@pytest.fixture
def small_room(monkeypatch: pytest.MonkeyPatch) -> int:
    """Reduce the read-ahead limits to a thirty-second of their usual values; return the total limit."""
    ahead = "asyncrec_report.reading_ahead"
    monkeypatch.setattr(f"{ahead}._AHEAD_BYTES", 8 * MIB)
    monkeypatch.setattr(f"{ahead}._AHEAD_RECORD", MIB // 8)
    monkeypatch.setattr(f"{ahead}._BATCH_BYTES", MIB)
    monkeypatch.setattr("asyncrec_report.reading._BLOCK_BYTES", MIB // 16)
    return 8 * MIB


@pytest.mark.slow(but=["300"])
@pytest.mark.anyio
@pytest.mark.parametrize("compression", ["", "GZIP"])
@pytest.mark.parametrize("small", [0, 300])
async def test_large_records_are_not_buffered_by_every_job(small_room: int, compression: Any, small: int) -> None:
    size = 6 * MIB
    storage = MemoryStorage()
    for number in range(6):
        records = [*[bytes(100)] * small, *[bytes([number]) * size] * 2]
        await asyncrec.write_records(f"d/{number}.tfrecord", records, compression=compression, storage=storage)
    alone = await peak(storage, 1, 6 * (small + 2))
    assert await peak(storage, 6, 6 * (small + 2)) < alone + 2 * size


@pytest.mark.slow
@pytest.mark.anyio
@pytest.mark.parametrize("read_ahead", [0, 2 * MIB])
@pytest.mark.parametrize(
    "record", [bytes(MIB // 16), asyncrec.encode_example({"n": [1] * 30_000})], ids=["opaque", "integers"]
)
async def test_read_ahead_memory_does_not_grow_with_jobs(small_room: int, read_ahead: int, record: bytes) -> None:
    storage = MemoryStorage()
    storage.read_ahead = read_ahead
    each = MIB // len(record)
    for number in range(24):
        await asyncrec.write_records(f"d/{number}.tfrecord", [record] * each, storage=storage)
    alone = await peak(storage, 1, 24 * each)
    readers = 24 * (MIB // 2)
    assert await peak(storage, 24, 24 * each) < alone + small_room + readers


@pytest.fixture
def rooms(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Return a list of the shared limits as they are created."""
    made: list[Any] = []

    class Noted(reading_ahead._Room):
        def __init__(self, limit: int) -> None:
            super().__init__(limit)
            made.append(self)

    monkeypatch.setattr(reading_ahead, "_Room", Noted)
    return made


@pytest.mark.anyio
@pytest.mark.parametrize("sample", [None, 130])
async def test_report_releases_all_buffer_space(
    rooms: list[Any], monkeypatch: pytest.MonkeyPatch, sample: int | None
) -> None:
    monkeypatch.setattr("asyncrec_report.reading._BLOCK_RECORDS", 7)
    monkeypatch.setattr("asyncrec_report.reading_ahead._AHEAD_RECORD", 900)
    storage = await written([{"body": bytes(n % 1000), "n": [n] * (n % 9)} for n in range(700)], max_shard_records=100)
    names = [shard.path for shard in (await asyncrec.read_manifest("pages", storage=storage)).shards]
    await change(storage, names[1], 30)
    await storage.put(names[2], (await storage.get(names[2]))[:-5])
    await storage.delete(names[4])
    assert (await report("pages", jobs=3, storage=storage, sample=sample)).faults
    assert [room.used for room in rooms] == [0]


@pytest.mark.anyio
async def test_large_batches_are_counted_off_event_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    counted: list[int] = []
    on_loop: list[int] = []
    loop = threading.get_ident()
    bytes_of = reading_ahead._bytes_of

    def noted(strings: Sequence[bytes]) -> int:
        (on_loop if threading.get_ident() == loop else counted).append(len(strings))
        return bytes_of(strings)

    monkeypatch.setattr(reading_ahead, "_bytes_of", noted)
    storage = MemoryStorage()
    await asyncrec.write_records("d/0.tfrecord", [b""] * 100_000, compression="GZIP", storage=storage)
    assert (await report("d", jobs=2, storage=storage, sample=None)).read == 100_000
    assert max(counted) > 10_000
    assert max(on_loop) <= 2048


@pytest.mark.anyio
async def test_report_holds_one_block_without_read_ahead_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("asyncrec_report.reading_ahead._AHEAD_BYTES", 1)
    monkeypatch.setattr("asyncrec_report.reading._BLOCK_RECORDS", 7)
    held: list[int] = []
    counted = reading_ahead._Ahead.counted

    def noted(self: reading_ahead._Ahead) -> None:
        held.append(len(self._given))
        counted(self)

    monkeypatch.setattr(reading_ahead._Ahead, "counted", noted)
    assert (await report("d", jobs=3, storage=await folder(records=70), sample=None)).read == 560
    assert held == [1] * 80
