"""`demo`: a small data set is written by many tasks, verified, and read in three ways; how long each takes."""

from __future__ import annotations

import os
import random
import time
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from typing import Any

import anyio
import numpy as np

from asyncrec.errors import DatasetError
from asyncrec.example.codec import encode_example
from asyncrec.example.kinds import FixedLen
from asyncrec.example.schema import Schema
from asyncrec.sampling.dataset import open_dataset
from asyncrec.shards.opening import open_sharded_writer
from asyncrec.shards.snapshot import read_manifest
from asyncrec.shards.writer import ShardedWriter
from asyncrec.tools.verifying import verify

__all__ = ["DemoReport", "DemoStep", "demo"]

_TASKS = 8
_WORDS = ("a", "crawler", "writes", "what", "it", "reads,", "record", "by", "record,", "and", "loses", "none")
_SCHEMA = Schema(
    {
        "url": FixedLen((), "bytes"),
        "text": FixedLen((), "bytes"),
        "label": FixedLen((), "int64"),
        "embedding": FixedLen((16,), "float32"),
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoStep:
    """What was done, with how many records, in how many seconds."""

    what: str
    records: int
    seconds: float


@dataclass(slots=True, kw_only=True)
class DemoReport:
    """The steps, and the data set that is there afterwards."""

    path: str
    shards: int = 0
    bytes: int = 0
    steps: list[DemoStep] = field(default_factory=list)

    def to_json(self) -> dict[str, Any]:
        return {
            "path": self.path,
            "shards": self.shards,
            "bytes": self.bytes,
            "steps": [
                {"what": step.what, "records": step.records, "seconds": round(step.seconds, 4)} for step in self.steps
            ],
        }


async def demo(folder: str | os.PathLike[str], *, records: int = 20_000) -> DemoReport:
    """Write the data set ``pages`` in ``folder``, and read it.

    Raises:
        ObjectExistsError: it is there already.
        DatasetError: what was read is not what was written.
    """
    path = os.path.join(os.fspath(folder), "pages")
    report = DemoReport(path=path)

    async def step(what: str, work: Callable[[], Awaitable[int]]) -> None:
        begun = time.perf_counter()
        count = await work()
        report.steps.append(DemoStep(what=what, records=count, seconds=time.perf_counter() - begun))

    await step(f"written by {_TASKS} tasks at once, GZIP, with keys", lambda: _write(path, records))
    manifest = await read_manifest(path)
    report.shards, report.bytes = len(manifest.shards), manifest.bytes
    await step("verified: every checksum, index and count", lambda: _verify(path, records))
    async with AsyncExitStack() as stack:
        dataset = await stack.enter_async_context(open_dataset(path))
        await step("found by key, one by one", lambda: _find(dataset, records))
        await step("read in batches, shuffled by seed, decoded to arrays", lambda: _train(dataset, records))
    return report


async def _write(path: str, records: int) -> int:
    async with open_sharded_writer(
        path, max_shard_bytes=1 << 20, compression="GZIP", schema=_SCHEMA, mode="new"
    ) as writer:
        async with anyio.create_task_group() as group:
            for task in range(_TASKS):
                group.start_soon(_produce, writer, task, records)
    return records


async def _produce(writer: ShardedWriter, task: int, records: int) -> None:
    chance = random.Random(task)
    for number in range(task, records, _TASKS):
        url = f"https://example.org/{number}"
        page = {
            "url": url,
            "text": " ".join(chance.choices(_WORDS, k=40)),
            "label": number % 10,
            "embedding": np.full(16, number % 10, np.float32),
        }
        await writer.write(encode_example(page), key=url)


async def _verify(path: str, records: int) -> int:
    report = await verify(path)
    if not report.ok or report.records != records:
        raise DatasetError(f"{path}: {report.records:,} whole records of {records:,}; 'asyncrec verify' says more")
    return report.records


async def _find(dataset: Any, records: int) -> int:
    wanted = [number * 7919 % records for number in range(min(100, records))]
    for number in wanted:
        record = await dataset.get_by_key(f"https://example.org/{number}")
        if int(_SCHEMA.decode(record)["label"]) != number % 10:
            raise DatasetError(f"{dataset.manifest.path}: the record of key {number} is another's")
    return len(wanted)


async def _train(dataset: Any, records: int) -> int:
    seen = 0
    async with dataset.shuffled(seed=1) as stream:
        async for batch in stream.batches(256):
            arrays = _SCHEMA.decode_batch(batch)
            if not (arrays["embedding"][:, 0] == arrays["label"]).all():
                raise DatasetError(f"{dataset.manifest.path}: a record's features are of two records")
            seen += len(batch)
    if seen != records:
        raise DatasetError(f"{dataset.manifest.path}: {seen:,} records came, and {records:,} were written")
    return seen
