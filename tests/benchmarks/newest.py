"""The cost of finding the newest version of each key, before the first batch of an epoch and for a look-up.

The data set is written first: by default, 10 million records of about 200 B in 1,000 shards. Of every ten records,
``--again`` are new versions of earlier keys. Then a process opens it and reads the first batch of an epoch, with and
without ``newest=``; its time, memory, and bytes read and written are shown (`/proc/self/io`: Linux)::

    python tests/benchmarks/newest.py --folder .
    python tests/benchmarks/newest.py --folder . --shards 10 --again 10
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import anyio
from harness import MIB

SHARD = 10_000


def key_of(number: int, again: int) -> str:
    """Return a record's key: of every ten records, the last ``again`` repeat keys of the ten before."""
    old = number % 10 >= 10 - again and number >= 10
    return f"https://example.org/page/{number - 10 if old and number // 10 % 2 else number}"


async def make(path: Path, records: int, again: int, *, compact: bool) -> None:
    import asyncrec
    from asyncrec import tools

    template = asyncrec.encode_example({"date": b"2026-11-%08d" % 0, "body": b"." * 150})
    begin, end = template.split(b"%08d" % 0)
    async with asyncrec.open_sharded_writer(path, max_shard_records=SHARD, on_duplicate="write") as writer:
        for number in range(records):
            await writer.write(begin + b"%08d" % number + end, key=key_of(number, again))
    if compact:
        await tools.compact(path, manifest_only=True)


async def read(path: Path, newest: str | None, again: int) -> None:
    """Read in its own process, and print the time and memory used."""
    import asyncrec

    def moved() -> dict[str, int]:
        lines = Path("/proc/self/io").read_text().splitlines()
        return {name: int(value) for name, value in (line.split(": ") for line in lines)}

    def peak() -> int:
        # Unlike this, `getrusage` would include the memory of the parent when it started this process.
        return int(Path("/proc/self/status").read_text().partition("VmHWM:")[2].split()[0]) >> 10

    async with asyncrec.open_dataset(path, newest=newest) as dataset:
        opened, before, began, cpu = peak(), moved(), time.perf_counter(), time.process_time()
        async with dataset.shuffled(seed=1) as stream:
            entered, held, after = time.perf_counter() - began, peak(), moved()
            cpu = time.process_time() - cpu
            await anext(stream.batches(256))
            first = time.perf_counter() - began
        chosen = await dataset.chosen()
        looked = time.perf_counter()
        await dataset.get_by_key(key_of(len(dataset) - 1, again))
        looked = time.perf_counter() - looked
    count = len(dataset) if chosen is None else len(chosen)
    read, written = ((after[name] - before[name]) / MIB for name in ("rchar", "wchar"))
    print(
        f"newest={newest!r}: {count:,} of {len(dataset):,} records; entered in {entered:.1f} s ({cpu:.1f} s of CPU), "
        f"the first batch at {first:.1f} s; read {read:,.0f} MiB, wrote {written:,.0f} MiB; peak {held:,} MiB, "
        f"{opened:,} before; a look-up by key behind it {looked:.1f} s, peak {peak():,} MiB",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, required=True, help="on a disk")
    parser.add_argument("--shards", type=int, default=1000)
    parser.add_argument("--again", type=int, default=1, help="of each ten records, 0 to 10 (default: 1)")
    parser.add_argument("--compact", action="store_true", help="read the keys from runs")
    parser.add_argument("--read", help=argparse.SUPPRESS)
    given = parser.parse_args()
    path: Path = given.folder / "newest" / "pages"
    if given.read is not None:
        anyio.run(read, path, given.read or None, given.again)
        return
    try:
        begun = time.perf_counter()
        anyio.run(lambda: make(path, given.shards * SHARD, given.again, compact=given.compact))
        print(f"made in {time.perf_counter() - begun:.0f} s; temporary files in {tempfile.gettempdir()}", flush=True)
        for newest in ("", "date"):
            part = ["--folder", str(given.folder), "--again", str(given.again), f"--read={newest}"]
            subprocess.run([sys.executable, __file__, *part], check=True)
    finally:
        shutil.rmtree(path.parent, ignore_errors=True)


if __name__ == "__main__":
    main()
