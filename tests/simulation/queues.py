"""A theme in which consumers read queues that may redeliver messages, and take over each other's queues."""

from __future__ import annotations

from collections import Counter
from typing import Any

import anyio

import asyncrec
from asyncrec.errors import ConflictError

from . import contents
from .bystanders import compactor
from .operations import Drawing, operation, theme
from .striking import MOST_ENTRY
from .writing import Limited, check_memory, compression

__all__ = ["judge"]

SOURCES = ("a", "b", "c")
_FILL = 40


def records_of(source: str, position: int) -> list[bytes]:
    """Return the records of a message: one, several or none."""
    count = (1, 1, 2, 0, 5, 1, 1)[(position + ord(source)) % 7]
    fill = bytes([65 + position % 26]) * (1200 if count == 5 else _FILL)
    return [f"[{source} {position} {number}]".encode() + fill for number in range(count)]


@theme("queues", 1.5)
def queues(drawing: Drawing) -> None:
    """Draw consumers that write to a store, a disk or a spool. Some die, and some stall without noticing it."""
    rng, settings = drawing.rng, drawing.plan["settings"]
    where = rng.choice(("store", "store", "store", "disk", "spool"))
    path = drawing.target(local=where == "disk")
    settings["knobs"][MOST_ENTRY] = rng.choice((500, 5000, 4 << 20))
    settings["failing"] = rng.choice((0.0, 0.0, 0.003, 0.02))
    settings["parts"] = max(rng.choice((100, 700, 2000)), int(100_000 * settings["failing"]))
    settings["shared"] = False
    for _ in range(rng.choice((2, 3, 3, 4)) if where != "spool" else 1):
        spec = _consumer(drawing, path, where)
        if where == "spool":
            spec["options"]["spool"] = "/m0/q-spool"
        start = rng.choice((0.0, 0.0, 10 * rng.random(), 300 * rng.random()))
        machine = "m0" if where != "store" else rng.choice(("m0", "m1"))
        drawing.process(spec, start=start, machine=machine)["own faults"] = True
        _strike(drawing)
    for _ in range(rng.choice((0, 0, 1))):
        recovers = {"kind": "recover", "path": path}
        drawing.process(recovers, start=rng.choice((5.0, 130.0, 400.0)) * rng.random(), machine="m0")
    if rng.random() < 0.4:
        compactor(drawing, path, "m0")


def _consumer(drawing: Drawing, path: str, where: str) -> dict[str, Any]:
    rng = drawing.rng
    options: dict[str, Any] = {"open_shards": rng.choice((1, 1, 2, 3))}
    options["compression"] = rng.choice(("", "", "GZIP", "members", "ZLIB"))
    if rng.random() < 0.7:
        options["max_shard_records"] = rng.choice((3, 10, 40))
    if rng.random() < 0.3:
        options["max_shard_seconds"] = rng.choice((1.0, 50.0))
    if rng.random() < 0.7:
        options["flush_seconds"] = rng.choice((0.5, 5.0, 40.0) if where != "store" else (0.5, 5.0, 40.0, None))
    if rng.random() < 0.3:
        options["memory_limit"] = rng.choice((20_000, 200_000))
    actions: list[list[Any]] = []
    own = list(SOURCES) if rng.random() < 0.5 else rng.sample(SOURCES, rng.choice((1, 2)))
    for _ in range(rng.choice((5, 15, 40))):
        chance = rng.random()
        if chance < 0.6:
            actions.append(["read", rng.choice(own), rng.choice((1, 1, 3, 8)), rng.choice((0, 0, 1, 4))])
        elif chance < 0.72:
            actions.append(["flush", _limit(drawing)])
        elif chance < 0.8:
            actions.append(["commit", _limit(drawing)])
        elif chance < 0.86:
            actions.append(["release", rng.sample(own, rng.choice((1, len(own)))), _limit(drawing)])
        elif chance < 0.9:
            own = rng.sample(SOURCES, rng.choice((1, 2, 3)))
        else:
            actions.append(["sleep", rng.choice((0.0, 0.1, 3.0, 40.0, 200.0))])
    return {"kind": "consume", "path": path, "options": options, "tasks": [actions]}


def _limit(drawing: Drawing) -> list[Any] | None:
    if not drawing.chance(0.1):
        return None
    return [drawing.rng.choice(("anyio", "asyncio")), drawing.rng.choice((0.0, 0.001, 0.1, 5.0))]


