"""The cost of opening and committing to a data set whose manifest lists a million shards and 2,000 writers.

    python tests/benchmarks/manifests.py                                   some minutes, 0.7 GiB in a temporary folder
    python tests/benchmarks/manifests.py --shards 100000 --writers 200

Each row is measured in a separate process. Memory is the peak of its resident set, including Python, numpy and
asyncrec. "held" is the maximum delay of a task that tries to run every millisecond; the same figure is shown for an
idle event loop. The far store is the same folder, with 20 ms before each response, and lists of 1,000 keys per request.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random
from typing import Any

import anyio
from heartbeat import Heartbeat, idle_figures

import asyncrec
from asyncrec import tools
from asyncrec._shards.commit.manifest_writer import ManifestWriter
from asyncrec._shards.manifest.names import index_key, keys_key, rolling_shard_name, segment_key
from asyncrec._shards.manifest.segment import Segment, ShardEntry, Sidecar, format_time
from asyncrec.storage import ObjectInfo
from asyncrec.storage._local.storage import LocalStorage

DELAY = 0.020
PAGE = 1000
BEGAN = 1_760_000_000


class FarStorage(LocalStorage):
    """A folder as a store with slow responses that counts requests."""

    requests = 0
    read_ahead = 4 << 20

    async def _ask(self) -> None:
        FarStorage.requests += 1
        await anyio.sleep(DELAY)

    async def list_objects(self, prefix: str = "", *, start_after: str = "") -> AsyncIterator[ObjectInfo]:
        await self._ask()
        listed = 0
        async for info in super().list_objects(prefix, start_after=start_after):
            if listed and listed % PAGE == 0:
                await self._ask()
            listed += 1
            yield info

    @asynccontextmanager
    async def open_source(self, key: str, **options: Any) -> AsyncIterator[Any]:  # type: ignore[override]
        await self._ask()
        async with super().open_source(key, **options) as source:
            yield source

    @asynccontextmanager
    async def open_sink(self, key: str, **options: Any) -> AsyncIterator[Any]:  # type: ignore[override]
        async with super().open_sink(key, **options) as sink:
            yield sink
            await self._ask()

    async def head(self, key: str) -> ObjectInfo:
        await self._ask()
        return await super().head(key)


def entries_of(writer: str, count: int, source: Random) -> tuple[ShardEntry, ...]:
    entries = []
    for number in range(count):
        name = rolling_shard_name("pages", writer, number)
        records = source.randrange(20_000, 40_000)
        at = BEGAN + 600 * number + source.random()
        entries.append(
            ShardEntry(
                path=name,
                records=records,
                bytes=source.randrange(200 << 20, 256 << 20),
                crc32c=source.getrandbits(32),
                end_crc32c=0,
                compression="GZIP",
                index=Sidecar(path=index_key(name), bytes=records * 20, crc32c=source.getrandbits(32)),
                keys=Sidecar(path=keys_key(name), bytes=records * 16, crc32c=source.getrandbits(32)),
                first=format_time(at),
                last=format_time(at + 590),
                committed=format_time(at + 595),
            )
        )
    return tuple(entries)


async def make(path: Path, shards: int, writers: int) -> dict[str, Any]:
    """Write closing segments as writers leave them that have ended; no shard is needed for opening."""
    folder, source = LocalStorage(path.parent), Random(1)
    began = time.perf_counter()
    for number in range(writers):
        writer = f"{BEGAN + number:08x}{source.getrandbits(24):06x}"
        entries = entries_of(writer, shards // writers, source)
        time_of_end = format_time(BEGAN + 1_000_000 + number)
        closing = Segment(writer=writer, time=time_of_end, add=entries, metadata={"crawl": "2026-11"}, closed=True)
        await folder.put(segment_key("pages", writer, 1), closing.encode())
    return {"seconds": time.perf_counter() - began}


async def compact(path: Path) -> dict[str, Any]:
    async with Heartbeat() as heartbeat:
        began = time.perf_counter()
        report = await tools.compact(path, manifest_only=True)
        seconds = time.perf_counter() - began
    size = Path(report.checkpoint or "").stat().st_size
    return {"seconds": seconds, "merged": report.merged, "checkpoint MB": size / 1e6, **heartbeat.figures()}


async def open_(path: Path, *, far: bool) -> dict[str, Any]:
    storage = FarStorage(path.parent) if far else LocalStorage(path.parent)
    async with Heartbeat() as heartbeat:
        began = time.perf_counter()
        async with asyncrec.open_dataset(path.name, storage=storage) as dataset:
            seconds = time.perf_counter() - began
            records, shards = len(dataset), len(dataset.manifest.shards)
    began = time.perf_counter()
    for number in range(0, shards, shards // 1000):
        _ = dataset.manifest.shards[number].index
    each = (time.perf_counter() - began) / 1000
    return {
        "seconds": seconds,
        "shards": shards,
        "records": records,
        "us an entry": each * 1e6,
        **({"requests": FarStorage.requests} if far else {}),
        **heartbeat.figures(),
    }


async def commit(path: Path, *, far: bool) -> dict[str, Any]:
    """Measure commits: once a writer is open, it does not check what is stored."""
    storage = FarStorage(path.parent) if far else LocalStorage(path.parent)
    writer = ManifestWriter(storage, path.name, f"bench{time.time_ns()}")
    (entry, *_) = entries = entries_of("bench", 101, Random(2))
    await writer.commit(entry)
    before, began = FarStorage.requests, time.perf_counter()
    for entry in entries[1:]:
        await writer.commit(entry)
    seconds = (time.perf_counter() - began) / 100
    for file in (path.parent / "_manifest" / path.name).glob("bench*"):
        file.unlink()
    return {"ms a commit": seconds * 1e3, **({"requests": (FarStorage.requests - before) / 100} if far else {})}


async def step(what: str, path: Path, shards: int, writers: int) -> dict[str, Any]:
    match what:
        case "make":
            return await make(path, shards, writers)
        case "compact":
            return await compact(path)
        case "without" | "near" | "far":
            return await open_(path, far=what == "far")
        case _:
            return await commit(path, far=what.endswith("far"))


ROWS = {
    "make": "the segments are made",
    "without": "opened without a checkpoint",
    "compact": "asyncrec compact --manifest",
    "near": "opened, local disk",
    "far": "opened, 20 ms a request",
    "commit": "a commit to it, local disk",
    "commit far": "a commit to it, 20 ms a request",
    "empty": "a commit to an empty one, local disk",
    "empty far": "a commit to an empty one, 20 ms a request",
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--shards", type=int, default=1_000_000)
    parser.add_argument("--writers", type=int, default=2000)
    parser.add_argument("--folder", type=Path, help="keep the data set here, and use it again")
    parser.add_argument("--only", nargs="*", default=list(ROWS), choices=list(ROWS))
    parser.add_argument("--step", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.step:
        path = args.folder / ("nothing" if args.step.startswith("empty") else "pages")
        found = anyio.run(step, args.step, path, args.shards, args.writers)
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        print(json.dumps({**found, "CPU s of the process": time.process_time(), "peak MiB": peak}))
        return
    with tempfile.TemporaryDirectory() as temporary:
        folder = args.folder or Path(temporary)
        idle = idle_figures()
        print(f"{args.shards:,} shards, {args.writers:,} writers; an idle loop is held {idle['held_max'] * 1e3:.1f} ms")
        for what, title in ROWS.items():
            if what not in args.only:
                continue
            command = [sys.executable, __file__, "--step", what, "--folder", str(folder)]
            command += ["--shards", str(args.shards), "--writers", str(args.writers)]
            found = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
            for key in ("held_p99", "held_max"):
                if key in found:
                    found[f"{key.replace('_', ' ')} ms"] = found.pop(key) * 1e3
            print(f"{title:44}" + ", ".join(f"{key} {value:,.1f}" for key, value in found.items()), flush=True)


if __name__ == "__main__":
    main()
