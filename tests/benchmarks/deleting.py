"""The cost of deleting records: 1,000 keys, each in a different shard, and the same number in a single shard.

First, the data set is written and merged: by default, 10 million records of 200 B in 1,000 shards. Then each deletion
runs in its own process, and its time, memory, and bytes read and written are shown (`/proc/self/io`: Linux). A
thousandth of the deleted records is searched for in every byte of the folder::

    python tests/benchmarks/deleting.py --folder .
    python tests/benchmarks/deleting.py --folder . --shards 10
"""

from __future__ import annotations

import argparse
import hashlib
import shutil
import subprocess
import sys
import time
from collections.abc import Iterable
from pathlib import Path

import anyio
from harness import MIB

SHARD, KEYS = 10_000, 1_000


def key_of(number: int) -> str:
    return f"https://example.org/page/{number}"


def record_of(number: int) -> bytes:
    return b"%09d:" % number * 20


async def make(path: Path, records: int) -> None:
    import asyncrec
    from asyncrec import tools

    async with asyncrec.open_sharded_writer(path, max_shard_records=SHARD, on_duplicate="write") as writer:
        for number in range(records):
            await writer.write(record_of(number), key=key_of(number))
    await tools.compact(path, manifest_only=True)


def delete(path: Path, numbers: Iterable[int]) -> None:
    """Delete in its own process, and print the time and memory used."""
    from asyncrec import blocking

    def moved() -> dict[str, int]:
        lines = Path("/proc/self/io").read_text().splitlines()
        return {name: int(value) for name, value in (line.split(": ") for line in lines)}

    before, began = moved(), time.perf_counter()
    report = blocking.delete(path, keys=[key_of(number) for number in numbers])
    seconds, after = time.perf_counter() - began, moved()
    # Unlike this, `getrusage` would include the memory of the parent when it started this process.
    peak = int(Path("/proc/self/status").read_text().partition("VmHWM:")[2].split()[0]) >> 10
    read, written = ((after[name] - before[name]) / MIB for name in ("rchar", "wchar"))
    print(
        f"{report.records:,} records of {report.shards:,} shards ({report.bytes / MIB:,.0f} MiB): {seconds:.1f} s, "
        f"read {read:,.0f} MiB, wrote {written:,.0f} MiB, peak {peak:,} MiB, {len(report.deletions)} commits",
        flush=True,
    )


def traces(folder: Path, numbers: Iterable[int]) -> int:
    """Return the number of files that still contain a trace of these records."""
    wanted = [
        each
        for number in numbers
        for each in (record_of(number), hashlib.blake2b(key_of(number).encode(), digest_size=16).digest())
    ]
    files = [path.read_bytes() for path in folder.rglob("*") if path.is_file()]
    return sum(any(each in content for each in wanted) for content in files)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, required=True, help="on a disk")
    parser.add_argument("--shards", type=int, default=1000)
    parser.add_argument("--delete", nargs=3, type=int, help=argparse.SUPPRESS)
    given = parser.parse_args()
    folder: Path = given.folder / "deleting"
    path = folder / "pages"
    if given.delete is not None:
        delete(path, range(*given.delete))
        return
    total = given.shards * SHARD
    try:
        anyio.run(make, path, total)
        for numbers in (range(SHARD // 2, total, total // KEYS), range(KEYS)):
            part = ["--delete", *map(str, (numbers.start, numbers.stop, numbers.step))]
            subprocess.run([sys.executable, __file__, "--folder", str(given.folder), *part], check=True)
            print(f"files with something of them: {traces(folder, numbers[:: KEYS // 10])}", flush=True)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
