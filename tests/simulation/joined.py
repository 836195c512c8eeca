"""A theme in which several processes join small shards while others write, delete, recover, replace and follow."""

from __future__ import annotations

import contextlib
from collections import Counter
from typing import Any

import anyio

import asyncrec
from asyncrec import tools
from asyncrec.errors import DatasetError, StorageError

from .book import identity
from .bystanders import bystanders, elsewhere
from .cast import writer
from .operations import Drawing, operation, theme

__all__: list[str] = []


@theme("joined", 1.5)
def joined(drawing: Drawing) -> None:
    """Draw writers of small shards, processes that join these repeatedly, and processes that delete or follow."""
    rng = drawing.rng
    path = drawing.target(local=rng.random() < 0.5)
    knobs = drawing.plan["settings"]["knobs"]
    knobs["asyncrec.tools._joining:_PIECE_BYTES"] = rng.choice((200, 3000, 1 << 30))
    knobs["asyncrec.tools._joining:_PIECE_SHARDS"] = rng.choice((2, 3, 1 << 14))
    knobs["asyncrec.tools._compact:_LEFT_SECONDS"] = rng.choice((10.0, 3600.0))
    fixed = rng.random() < 0.1
    replaces = rng.random() < 0.15
    start = 0.0
    for number in range(1 if fixed else rng.choice((1, 2, 3))):
        spec = writer(drawing, path, fixed=fixed, mode="replace" if replaces and number else "append")
        if not fixed:
            spec["options"]["max_shard_records"] = rng.choice((1, 2, 3, 10))
        drawing.process(spec, start=start, machine=elsewhere(drawing, path))
        start += rng.choice((0.5, 5.0, drawing.later()))
    for _ in range(rng.choice((1, 2, 2, 4))):
        pauses = [rng.choice((0.0, 1.0, 30.0, 700.0)) for _ in range(rng.randint(1, 5))]
        spec = {
            "kind": "join",
            "path": path,
            "options": {
                "max_shard_bytes": rng.choice((150, 1000, 1 << 28)),
                "grace": rng.choice((60.0, 600.0, 3600.0)),
                "compression": rng.choice(("keep", "keep", "keep", "GZIP", "")),
                "jobs": rng.choice((1, 2, None)),
                "drop_duplicates": rng.random() < 0.4,
            },
            "pauses": pauses,
        }
        if spec["options"]["drop_duplicates"] and rng.random() < 0.5:  # processes may use different criteria
            spec["options"]["newest"] = rng.choice(("date", "other"))
        begin = rng.choice((1.0 + rng.random(), 30 * rng.random(), drawing.later(), start + 1.0))
        drawing.process(spec, start=begin, machine=elsewhere(drawing, path))
    if rng.random() < 0.4:
        spec = {
            "kind": "delete",
            "path": path,
            "share": rng.randrange(3),
            "pauses": [rng.choice((1.0, 30.0, 700.0))] * 2,
        }
        begin = rng.choice((30 * rng.random(), drawing.later(), start + 2.0))
        drawing.process(spec, start=begin, machine=elsewhere(drawing, path))
    if rng.random() < 0.5 and not replaces:
        interval, seconds = rng.choice((0.3, 5.0)), rng.choice((20.0, 900.0))
        # A few hundred polls: 3,000 would take a million steps, so the world would count as hung.
        spec = {"kind": "follow", "path": path, "interval": interval, "seconds": min(seconds, 300 * interval)}
        drawing.process(spec, start=rng.choice((3.0, 30.0)), machine=elsewhere(drawing, path))
    bystanders(drawing, path)


@operation("join")
async def join(world: Any, process: Any, spec: dict[str, Any]) -> None:
    """Join the data set's shards repeatedly."""
    for pause in spec["pauses"]:
        with contextlib.suppress(StorageError):  # no data set yet; a store failure; a conflict with another process
            await tools.compact(spec["path"], **spec["options"])
        await anyio.sleep(pause)


@operation("follow")
async def follow(world: Any, process: Any, spec: dict[str, Any]) -> None:
    """Follow a data set from its first record. Check that each record is returned once although shards are joined."""
    found: list[int | None] = []
    path = spec["path"]

    async def read() -> None:
        async with tools.open_tail(path, records=1 << 30, follow=True, interval=spec["interval"]) as tail:
            async for records in tail:
                found.extend(identity(record.data) for record in records)

    with contextlib.suppress(StorageError, DatasetError):  # a shard was deleted, or there is no data set
        async with anyio.create_task_group() as group:

            async def task() -> None:
                try:
                    await read()
                except (StorageError, DatasetError):
                    group.cancel_scope.cancel()

            group.start_soon(task)
            await anyio.sleep(spec["seconds"])
            async with asyncrec.open_dataset(path) as dataset:
                there = {identity(data) async for data in dataset}
            await anyio.sleep(20 * spec["interval"] + 100.0)
            if missing := there.difference(found):
                world.book.complain("a follower is given each record", f"{path}: not {sorted(map(str, missing))}")
            group.cancel_scope.cancel()
    if twice := [number for number, times in Counter(found).items() if times > 1]:
        world.book.complain("a follower is given each record once", f"{path}: twice {sorted(map(str, twice))}")
