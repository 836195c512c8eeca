"""A million examples of 1 KiB through `DatasetWriter`: time, peak memory and open files, in a fresh process.

    python tests/benchmarks/dataset_writer.py [--examples 1000000] [--json FILE]

`make bench` runs it with its other memory figures. Memory is the growth of the resident set since asyncrec was
imported. Exits with 1 if a limit is exceeded: 300 MiB, 64 open files.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from harness import MIB, _reset_peak, _status

MOST_MEMORY = 300 * MIB
MOST_FILES = 64


def measure(examples: int, folder: Path) -> dict[str, Any]:
    """Write and read back, in its own process."""
    import anyio

    import asyncrec
    from asyncrec._datasets.from_generator import writer  # noqa: F401  # imported before the memory is looked at

    payload = random.Random(0).randbytes(2 * MIB)
    count = payload_bytes = files = 0
    ended = threading.Event()

    def generate(split: str) -> Iterator[tuple[int, dict[str, Any]]]:
        for i in range(examples):
            start = i * 37 % MIB
            yield i, {"id": i, "data": payload[start : start + 1000]}

    def watch() -> None:
        nonlocal files
        while not ended.wait(0.01):
            files = max(files, len(os.listdir("/proc/self/fd")))

    async def main() -> dict[str, Any]:
        nonlocal count, payload_bytes
        job = asyncrec.DatasetWriter(
            generate, None, folder / "data", "train", examples, temporary_folder=folder / "tmp"
        )
        begun = time.perf_counter()
        await job.cache_records()
        cached = time.perf_counter()
        _, payload_bytes = await job.flush_records()
        written = time.perf_counter()
        peak = _status("VmHWM") - before
        async with asyncrec.open_split(folder / "data", "train") as reader:
            async for batch in reader.batches():
                count += len(batch)
        return {
            "examples": examples,
            "payload_bytes": payload_bytes,
            "shards": len(await asyncrec.list_shards(folder / "data" / "train")),
            "cache_seconds": cached - begun,
            "write_seconds": written - cached,
            "read_seconds": time.perf_counter() - written,
            "peak_memory": peak,
        }

    watcher = threading.Thread(target=watch)
    watcher.start()
    _reset_peak()
    before = _status("VmRSS")
    try:
        result = anyio.run(main)
    finally:
        ended.set()
        watcher.join()
    if count != examples:
        raise ValueError(f"read {count} records of {examples}")
    return {**result, "open_files": files}


def in_fresh_process(examples: int, folder: Path) -> dict[str, Any]:
    command = [sys.executable, __file__, "--examples", str(examples), "--measure", str(folder)]
    result: dict[str, Any] = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    return result


def report(folder: Path, *, quick: bool) -> tuple[list[dict[str, object]], list[str]]:
    """Return a row for the table of peak memory, and the limits that were exceeded."""
    target = folder / "dataset-writer"
    target.mkdir()
    result = in_fresh_process(50_000 if quick else 1_000_000, target)
    job = f"DatasetWriter, {result['examples']:,} x 1 KiB, {result['open_files']} open files"
    row: dict[str, object] = {"job": job, "large": result["peak_memory"], "limit": MOST_MEMORY}
    kept = result["peak_memory"] <= MOST_MEMORY and result["open_files"] <= MOST_FILES
    limits = f"limits {MOST_MEMORY // MIB} MiB, {MOST_FILES} files"
    return [row], [] if kept else [f"{job}: {result['peak_memory'] / MIB:.0f} MiB; {limits}"]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--examples", type=int, default=1_000_000)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--measure", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.measure:
        print(json.dumps(measure(options.examples, options.measure)))
        return 0
    with tempfile.TemporaryDirectory() as folder:
        result = in_fresh_process(options.examples, Path(folder))
    if options.json:
        options.json.write_text(json.dumps(result, indent=2) + "\n")
    examples, seconds = result["examples"], result["cache_seconds"] + result["write_seconds"]
    print(f"{examples:,} examples, {result['payload_bytes'] / MIB:,.0f} MiB, {result['shards']} shards")
    print(f"  generate, encode, shuffle  {result['cache_seconds']:8.1f} s")
    print(f"  sort, write                {result['write_seconds']:8.1f} s   ({examples / seconds:,.0f} examples/s)")
    print(f"  read back                  {result['read_seconds']:8.1f} s")
    print(f"  peak memory                {result['peak_memory'] / MIB:8.0f} MiB (limit {MOST_MEMORY // MIB})")
    print(f"  most open files            {result['open_files']:8}     (limit {MOST_FILES})")
    return int(result["peak_memory"] > MOST_MEMORY or result["open_files"] > MOST_FILES)


if __name__ == "__main__":
    sys.exit(main())
