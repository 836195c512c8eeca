"""A theme in which writers without a disk flush to their store, then die or stall, and are ended by others."""

from __future__ import annotations

from typing import Any, NamedTuple

import anyio

import asyncrec
from asyncrec.errors import ManifestError, StorageError

from .bystanders import compactor
from .cast import SIZES, writer
from .operations import Drawing, operation, theme
from .striking import MOST_ENTRY

__all__: list[str] = []

_MACHINES = ("m0", "m1")


class _Times(NamedTuple):
    """The timing of one world's writers, in seconds.

    Attributes:
        options: the options with which writers are opened.
        flush: the time between two flushes.
        silence: the time without a sign of life after which a writer may be presumed dead.
    """

    options: dict[str, float]
    flush: float
    silence: float


@theme("flushed", 2.0)
def flushed(drawing: Drawing) -> None:
    """Draw rolling writers that flush to a store, and processes that end them (by lock, silence or operator)."""
    rng, settings = drawing.rng, drawing.plan["settings"]
    path = drawing.target(local=False)
    settings["knobs"][MOST_ENTRY] = rng.choice((500, 5000, 4 << 20))
    settings["failing"] = rng.choice((0.0, 0.0, 0.003, 0.02))
    settings["parts"] = max(rng.choice((100, 700, 2000)), int(100_000 * settings["failing"]))
    settings["late"] = settings["late"] or rng.random() < 0.3
    settings["damaging"] = rng.choice((0.0, 0.0, 0.0, 0.05, 0.3))
    settings["whole seconds"] = rng.random() < 0.3
    settings["skews"] = rng.random() < 0.6
    if rng.random() < 0.3:
        _race(drawing, path)
        return
    times = _times(drawing)
    moment = 0.0  # the latest time at which a fault may strike the writers
    for _ in range(rng.choice((1, 1, 2, 2, 3, 4))):
        start = rng.choice((0.0, 0.0, 5 * rng.random(), 3 * times.silence * rng.random()))
        _process(drawing, _writer(drawing, path, times), start=start, machine=rng.choice(_MACHINES))
        moment = max(moment, start + _strike(drawing, times))
    if rng.random() < 0.3:
        down = {"kind": "down", "for": times.silence * rng.choice((0.1, 0.6, 1.2, 3.0)), **_moment(drawing)}
        drawing.faults.append({**down, "process": rng.randrange(len(drawing.plan["processes"]))})
    for _ in range(rng.choice((0, 1, 1, 2))):
        _enders(drawing, path, times, moment)
    if rng.random() < 0.4:
        for _ in range(rng.choice((1, 2))):
            compactor(drawing, path, "m0")
    if rng.random() < 0.5:
        pauses = [rng.choice((0.0, 0.1, 3.0, times.silence / 3)) for _ in range(rng.choice((3, 10)))]
        _process(drawing, {"kind": "look", "path": path, "pauses": pauses}, start=moment * rng.random())


def _times(drawing: Drawing) -> _Times:
    flush = drawing.rng.choice((0.1, 1.0, 5.0, 40.0, None))
    options = {} if flush is None else {"flush_seconds": flush}
    flush = 30.0 if flush is None else flush
    dead_after = drawing.rng.choice((2.0, 10.0, 120.0, None))
    if dead_after is None:
        return _Times(options, flush, max(120.0, 4 * flush))
    dead_after = max(dead_after, 2 * flush)
    return _Times({**options, "dead_after": dead_after}, flush, dead_after)


def _writer(drawing: Drawing, path: str, times: _Times) -> dict[str, Any]:
    """Draw a writer that flushes often and waits for each flush, and whose program may block the loop for too long."""
    rng = drawing.rng
    spec = writer(drawing, path, fixed=False)
    spec["options"] |= {"flush_seconds": times.flush, **times.options}
    if "flush_seconds" not in times.options:
        del spec["options"]["flush_seconds"]
    if rng.random() < 0.5:  # so that shards are still open when a fault strikes
        for option in ("max_shard_records", "max_shard_seconds"):
            spec["options"].pop(option, None)
    if rng.random() < 0.3:
        spec["options"]["memory_limit"] = rng.choice((20_000, 200_000, 200_000))
    for actions in spec["tasks"]:
        for _ in range(rng.choice((1, 3, 6))):
            more: list[list[Any]] = [["flush", None]] if rng.random() < 0.6 else [["wait", "spooled", None]]
            if rng.random() < 0.2:
                more.append(["commit", None])
            if rng.random() < 0.6:
                more.append(["sleep", rng.choice((0.1, 1.0, times.flush, times.silence / 2, 1.5 * times.silence))])
            if rng.random() < 0.1:
                more.append(["hold", times.silence * rng.choice((0.5, 1.5, 3.0))])
            if rng.random() < 0.5:
                more.append(["write", rng.choice(SIZES), None, {}])
            at = rng.randrange(len(actions) + 1)
            actions[at:at] = more
    return spec


