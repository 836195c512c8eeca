"""The cost of recognizing a data set's bodies: opening, memory, and looking up 256 at a time.

    python tests/benchmarks/seen_digests.py --bodies 10_000_000

The runs of contents of such a data set are created, and read as by a writer with ``seen=``; no page is written.
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import time
from typing import Any

import numpy as np

from asyncrec._shards.writing.digest_tables import DigestTables, Rows, TableMaker

_AT_ONCE = 1 << 15
_TOGETHER = 256


def anonymous() -> float:
    """Return the anonymous memory of this process in MB."""
    with open("/proc/self/status") as file:
        line = next(line for line in file if line.startswith("RssAnon"))
    return int(line.split()[1]) * 1024 / 1e6


def made(bodies: int) -> DigestTables:
    """Return tables with this many digests, in ascending order as in a run."""
    rng = np.random.default_rng(1)
    maker = TableMaker(bodies)
    step = (1 << 64) // bodies
    for at in range(0, bodies, _AT_ONCE):
        count = min(_AT_ONCE, bodies - at)
        first = np.arange(at, at + count, dtype=np.uint64) * np.uint64(step) + rng.integers(0, step, count, np.uint64)
        digests = np.stack([first, first * np.uint64(0x9E3779B97F4A7C15)], axis=1)
        maker.add(Rows.of(digests, np.arange(at, at + count, dtype=np.uint64)))
    tables = DigestTables()
    tables.append(maker.end())
    maker.close()
    return tables


async def main(arguments: Any) -> None:
    before = anonymous()
    begun = time.perf_counter()
    tables = made(arguments.bodies)
    print(f"{arguments.bodies:,} bodies: opened in {time.perf_counter() - begun:.1f} s")
    print(f"anonymous memory: {anonymous() - before:.0f} MB more than the {before:.0f} MB before")
    for what in ("first look-ups", "later look-ups"):
        spent, count = 0.0, 0
        for number in range(2000):
            asked = [hashlib.blake2b(b"%d %d" % (number, n), digest_size=16).digest() for n in range(_TOGETHER)]
            begun = time.perf_counter()
            tables.find(asked)
            spent += time.perf_counter() - begun
            count += _TOGETHER
        print(f"{what}, {_TOGETHER} at a time: {spent / count * 1e6:.2f} us each")
    print(f"anonymous memory at the end: {anonymous() - before:.0f} MB more")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--bodies", type=int, default=10_000_000)
    asyncio.run(main(parser.parse_args()))