def _strike(drawing: Drawing) -> None:
    """Draw a fault for the process drawn last."""
    rng, number = drawing.rng, len(drawing.plan["processes"]) - 1
    chance = rng.random()
    since = rng.choice(("", "flushing", "flush entry", "publishing", "committing", "leaving"))
    moment = {"by": "step", "since": since, "at": int(10 ** (rng.random() * (2.0 if since else 3.0)))}
    if since:
        moment["nth"] = rng.choice((1, 1, 2, 5))
    if chance < 0.4:
        drawing.faults.append({"kind": "kill", "process": number, **moment})
    elif chance < 0.7:
        drawing.faults.append({"kind": "stall", "process": number, "for": rng.choice((1.0, 60.0, 400.0)), **moment})
    elif chance < 0.8:
        how = rng.choice(("anyio", "asyncio"))
        drawing.faults.append({"kind": "cancel", "process": number, "how": how, **moment})


@operation("consume")
async def consume(world: Any, process: Any, spec: dict[str, Any]) -> None:
    options = {**spec["options"], "compression": compression(spec["options"]["compression"])}
    told: dict[str, Any] = {"taken": {}, "told": {}}
    run = world.book.begin(spec["path"], "queue", process, {**spec, **told}, world.loop.now)
    async with world.running(run):
        try:
            async with asyncrec.open_sharded_writer(spec["path"], **options) as writer:
                run.opened = world.loop.now
                run.writer = writer.writer_id
                for what, *arguments in spec["tasks"][0]:
                    await _act(world, run, writer, what, *arguments)
                    check_memory(world, writer)
                run.leaving = world.loop.now
                world.timing.comes_to(process, "leaving")
        except ConflictError as error:
            if not error.sources:
                raise


async def _act(world: Any, run: Any, writer: Any, what: str, *arguments: Any) -> None:
    try:
        match what:
            case "read":
                await _read(run, writer, *arguments)
            case "sleep":
                await anyio.sleep(arguments[0])
            case "release":
                async with Limited(arguments[1]):
                    await writer.release(*arguments[0])
            case "flush" | "commit":
                world.timing.comes_to(run.process, "flushing")
                taken = dict(run.spec["taken"])
                async with Limited(arguments[0]) as limit:
                    level = await getattr(writer, what)()
                if not limit.ran_out and level != "buffered":
                    told = run.spec["told"]
                    for source, position in taken.items():
                        told[source] = max(position, told.get(source, -1))
    except ConflictError as error:
        if error.sources:
            for source in error.sources:
                run.spec["taken"].pop(source, None)
            await writer.release(*error.sources)
        elif what != "read" or error.ended:
            raise
        else:  # its owner writes to a disk or has a spool
            await anyio.sleep(5.0)


async def _read(run: Any, writer: Any, source: str, count: int, again: int) -> None:
    """Read messages starting at the stored position or a few messages earlier."""
    last = await writer.take(source)
    begin = max(0, (-1 if last is None else last) + 1 - again)
    for position in range(begin, begin + again + count):
        records = records_of(source, position)
        if not records:
            await writer.advance(source, position)
        elif len(records) == 1:
            await writer.write(records[0], source=source, position=position)
        else:
            await writer.write_many(records, source=source, position=position)
        taken = run.spec["taken"]
        taken[source] = max(position, taken.get(source, -1))


def judge(world: Any, path: str, shards: list[contents.Shard], progress: dict[str, int]) -> None:
    """Check that each source's records are stored exactly once up to its progress, and not at all beyond it."""
    found = Counter(record for shard in shards for record in shard.records)
    expected = Counter(
        record
        for source, last in progress.items()
        for position in range(last + 1)
        for record in records_of(source, position)
    )
    for record, times in (found - expected).items():
        what = "each record of a queue is there once" if record in expected else "no record is behind the progress"
        world.book.complain(what, f"{path}: {record[:20]!r} {times} times more")
    for record in expected - found:
        world.book.complain("what the progress says is there", f"{path}: {record[:20]!r}")
    for run in world.book.of(path):
        if run.given_up:
            continue
        for source, last in run.spec["told"].items():
            lost = [
                record for position in range(last + 1) for record in records_of(source, position) if not found[record]
            ]
            if lost:
                world.book.complain(
                    "what was acknowledged of a queue stays",
                    f"{path}: {lost[0][:20]!r} of run {run.number} {run.process}",
                )
