"""Compare the speed of Ray with asyncrec and with Ray's own TFRecord support: `python tests/engines/speed.py`.

There are 200,000 records of 1 KiB with five features, in 8 shards, on two processors. Each operation runs once to warm
up and then three times, alternating with the others; the fastest run counts. Parquet files with the same rows are
included for comparison.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
os.environ["RAY_DATA_DISABLE_PROGRESS_BARS"] = "1"
os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"

import numpy as np
import pyarrow as pa
import ray

from asyncrec import Schema, blocking
from asyncrec.integrations.arrow import to_batch, to_records, write_batches
from asyncrec.integrations.ray import read_asyncrec, write_asyncrec

ROWS = int(sys.argv[1]) if len(sys.argv) > 1 else 200_000
TIMES = 3


def rows(count: int, seed: int) -> Any:
    rng = np.random.default_rng(seed)
    vectors = rng.random((count, 64), np.float32)
    return pa.table(
        {
            "id": np.arange(count),
            "score": rng.random(count, np.float32),
            "vector": pa.FixedSizeListArray.from_arrays(pa.array(vectors.reshape(-1)), 64),
            "url": [f"https://example.com/{n}".encode() for n in range(count)],
            "body": [rng.bytes(660) for _ in range(count)],
        }
    )


def fastest(
    works: dict[str, Callable[[], object]], times: int = TIMES, clock: Callable[[], float] = time.perf_counter
) -> dict[str, float]:
    found = dict.fromkeys(works, float("inf"))
    for turn in range(times + 1):
        for name, work in works.items():
            begun = clock()
            work()
            if turn:
                found[name] = min(found[name], clock() - begun)
    return found


def show(title: str, found: dict[str, float], base: str) -> None:
    print(title)
    for name, seconds in found.items():
        each, times = seconds / ROWS * 1e6, found[base] / seconds
        print(f"  {name:24} {seconds:7.2f} s  {each:7.1f} us a record  {times:6.1f} times {base}")


def main() -> None:
    folder = Path(tempfile.mkdtemp())
    table = rows(ROWS, 0)
    write_batches(folder / "records", table, num_shards=8)
    parts = [blocking.read_records(shard, 4096) for shard in blocking.list_shards(folder / "records")]
    schema = Schema.from_json(blocking.read_manifest(folder / "records").schema or {})
    print(f"{sum(map(len, parts[0])) / len(parts[0]):.0f} bytes a record")
    pure = fastest(
        {
            "decode_batch": lambda: [schema.decode_batch(part) for part in parts],
            "to_batch": lambda: [to_batch(part, schema) for part in parts],
        },
        times=30,
        clock=time.process_time,  # the time of this thread, so that other load on the machine matters little
    )
    records = sum(map(len, parts))
    print({name: f"{seconds / records * 1e6:.2f} us" for name, seconds in pure.items()})
    print(f"to_batch takes {pure['to_batch'] / pure['decode_batch']:.2f} of decode_batch")
    batch = to_batch(parts[0], schema)
    begun = time.process_time()
    to_records(batch)
    print(f"to_records: {(time.process_time() - begun) / batch.num_rows * 1e6:.1f} us")

    ray.init("local", num_cpus=2, object_store_memory=1 << 30, include_dashboard=False, log_to_driver=False)
    ray.data.DataContext.get_current().enable_progress_bars = False
    from pyarrow import parquet

    (folder / "parquet").mkdir()
    for number in range(8):
        part = table.slice(ROWS * number // 8, ROWS * (number + 1) // 8 - ROWS * number // 8)
        parquet.write_table(part, folder / "parquet" / f"{number}.parquet")
    files = sorted(str(path) for path in folder.glob("records-*.tfrecord"))

    def read(dataset: Any) -> None:
        assert sum(len(block["id"]) for block in dataset.iter_batches(batch_size=None, batch_format="pyarrow")) == ROWS

    show(
        "read",
        fastest(
            {
                "read_asyncrec": lambda: read(read_asyncrec(folder / "records")),
                "read_tfrecords": lambda: read(ray.data.read_tfrecords(files)),
                "read_parquet": lambda: read(ray.data.read_parquet(str(folder / "parquet"))),
            },
            times=2,
        ),
        "read_tfrecords",
    )
    dataset = ray.data.from_arrow([table.slice(at, ROWS // 8) for at in range(0, ROWS, ROWS // 8)]).materialize()
    number = iter(range(1000))
    show(
        "write",
        fastest(
            {
                "write_asyncrec": lambda: write_asyncrec(dataset, folder / f"a{next(number)}"),
                "write_tfrecords": lambda: dataset.write_tfrecords(str(folder / f"t{next(number)}")),
                "write_parquet": lambda: dataset.write_parquet(str(folder / f"p{next(number)}")),
            },
            times=2,
        ),
        "write_tfrecords",
    )


if __name__ == "__main__":
    main()
