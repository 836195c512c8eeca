"""Processes that share a cache request each piece only once between them, even if one of them is killed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from asyncrec import blocking
from tests.storage.counted_store import CountedStorage, asked

ROOT = Path(__file__).parent.parent.parent
# Two and a half cache pieces per shard.
RECORDS = [bytes([number]) * (1 << 20) for number in range(40)]

READER = """
import sys, json, hashlib, anyio, asyncrec
from tests.storage.counted_store import CountedStorage
how, folder, cache, log, number, of = *sys.argv[1:5], *map(int, sys.argv[5:7])

async def main():
    storage = CountedStorage(folder, log)
    found = []
    if how == "shuffled":
        async with asyncrec.open_dataset("pages", storage=storage, cache=cache) as dataset:
            print("ready", flush=True)
            sys.stdin.readline()
            async with dataset.shuffled(seed=1, worker=(number, of), uneven="pad") as stream:
                async for records in stream.batches(2):
                    found += [record[0] for record in records]
    else:
        paths = await asyncrec.list_shards("pages", storage=storage)
        print("ready", flush=True)
        sys.stdin.readline()
        async with asyncrec.interleave(paths, worker=(number, of), storage=storage, cache=cache) as stream:
            found += [record[0] async for record in stream]
    print(json.dumps(found))

anyio.run(main)
"""

HANGING = """
import sys, anyio, asyncrec
from contextlib import asynccontextmanager
from tests.storage.counted_store import CountedStorage

class Hanging(CountedStorage):
    @asynccontextmanager
    async def open_source(self, key, **options):
        async with super().open_source(key, **options) as source:
            if key.endswith(".tfrecord") and options.get("start"):
                receive, received = source.receive, []

                async def receive_once(size):
                    if received:
                        print("hangs", flush=True)
                        await anyio.sleep_forever()
                    received.append(await receive(1 << 20))
                    return received[0]

                source.receive = receive_once
            yield source

async def main():
    folder, cache, log = sys.argv[1:]
    async with asyncrec.open_dataset("pages", storage=Hanging(folder, log), cache=cache) as dataset:
        await dataset.get(0)
        await dataset.get(10)

anyio.run(main)
"""


@pytest.fixture
def store(tmp_path: Path) -> Path:
    with blocking.open_sharded_writer(tmp_path / "store" / "pages", max_shard_records=20) as writer:
        writer.write_many(RECORDS)
    return tmp_path


def started(program: str, *arguments: object) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", program, *map(str, arguments)],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def read_by(count: int, how: str, base: Path, cache: str) -> list[int]:
    """Return the numbers of records that ``count`` concurrent processes read."""
    processes = [started(READER, how, base / "store", base / cache, base / "log", n, count) for n in range(count)]
    found = []
    for process in processes:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("\n")
        process.stdin.flush()
    for process in processes:
        found += json.loads(process.communicate()[0])
        assert process.returncode == 0
    return found


@pytest.mark.parametrize("count", [2, pytest.param(16, marks=pytest.mark.slow)])
def test_many_processes_share_all_requests_except_listing(store: Path, count: int) -> None:
    assert sorted(read_by(1, "shuffled", store, "one")) == list(range(40))
    alone = asked(store / "log")
    listing = [line for line in alone if line.startswith("LIST")]
    assert max(alone.values()) == 1
    assert sum(" pages-" in line for line in alone) == 6, "two shards of three pieces"
    assert len(listing) == 1
    assert set(read_by(count, "shuffled", store, "many")) == set(range(40))
    together = asked(store / "log")
    assert together == alone | {listing[0]: count}
    read_by(count, "shuffled", store, "many")
    assert asked(store / "log") == {listing[0]: count}, "all else is in the cache"


def test_interleaving_processes_request_each_piece_once(store: Path) -> None:
    assert sorted(read_by(2, "interleave", store, "cache")) == list(range(40))
    first = asked(store / "log")
    assert sum(line.startswith("GET pages-") for line in first.elements()) == 6
    assert sorted(read_by(2, "interleave", store, "cache")) == list(range(40))
    assert not any(line.startswith("GET pages-") for line in asked(store / "log"))


def test_killed_process_leaves_finished_pieces_in_cache(store: Path) -> None:
    cache = store / "cache"
    process = started(HANGING, store / "store", cache, store / "log")
    assert process.stdout is not None
    assert process.stdout.readline() == "hangs\n"
    os.kill(process.pid, signal.SIGKILL)
    process.communicate()
    assert sum(line.startswith("GET pages-") for line in asked(store / "log").elements()) == 2
    assert not list(cache.glob("*.tfrecord"))
    counted = CountedStorage(store / "store", store / "log")
    with blocking.open_dataset("pages", storage=counted, cache=cache) as dataset:
        assert dataset.get_many(range(20)) == RECORDS[:20]
        size = dataset.manifest.shards[0].bytes
    again = [line for line in asked(store / "log").elements() if line.startswith("GET pages-")]
    assert len(again) == 2, "of three pieces the first was whole"
    assert [path.stat().st_size for path in cache.glob("*.tfrecord")] == [size]
