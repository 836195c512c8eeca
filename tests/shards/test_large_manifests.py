"""Neither reading a manifest of thousands of shards nor committing that many at once blocks the event loop.

The tests measure the CPU time of the loop's own thread, so that a busy machine does not affect them. The garbage
collector is disabled, because it would traverse the objects of the entire test run.
"""

from __future__ import annotations

import asyncio
import gc
from asyncio.events import Handle
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from time import thread_time

import pytest

import asyncrec
from asyncrec._shards.manifest.segment import Segment, ShardEntry, Sidecar
from asyncrec._shards.writing.open_job import open_job, whole_job_header
from asyncrec.storage._local.storage import LocalStorage

from .mortal import dies

pytestmark = pytest.mark.anyio

# Reading this many on the loop would take 150 ms, and collecting their names about 5 ms.
SHARDS = 8_000
MOST_SECONDS = 0.02
TIME = "2026-11-22T00:00:00.000000Z"


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"  # its callbacks can be timed individually


@pytest.fixture
def held(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[float]]:
    """Return a list to which the CPU seconds of each callback of the loop are appended."""
    seconds: list[float] = []
    run = Handle._run

    def timed(handle: Handle) -> None:
        began = thread_time()
        try:
            run(handle)
        finally:
            seconds.append(thread_time() - began)

    gc.disable()
    monkeypatch.setattr(asyncio.events.Handle, "_run", timed)
    yield seconds
    gc.enable()


def entry(number: int) -> ShardEntry:
    path = f"pages-early-{number:06d}.tfrecord"
    return ShardEntry(path=path, records=3, bytes=123, crc32c=number, end_crc32c=0, compression="", committed=TIME)


def dataset_of(folder: Path, entries: Iterable[ShardEntry]) -> Path:
    """Write a manifest that names these shards, whose files do not exist, and return the data set's path."""
    segment = Segment(writer="early", time=TIME, closed=True, add=tuple(entries))
    path = folder / "_manifest/pages/early-000001.jsonl"
    path.parent.mkdir(parents=True)
    path.write_bytes(segment.encode())
    return folder / "pages"


@pytest.fixture
def dataset(tmp_path: Path) -> Path:
    return dataset_of(tmp_path, map(entry, range(SHARDS)))


def longest(held: list[float]) -> float:
    found = max(held)
    held.clear()
    return found


@pytest.mark.slow
async def test_reading_and_appending_to_large_manifest_never_block_loop(dataset: Path, held: list[float]) -> None:
    async with asyncrec.open_sharded_writer(dataset) as writer:  # does all imports
        await writer.write(b"x")
    held.clear()
    assert len((await asyncrec.read_manifest(dataset)).shards) == SHARDS + 1
    assert longest(held) < MOST_SECONDS
    async with asyncrec.open_sharded_writer(dataset) as writer:
        await writer.write(b"x")
    assert longest(held) < MOST_SECONDS
    async with asyncrec.open_sharded_writer(dataset, mode="replace", num_shards=2) as writer:
        await writer.write(b"x")
    assert longest(held) < MOST_SECONDS
    assert len((await asyncrec.read_manifest(dataset)).shards) == 2


async def test_commit_of_thousands_of_shards_never_blocks_loop(tmp_path: Path, held: list[float]) -> None:
    storage = LocalStorage(tmp_path)
    header = whole_job_header(storage, "pages", writer="early", metadata={})
    async with open_job(storage, header, path="pages", mode="new") as job:
        entries = [entry(number) for number in range(SHARDS)]
        await asyncio.sleep(0)
        held.clear()
        await job.commit(entries)
        assert longest(held) < MOST_SECONDS
    assert longest(held) < MOST_SECONDS
    assert len((await asyncrec.read_manifest(tmp_path / "pages")).shards) == SHARDS


def with_sidecars_of_others(entry: ShardEntry) -> ShardEntry:
    """Return the shard with sidecar names as in a copy, which a writer of a different data set chose."""
    index, keys = (f"_{kind}/{entry.path.replace('early', 'source')}.{kind}" for kind in ("index", "keys"))
    return replace(entry, index=Sidecar(path=index, bytes=1, crc32c=1), keys=Sidecar(path=keys, bytes=1, crc32c=1))


@pytest.mark.slow
async def test_abandoning_writer_keeps_event_loop_responsive(tmp_path: Path, held: list[float]) -> None:
    dataset = dataset_of(tmp_path, map(with_sidecars_of_others, map(entry, range(3 * SHARDS))))
    await dies(LocalStorage(tmp_path), writer_id="dead")
    unlisted = tmp_path / "pages-dead-000000.tfrecord"
    unlisted.touch()
    await asyncio.sleep(0)
    held.clear()
    assert (await asyncrec.recover(dataset, abandon=["dead"])).abandoned == ("dead",)
    assert longest(held) < MOST_SECONDS
    assert not unlisted.exists()
