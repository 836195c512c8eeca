"""Opening, random access and shuffling on local files: figures for the promises of `asyncrec.open_dataset`.

    python tests/benchmarks/random_access.py            some two minutes, 0.5 GiB in a temporary folder
    python tests/benchmarks/random_access.py --quick

The library itself writes the shards and manifests. Memory is the growth of the resident set since the data set was
opened, by the kernel's own peak counter.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import anyio
from harness import MIB, _reset_peak, _status

import asyncrec
from asyncrec._shards.manifest.names import index_key, rolling_shard_name, segment_key
from asyncrec._shards.manifest.segment import Segment, ShardEntry, Sidecar, format_time
from asyncrec.storage._local.storage import LocalStorage

SIZE = 1024


async def make_manifest(folder: Path, shards: int) -> None:
    """Write a manifest with this many shards, as by a closed writer; no shard is needed for opening."""
    names = [rolling_shard_name("pages", "w", number) for number in range(shards)]
    now = format_time(0)
    entries = tuple(
        ShardEntry(
            path=name,
            records=1000 + number % 7,
            bytes=256 * MIB,
            crc32c=number,
            end_crc32c=0,
            compression="GZIP",
            index=Sidecar(path=index_key(name), bytes=20_000, crc32c=number),
            first=now,
            last=now,
            committed=now,
        )
        for number, name in enumerate(names)
    )
    segment = Segment(writer="w", time=now, add=entries, closed=True)
    await LocalStorage(folder).put(segment_key("pages", "w", 1), segment.encode())


async def make_shards(path: Path, *, records: int, shards: int, compression: str) -> None:
    source = Random(1)
    async with asyncrec.open_sharded_writer(
        path, max_shard_records=-(-records // shards), compression=compression
    ) as writer:
        for _ in range(0, records, 1000):
            await writer.write_many(source.randbytes(SIZE // 2) + bytes(SIZE // 2) for _ in range(1000))


async def opening(folder: Path, shards: int) -> None:
    await make_manifest(folder, shards)
    times = []
    for _ in range(3):
        began = time.perf_counter()
        async with asyncrec.open_dataset(folder / "pages") as dataset:
            times.append(time.perf_counter() - began)
            count = len(dataset)
    print(f"open {shards:,} shards, {count:,} records: {min(times):.2f} s  (target: under 2 s)")


async def access(path: Path) -> None:
    source = Random(2)
    async with asyncrec.open_dataset(path) as dataset:
        count = len(dataset)
        await dataset.get_many(range(0, count, count // 200))  # to load the indexes
        wanted = [source.randrange(count) for _ in range(500)]
        began = time.perf_counter()
        for number in wanted:
            await dataset.get(number)
        print(f"  get: {(time.perf_counter() - began) / len(wanted) * 1e6:.0f} us a record")
        for many in (64, 4096):
            rounds = max(1, 8192 // many)
            began = time.perf_counter()
            for _ in range(rounds):
                await dataset.get_many([source.randrange(count) for _ in range(many)])
            each = (time.perf_counter() - began) / rounds / many
            print(f"  get_many({many:,} random): {each * 1e6:.1f} us a record")
        began = time.perf_counter()
        for first in range(0, count, 8192):
            await dataset.get_many(range(first, min(count, first + 8192)))
        print(f"  get_many(8,192 neighbours): {(time.perf_counter() - began) / count * 1e6:.2f} us a record")


async def shuffling(path: Path, **options: Any) -> None:
    async with asyncrec.open_dataset(path) as dataset:
        await dataset.get(0)  # loads the modules that are imported late
        _reset_peak()
        before = _status("VmRSS")
        began = time.perf_counter()
        async with dataset.shuffled(seed=1, **options) as stream:
            count = 0
            async for records in stream.batches(256):
                count += len(records)
        seconds = time.perf_counter() - began
        grown = (_status("VmHWM") - before) / MIB
        shown = ", ".join(f"{name}={value}" for name, value in options.items())
        print(f"  shuffled({shown}): {seconds / max(1, count) * 1e6:.2f} us a record, memory +{grown:.0f} MiB")


async def main(quick: bool) -> None:
    records = 50_000 if quick else 400_000
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        await opening(folder / "many", 10_000)
        for compression in ("", "GZIP"):
            path = folder / f"data{compression}" / "pages"
            await make_shards(path, records=records, shards=100 if quick else 1000, compression=compression)
            print(f"{records:,} records of {SIZE} B in {100 if quick else 1000} shards, {compression or 'plain'}")
            await access(path)
            for mode in ("block", "buffer", "global"):
                # Random access to compressed members is inherently slow, as the earlier figures show.
                if not (compression and mode == "global"):
                    alone(path, mode=mode)
            alone(path, mode="block", worker=(0, 4))


def alone(path: Path, **options: Any) -> None:
    """Run `shuffling` in a separate process, so that only its own memory is measured."""
    command = [sys.executable, __file__, "--shuffle", str(path), json.dumps(options)]
    print(subprocess.run(command, check=True, capture_output=True, text=True).stdout, end="")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="an eighth of the records, a tenth of the shards")
    parser.add_argument("--shuffle", nargs=2, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.shuffle:
        where, options = arguments.shuffle
        anyio.run(partial(shuffling, Path(where), **json.loads(options)))
    else:
        anyio.run(main, arguments.quick)
