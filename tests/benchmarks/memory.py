"""Peak memory: the same for 64 MiB and for 2 GiB, and within the given limit.

Each figure comes from a fresh process, and is the growth of its resident set since asyncrec was imported and the source
records were made (4 KiB each, unless stated otherwise).
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from harness import MIB, _reset_peak, _status

SMALL, LARGE = 64 * MIB, 2048 * MIB
OPEN_SHARDS = 64
MEMORY_LIMIT = 128 * MIB


def _records(size: int = 4096) -> list[bytes]:
    import random

    source = random.Random(size)
    return [source.randbytes(size) for _ in range(4 * MIB // size)]


def write(path: Path, total: int, compression: str) -> None:
    import anyio

    import asyncrec

    items = _records()

    async def main() -> None:
        async with asyncrec.open_writer(str(path), compression=compression) as writer:
            for _ in range(total // (4 * MIB)):
                await writer.write_many(items)

    _measure(lambda: anyio.run(main))


def read(path: Path, total: int, compression: str) -> None:
    import anyio

    import asyncrec

    async def main() -> None:
        async with asyncrec.open_reader(str(path)) as reader:
            count = 0
            async for batch in reader.batches():
                count += len(batch)
        if count != total // 4096:
            raise ValueError(f"read {count} records of {total // 4096}")

    _measure(lambda: anyio.run(main))


def shards(path: Path, total: int, compression: str) -> None:
    """Write records in turn to all shards of a rolling writer, which are open at the same time."""
    import anyio

    import asyncrec

    items = _records()

    async def main() -> None:
        async with asyncrec.open_sharded_writer(
            str(path / "pages"),
            max_shard_bytes=1024 * MIB,
            open_shards=OPEN_SHARDS,
            memory_limit=MEMORY_LIMIT,
            compression=compression,
        ) as writer:
            for turn in range(total // (4 * MIB)):
                for number, record in enumerate(items):
                    await writer.write(record, partition=f"{turn + number}")

    _measure(lambda: anyio.run(main))


def _measure(job: Callable[[], None]) -> None:
    import asyncrec

    for name in ("open_writer", "open_reader", "open_sharded_writer"):
        getattr(asyncrec, name)  # resolved on first use: imports are not measured
    _reset_peak()
    before = _status("VmRSS")
    job()
    print(json.dumps(_status("VmHWM") - before))


def peak(job: str, path: Path, total: int, compression: str = "") -> int:
    """Return the peak memory of a job in bytes, measured in a separate process."""
    command = [sys.executable, __file__, job, str(path), str(total), compression]
    done = subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True)
    value: int = json.loads(done.stdout)
    return value


def report(folder: Path, *, quick: bool) -> tuple[list[dict[str, object]], list[str]]:
    """Return the rows of the table, and the limits that were exceeded."""
    large = LARGE // 8 if quick else LARGE
    rows: list[dict[str, object]] = []
    missed: list[str] = []
    for compression in ("", "GZIP"):
        path = folder / "memory"
        for job in ("write", "read"):
            small_peak, large_peak = 0, 0
            for total in (SMALL, large):
                if job == "read":
                    peak("write", path, total, compression)
                value = peak(job, path, total, compression)
                small_peak, large_peak = (value, large_peak) if total == SMALL else (small_peak, value)
                path.unlink()
            row = {"job": f"{job} {compression or 'plain'}", "small": small_peak, "large": large_peak}
            rows.append(row)
            # A tenth, or one MiB if a tenth is less than the allocator's noise.
            if large_peak > small_peak + max(small_peak // 10, MIB):
                missed.append(f"{row['job']}: {small_peak / MIB:.1f} MiB for 64 MiB, {large_peak / MIB:.1f} for more")
    target = folder / "memory-shards"
    target.mkdir()
    value = peak("shards", target, large)
    limit = MEMORY_LIMIT + 64 * MIB
    rows.append({"job": f"{OPEN_SHARDS} open shards", "large": value, "limit": limit})
    if value > limit:
        missed.append(f"{OPEN_SHARDS} open shards: {value / MIB:.1f} MiB, limit {limit / MIB:.0f}")
    return rows, missed


if __name__ == "__main__":
    {"write": write, "read": read, "shards": shards}[sys.argv[1]](Path(sys.argv[2]), int(sys.argv[3]), sys.argv[4])