def _race(drawing: Drawing, path: str) -> None:
    """Draw a living writer that flushes and commits steadily, and processes that end it but stall between requests."""
    rng, settings = drawing.rng, drawing.plan["settings"]
    settings["damaging"] = 0.0
    settings["failing"] = min(settings["failing"], 0.003)
    pace = rng.choice((0.1, 1.0, 10.0, 30.0))
    tasks: list[list[list[Any]]] = []
    for task in range(rng.choice((1, 1, 2))):
        actions: list[list[Any]] = []
        flushes, commits = rng.choice((0.3, 0.9)), rng.choice((0.1, 0.5, 0.9))
        for number in range(rng.choice((10, 25))):
            actions.append(["write", rng.choice(SIZES[:2]), f"{task}-{number}" if rng.random() < 0.5 else None, {}])
            actions += [["flush", None]] * (rng.random() < flushes) + [["commit", None]] * (rng.random() < commits)
            actions.append(["sleep", pace])
        tasks.append(actions)
    options = {"compression": "", "mode": "append", "open_shards": len(tasks)}
    options["flush_seconds"] = rng.choice((1.0, 40.0))
    _process(drawing, {"kind": "sharded", "path": path, "options": options, "tasks": tasks}, start=0.0, machine="m1")
    for _ in range(rng.choice((1, 2, 2))):
        spec = {"kind": "recover", "path": path, "gives_up": "any", "target": path, "says_dead": True}
        _process(drawing, spec, start=15 * pace * rng.random(), machine="m0")
        stall = {"kind": "stall", "process": len(drawing.plan["processes"]) - 1, "by": "step"}
        since = rng.choice(("flush entry", "flush entry", "committing", ""))
        stall |= {"since": since, "at": rng.choice((0, 0, 1, 3, 10) if since else (10, 100))}
        drawing.faults.append({**stall, "for": rng.choice((2.5, 4.5, 9.5)) * pace})
    if rng.random() < 0.5:
        pauses = [rng.choice((1.0, 61.0)) for _ in range(8)]
        _process(drawing, {"kind": "compact", "path": path, "grace": 60.0, "pauses": pauses}, start=pace)


def _process(drawing: Drawing, spec: dict[str, Any], *, start: float, machine: str | None = None) -> None:
    """Draw a process whose faults are drawn by this module instead of by `plan`."""
    machine = drawing.rng.choice(_MACHINES) if machine is None else machine
    drawing.process(spec, start=start, machine=machine)["own faults"] = True


def _moment(drawing: Drawing) -> dict[str, Any]:
    """Draw a number of steps, counted from a point where a log is about to change, or from the start."""
    since = drawing.rng.choice(("", "flushing", "flush entry", "flush entry", "publishing", "committing", "leaving"))
    moment = {"by": "step", "since": since, "at": int(10 ** (drawing.rng.random() * (2.0 if since else 3.0)))}
    return {**moment, "nth": drawing.rng.choice((1, 1, 2, 3, 8))} if since else moment


def _strike(drawing: Drawing, times: _Times) -> float:
    """Draw a fault of the process drawn last, and return the time at which it may strike."""
    rng, number = drawing.rng, len(drawing.plan["processes"]) - 1
    after = rng.choice((0.5, 3.0, 20.0, times.silence)) * (0.5 + rng.random())
    chance = rng.random()
    kill = {"kind": "kill", "process": number, **_moment(drawing)}
    if chance < 0.3:
        drawing.faults.append(kill)
    elif chance < 0.45:
        drawing.faults.append({"kind": "kill", "process": number, "by": "time", "at": after})
    elif chance < 0.75:
        stall = {"kind": "stall", "process": number, "for": times.silence * rng.choice((0.1, 1.1, 1.5, 4.0))}
        stall |= {"by": "time", "at": after} if rng.random() < 0.3 else _moment(drawing)
        if rng.random() < 0.3:
            stall["then"] = {**_moment(drawing), "kind": rng.choice(("kill", "stall")), "for": times.silence}
        drawing.faults.append(stall)
    elif chance < 0.85:
        how = rng.choice(("anyio", "asyncio"))
        drawing.faults.append({"kind": "cancel", "process": number, "how": how, **_moment(drawing)})
    return after


def _enders(drawing: Drawing, path: str, times: _Times, moment: float) -> None:
    """Draw a few concurrent processes that end silent or dead writers. Some of them stall or die."""
    rng = drawing.rng
    start = moment + rng.choice((0.0, 1.0, times.silence, 1.3 * times.silence)) * (0.9 + 0.3 * rng.random())
    for _ in range(rng.choice((1, 2, 2, 3))):
        if rng.random() < 0.3:
            spec = _writer(drawing, path, times)
            if rng.random() < 0.5:
                spec["options"]["on_duplicate"] = "skip"
        else:
            spec = {"kind": "recover", "path": path}
            if rng.random() < 0.4:
                says_dead = rng.random() < 0.9
                spec |= {"gives_up": rng.choice(("dead", "any")), "target": path, "says_dead": says_dead}
        _process(drawing, spec, start=start + rng.choice((0.0, 0.5, times.silence)) * rng.random())
        if rng.random() < 0.4:
            # By the time its fence or end arrives, the writer has continued or was ended by another process.
            stall = {"kind": "stall", "process": len(drawing.plan["processes"]) - 1, "by": "step"}
            stall |= {"since": rng.choice(("flush entry", "flush entry", "publishing", "committing"))}
            stall |= {"at": rng.choice((0, 0, 1, 3, 10)), "for": times.silence * rng.choice((0.1, 0.5, 1.5))}
            drawing.faults.append(stall)
        elif rng.random() < 0.6:
            _strike(drawing, times)


@operation("look")
async def look(world: Any, process: Any, spec: dict[str, Any]) -> None:
    """Check repeatedly that the manifest can be read."""
    for pause in spec["pauses"]:
        try:
            await asyncrec.read_manifest(spec["path"])
        except ManifestError as error:
            world.book.complain("a manifest can be read at any time", f"{spec['path']}: {error}")
        except StorageError:
            pass  # no job has begun, or the store failed
        await anyio.sleep(pause)
