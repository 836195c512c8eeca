"""Read a large shard by ranges, and write its records as small shards, with little memory.

    python tests/engines/large_shard.py FOLDER [MIB]

makes one shard of MIB (4,096) in FOLDER, and lets Ray, with an object store of 100 MiB and two tasks at a time, write
its records as shards of at most 256 MiB. It prints the number of records and of shards, the size of the largest shard,
and the peak memory of a worker process.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path

os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
os.environ["RAY_DATA_DISABLE_PROGRESS_BARS"] = "1"

import numpy as np
import pyarrow as pa
import ray

from asyncrec import blocking
from asyncrec.integrations.arrow import write_batches
from asyncrec.integrations.ray import read_asyncrec, write_asyncrec

MIB = 1 << 20
BODY = 64 << 10
BATCH = 64  # in records


def batches(total: int) -> pa.RecordBatchReader:
    schema = pa.schema({"id": pa.int64(), "body": pa.binary()})
    body = np.random.default_rng(1).bytes(BODY)

    def each():  # type: ignore[no-untyped-def]
        for first in range(0, total, BATCH):
            numbers = range(first, min(total, first + BATCH))
            yield pa.record_batch({"id": list(numbers), "body": [body] * len(numbers)}, schema=schema)

    return pa.RecordBatchReader.from_batches(schema, each())


class Watch(threading.Thread):
    """Samples the memory of Ray's workers ten times a second.

    Attributes:
        most: the largest resident size of a worker in bytes, without shared memory.
    """

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.most = 0
        self.ended = threading.Event()

    def run(self) -> None:
        page = os.sysconf("SC_PAGE_SIZE")
        while not self.ended.wait(0.1):
            for process in Path("/proc").glob("[0-9]*"):
                with suppress(OSError, ValueError):
                    if (process / "cmdline").read_bytes().startswith(b"ray::"):
                        resident, shared = map(int, (process / "statm").read_text().split()[1:3])
                        self.most = max(self.most, (resident - shared) * page)


def main() -> None:
    folder, size = Path(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 4096
    total = size * MIB // BODY
    write_batches(folder / "large", batches(total), max_shard_bytes=2 * size * MIB)
    (large,) = blocking.read_manifest(folder / "large").shards
    ray.init("local", num_cpus=2, object_store_memory=100 * MIB, include_dashboard=False, log_to_driver=False)
    watch = Watch()
    watch.start()
    begun = time.monotonic()
    report = write_asyncrec(read_asyncrec(folder / "large"), folder / "small", max_shard_bytes=256 * MIB)
    seconds = time.monotonic() - begun
    watch.ended.set()
    shards = blocking.read_manifest(folder / "small").shards
    with blocking.open_dataset(folder / "small") as dataset:
        found = sum(1 for _ in dataset)
    print(f"one shard of {large.bytes / MIB:,.0f} MiB, {total:,} records")
    largest = max(shard.bytes for shard in shards) / MIB
    print(f"{report.rows:,} written and {found:,} found in {len(shards)} shards, of {largest:,.0f} MiB at most")
    print(f"{seconds:.0f} s; a worker had at most {watch.most / MIB:,.0f} MiB")


if __name__ == "__main__":
    main()
