"""Random access by record number, one at a time and 256 at a time, compared with formats designed for it.

There are 16 shards with records of 1 KiB, in the page cache. Opening and the first access to each shard are not timed,
because a training run spends little time on them. MosaicML Streaming depends on PyTorch with CUDA, so it is measured
only if it is installed (``pip install mosaicml-streaming`` in ``.venv-bench``). To use a different file system than
`harness.work_folder` would choose: ``make bench ARGS="--only access --folder /data/scratch"``.
"""

from __future__ import annotations

import random
import shutil
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractContextManager, closing, nullcontext
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import anyio
from harness import Case, Extras, Job, Target

_SHARDS = 16
_TIMES = 8  # times the number of records requested in a round
_MANY = 256

Get = Callable[[list[int]], object]


def records_of(case: Case) -> int:
    return case.count * _TIMES


def beside(path: Path, name: str) -> Path:
    return path.with_name(f"{path.name}-{name}")


def prepare(case: Case, path: Path) -> None:
    """Write the data set; the other formats are made from it when they are first opened."""
    from asyncrec import blocking

    count = records_of(case)
    pool = [random.Random(4).randbytes(case.size // 2) + random.Random(5).randbytes(case.size // 2) for _ in range(64)]
    for name in ("asyncrec", "array_record", "streaming"):
        shutil.rmtree(beside(path, name), ignore_errors=True)  # from the previous case
    compression = "GZIP" if "GZIP" in case.name else ""
    with blocking.open_sharded_writer(
        beside(path, "asyncrec") / "set", max_shard_records=-(-count // _SHARDS), compression=compression
    ) as writer:
        writer.write_many(number.to_bytes(8, "little") + pool[number % 64][8:] for number in range(count))


def content(path: Path) -> list[bytes]:
    with open_blocking(path) as dataset:
        found: list[bytes] = dataset[:]
    return found


def wanted_of(case: Case, seed: int = 6) -> list[int]:
    source = random.Random(seed)
    return [source.randrange(records_of(case)) for _ in range(case.count)]


def check(found: Sequence[bytes], wanted: Sequence[int]) -> None:
    if [int.from_bytes(record[:8], "little") for record in found] != list(wanted):
        raise AssertionError("other records than were asked for")


def lists_of(wanted: list[int]) -> list[list[int]]:
    return [wanted[at : at + _MANY] for at in range(0, len(wanted), _MANY)]


def asynchronous(case: Case, *, many: bool) -> Job:
    import asyncrec

    wanted = wanted_of(case)

    async def main(path: Path) -> Extras:
        async with asyncrec.open_dataset(beside(path, "asyncrec") / "set") as dataset:
            await dataset.get_many(range(0, len(dataset), 50))
            began = time.perf_counter()
            if many:
                found = [record for numbers in lists_of(wanted) for record in await dataset.get_many(numbers)]
            else:
                found = [await dataset.get(number) for number in wanted]
            seconds = time.perf_counter() - began
        check(found, wanted)
        return {"seconds": seconds}

    return job_of(main)


def job_of(main: Callable[[Path], Awaitable[Extras]]) -> Job:
    return lambda path: anyio.run(main, path)


def synchronous(case: Case, open_: Callable[[Path], AbstractContextManager[Any]], *, many: bool) -> Job:
    """Return a contender for any object with ``source[i]``, and with ``source.__getitems__`` if available."""
    wanted = wanted_of(case)

    def job(path: Path) -> Extras:
        with open_(path) as source:
            get_many = getattr(source, "__getitems__", None) or getattr(source, "get_many", None)
            for number in range(0, len(source), 50):
                source[number]
            began = time.perf_counter()
            if many and get_many is not None:
                found = [record for numbers in lists_of(wanted) for record in get_many(numbers)]
            else:
                found = [source[number] for number in wanted]
            seconds = time.perf_counter() - began
        check([record["x"] if isinstance(record, dict) else record for record in found], wanted)
        return {"seconds": seconds}

    return job


def epoch(case: Case, open_: Callable[[Path], AbstractContextManager[Any]]) -> Job:
    """Return a contender that reads a shuffled epoch with grain's threads."""
    import grain

    def job(path: Path) -> Extras:
        with open_(path) as source:
            source[0]
            began = time.perf_counter()
            records = grain.MapDataset.source(source).seed(1).shuffle()[: case.count].to_iter_dataset()
            count = sum(len(batch) for batch in records.batch(_MANY, batch_fn=list))
            seconds = time.perf_counter() - began
        if count != case.count:
            raise AssertionError(f"{count} of {case.count} records")
        return {"seconds": seconds}

    return job


def open_blocking(path: Path) -> AbstractContextManager[Any]:
    from asyncrec import blocking

    return blocking.open_dataset(beside(path, "asyncrec") / "set")


def open_source(path: Path) -> AbstractContextManager[Any]:
    from asyncrec.integrations.grain import RecordDataSource

    return closing(RecordDataSource(beside(path, "asyncrec") / "set"))


def open_array_record(path: Path) -> AbstractContextManager[Any]:
    from array_record.python.array_record_module import ArrayRecordWriter
    from grain.sources import ArrayRecordDataSource

    folder = beside(path, "array_record")
    if not folder.exists():
        folder.mkdir()
        # The setting that grain's documentation recommends for random access.
        with closing(ArrayRecordWriter(str(folder / "all"), "group_size:1,uncompressed")) as writer:
            for record in content(path):
                writer.write(record)
    return ArrayRecordDataSource(str(folder / "all"))  # type: ignore[no-any-return]  # no types


def open_streaming(path: Path) -> AbstractContextManager[Any]:
    from streaming import MDSWriter, StreamingDataset
    from streaming.base.util import clean_stale_shared_memory

    folder = beside(path, "streaming")
    if not folder.exists():
        found = content(path)
        size = sum(map(len, found)) // _SHARDS
        with MDSWriter(out=str(folder), columns={"x": "bytes"}, size_limit=size) as writer:
            for record in found:
                writer.write({"x": record})
    clean_stale_shared_memory()
    return nullcontext(StreamingDataset(local=str(folder), shuffle=False, batch_size=1))


def contenders(*, many: bool) -> dict[str, Callable[[Case], Job]]:
    found: dict[str, Callable[[Case], Job]] = {
        "asyncrec": lambda case: asynchronous(case, many=many),
        "asyncrec.blocking": lambda case: synchronous(case, open_blocking, many=many),
        "array_record by grain": lambda case: synchronous(case, open_array_record, many=many),
    }
    if find_spec("streaming"):
        found["MosaicML Streaming"] = lambda case: synchronous(case, open_streaming, many=many)
    return found


GRAIN: dict[str, Callable[[Case], Job]] = {
    "asyncrec's source": lambda case: epoch(case, open_source),
    "array_record's source": lambda case: epoch(case, open_array_record),
}

CASES = [
    Case("access one, 1 KiB", 8192, 1024, contenders(many=False), prepare),
    Case(f"access {_MANY} at a time, 1 KiB", 8192, 1024, contenders(many=True), prepare),
    Case(
        f"access {_MANY} at a time, 1 KiB, GZIP",
        4096,
        1024,
        {"asyncrec": lambda case: asynchronous(case, many=True)},
        prepare,
        note="32 MiB of records, whose decompressed members stay in memory",
    ),
    Case("access shuffled by grain, 1 KiB", 8192, 1024, GRAIN, prepare),
]
TARGETS = [
    Target("access one, 1 KiB", "asyncrec", "array_record by grain", 1.2),
    Target("access one, 1 KiB", "asyncrec.blocking", "array_record by grain", 3.0),
    Target(f"access {_MANY} at a time, 1 KiB", "asyncrec", "array_record by grain", 4.0),
    Target("access shuffled by grain, 1 KiB", "asyncrec's source", "array_record's source", 1.0),
]
