"""The cost of ``flush_seconds`` by the number of open shards: 1 and 5 seconds compared with `None`.

There are records of 128 B and pages of 16 KiB, one by one as fast as they are accepted, plain and GZIP; and a slow
crawl of 100 pages a second, in which every flush has records in every shard. The processor time of all threads is
compared, including the kernel's. The folder has to be on a disk, because an fsync in memory costs nothing. "to S3"
writes the same pages to a store that does no work in a separate process (`null_stores`), where each flush is an
object::

    python tests/benchmarks/flushing.py --folder . --rounds 5
    python tests/benchmarks/flushing.py --folder . --only "16 KiB, GZIP, 64 open shards"
"""

from __future__ import annotations

import os
import shutil
import statistics
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
from harness import Case, Extras, Job, case_options, run_case, work_folder
from null_stores import null_store
from records import compression, records
from stores import storage

SECONDS = (None, 5.0, 1.0)
SHARDS = (1, 4, 16, 32, 64)
# The name, the number and size of records, and how many of them arrive per second.
KINDS = (
    ("128 B", 2_500_000, 128, None),
    ("128 B, GZIP", 2_000_000, 128, None),
    ("16 KiB", 60_000, 16_384, None),
    ("16 KiB, GZIP", 45_000, 16_384, None),
    ("slow crawl, GZIP", 600, 16_384, 100),
    ("to S3, 16 KiB", 45_000, 16_384, None),
    ("to S3, 16 KiB, GZIP", 45_000, 16_384, None),
)


@asynccontextmanager
async def place(case: Case, path: Path) -> AsyncIterator[dict[str, Any]]:
    """Yield the arguments that say where the data set is written."""
    if "to S3" not in case.name:
        yield {"path": path / "records"}
        return
    with null_store("s3", Path(os.devnull)) as endpoint:
        async with storage("s3", endpoint) as store:
            yield {"path": "records", "storage": store}


def writing(seconds: float | None, shards: int, pace: int | None) -> Callable[[Case], Job]:
    def maker(case: Case) -> Job:
        import asyncrec

        items = records(case)

        async def main(path: Path) -> Extras:
            async with place(case, path) as where:
                begun, cpu, clock = anyio.current_time(), time.process_time(), time.perf_counter()
                async with asyncrec.open_sharded_writer(
                    **where, open_shards=shards, flush_seconds=seconds, compression=compression(case)
                ) as writer:
                    for number, item in enumerate(items):
                        if pace is not None:
                            await anyio.sleep_until(begun + number / pace)
                        await writer.write(item)
                return {"cpu": time.process_time() - cpu, "seconds": time.perf_counter() - clock}

        return lambda path: anyio.run(main, path)

    return maker


CASES = [
    Case(
        name=f"{kind}, {shards} open shards",
        count=count,
        size=size,
        contenders={f"flush_seconds={each}": writing(each, shards, pace) for each in SECONDS},
    )
    for kind, count, size, pace in KINDS
    for shards in SHARDS
]


def main() -> None:
    arguments = case_options(__doc__)
    folder, place = work_folder(arguments.folder)
    print(f"files in {place}; processor time in seconds, and times that of None: median (least to most)", flush=True)
    try:
        for case in CASES:
            if arguments.only not in case.name:
                continue
            base, *others = run_case(Path(__file__).stem, case, folder=folder, rounds=arguments.rounds, shrink=1)
            cells = [f"{statistics.median(each['cpu'] for each in base.extras):6.2f}"]
            for other in others:
                for what, ours, theirs in (
                    ("cpu", [each["cpu"] for each in other.extras], [each["cpu"] for each in base.extras]),
                    ("clock", other.seconds, base.seconds),
                ):
                    ratios = sorted(a / b for a, b in zip(ours, theirs, strict=True))
                    cells.append(f"{what} {statistics.median(ratios):.3f} ({ratios[0]:.3f} to {ratios[-1]:.3f})")
                more = [a["cpu"] - b["cpu"] for a, b in zip(other.extras, base.extras, strict=True)]
                cells.append(f"{statistics.median(more) / statistics.median(base.seconds):+.1%} of a core")
            print(f"{case.name:36}" + "  ".join(cells), flush=True)
    finally:
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
