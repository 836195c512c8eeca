"""Joining small shards, compared with `reshard`, which writes the same records as a new data set::

    python tests/benchmarks/compacting.py --folder .
    python tests/benchmarks/compacting.py --folder . --shards 1000

Each runs in its own process, on its own freshly written copy. The times of several rounds are shown, because the
machine may be busy.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import time
from pathlib import Path

import anyio
from harness import MIB

RECORDS, SIZE = 105, 1000


async def make(path: Path, shards: int) -> None:
    import asyncrec

    async with asyncrec.open_sharded_writer(path, max_shard_records=RECORDS, on_duplicate="write") as writer:
        for number in range(shards * RECORDS):
            await writer.write(b"%09d:" % number * (SIZE // 10), key=f"https://example.org/page/{number}")


def work(what: str, path: Path) -> None:
    """Do the work in its own process, and print the time and memory used."""
    from asyncrec import blocking, tools

    cpu, began = time.process_time(), time.perf_counter()
    if what == "reshard":
        size = anyio.run(tools.reshard, path, path.with_name("resharded")).bytes
    else:
        report = blocking.compact(path)
        size = report.rewritten
        assert report.into == report.shards, "all was joined"
    seconds, cpu = time.perf_counter() - began, time.process_time() - cpu
    # Unlike this, `getrusage` would include the memory of the parent when it started this process.
    peak = int(Path("/proc/self/status").read_text().partition("VmHWM:")[2].split()[0]) >> 10
    print(
        f"{what}: {seconds:.1f} s ({size / MIB / seconds:,.0f} MiB/s), {cpu:.1f} s of the processor, peak {peak:,} MiB",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, required=True, help="on a disk")
    parser.add_argument("--shards", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--work", help=argparse.SUPPRESS)
    given = parser.parse_args()
    folder: Path = given.folder / "compacting"
    path = folder / "pages"
    if given.work is not None:
        work(given.work, path)
        return
    try:
        for _ in range(given.rounds):
            anyio.run(make, path, given.shards)
            print(f"{given.shards:,} shards of {RECORDS} records of {SIZE} B, with keys", flush=True)
            for what in ("reshard", "compact"):  # in this order, because the second changes the data set
                command = [sys.executable, __file__, "--folder", str(given.folder), "--work", what]
                subprocess.run(command, check=True)
            shutil.rmtree(folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
