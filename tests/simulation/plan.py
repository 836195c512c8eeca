"""Draw the plan of a world from its seed, as plain data that can be printed, shrunk and run again.

This module draws only the plan. Random events while the plan runs (which task is next, how long a request takes) come
from a separate generator with the same seed, so that a plan remains valid if parts of it are removed.
"""

from __future__ import annotations

import random
from typing import Any

from . import (  # noqa: F401  # modules that register themselves
    cast,
    deleted,
    flushed,
    joined,
    joint,
    keyed,
    operations,
    queues,
    reading,
    seen,
    sharing,
    tooling,
    writing,
)

__all__ = ["KNOWN_HOLES", "draw"]

# Known bugs of asyncrec that break a promise. Plans avoid them until they are fixed; then remove the line here.
# `Drawing.may` takes these names.
KNOWN_HOLES: frozenset[str] = frozenset()

Plan = dict[str, Any]

_WHEN = ("call", "call", "step", "step", "time")
_HOWS = ("anyio", "asyncio")


def draw(seed: int, *, holes: frozenset[str] = KNOWN_HOLES, themes: tuple[str, ...] = ()) -> Plan:
    rng = random.Random(f"plan {seed}")
    plan: Plan = {"seed": seed, "left_out": sorted(holes), "settings": _settings(rng), "processes": [], "faults": []}
    drawing = operations.Drawing(rng, plan, holes)
    names = list(themes or operations.THEMES)
    weights = [operations.WEIGHTS.get(name, 1.0) for name in names]
    drawing.theme(rng.choices(names, weights)[0])
    if rng.random() < 0.15 and not themes:
        drawing.theme(rng.choices(names, weights)[0])
    if plan["settings"]["shared"]:
        _spread_over_hosts(drawing)
    plan["faults"] = _faults(drawing) + drawing.faults
    settings = plan["settings"]
    settings["late"] = settings["late"] and drawing.may("effects after the answer")
    settings["lax"] = settings["lax"] and drawing.may("conditions that a store ignores")
    settings["lost"] = drawing.may("answers to a publication that are lost")
    if not drawing.may("short reads"):
        settings["short"] = 0.0
    # All settings added later have their own generators, so that the plans of existing seeds do not change.
    settings["lists"] = random.Random(f"lists {seed}").choice((0.0, 0.0, 0.0, 0.05, 0.3))
    keys = random.Random(f"keys {seed}")
    settings["knobs"]["asyncrec._shards.commit.key_runs:_MOST_AT_ONCE"] = keys.choice((3, 20, 1 << 20))
    settings["knobs"]["asyncrec._shards.commit.key_runs:_LEAST_ENTRIES"] = keys.choice((2, 2, 1 << 16))
    merging = random.Random(f"merging {seed}")
    writers = "asyncrec._shards.writing.checkpoints"
    settings["knobs"][f"{writers}:DELAY_SECONDS"] = merging.choice((1.0, 60.0, 1e9, 1e9))
    settings["knobs"][f"{writers}:MANY_SEGMENTS"] = merging.choice((1, 2, 5))
    settings["knobs"][f"{writers}:SHARDS_FOR_A_LOOK"] = merging.choice((1, 3, 1000))
    settings["knobs"][f"{writers}:MOST_DELETED"] = merging.choice((1, 1000))
    settings["knobs"]["asyncrec._shards.commit.compaction:GRACE_SECONDS"] = merging.choice((60.0, 600.0))
    if drawing.steady:
        settings["failing"] = settings["lists"] = 0.0
    return plan


def _spread_over_hosts(drawing: operations.Drawing) -> None:
    """Spread the processes over two hosts that share a disk but not its locks, unless they rely on locks alone."""
    drawing.plan["settings"]["links"] = True  # otherwise, exclusive creation relies on a lock
    for process in drawing.plan["processes"]:
        kinds = {spec["kind"] for spec in process["operations"]}
        paths = [spec.get("options", {}).get("spool", spec.get("path", "")) for spec in process["operations"]]
        whole = kinds <= {"sharded", "recover", "verify", "compact", "joint", "delete", "join", "follow"}
        if whole and all(path.startswith("/m0/") and "-spool" not in path for path in paths):
            process["host"] = drawing.rng.choice(("m0", "m0b"))


def _settings(rng: random.Random) -> dict[str, Any]:
    calm = rng.random() < 0.3
    settings = {
        "shuffles": rng.random() < 0.8,
        "stopping": rng.choice((0.0, 0.0, 0.02, 0.1)),
        "failing": 0.0 if calm else rng.choice((0.0, 0.01, 0.05, 0.2)),
        "late": rng.random() < 0.3,
        "lax": rng.random() < 0.3,
        "damaging": 0.0,
        "whole seconds": False,
        "checksums": rng.random() < 0.7,
        "parts": rng.choice((100, 700, 1 << 20)),
        "chunk": rng.choice((100, 700, 5000, 1 << 20)),
        "short": rng.choice((0.0, 0.0, 0.0, 0.1)),
        "links": rng.random() < 0.9,
        "skews": rng.random() < 0.3,
        "memory": rng.random() < 0.2,
        "shared": rng.random() < 0.15,
        "knobs": {
            "asyncrec.storage._local.storage:BESIDE_CHUNK": rng.choice((64, 256, 256 << 10)),
            "asyncrec.storage._local.sink:_LEAST_CHUNK": 64,
            "asyncrec._shards.spool.uploader:_STEP": rng.choice((100, 256 << 10)),
            # Longer than the usual two seconds, which would dominate a world that lasts for hours.
            "asyncrec._shards.writing.telling:STATUS_SECONDS": rng.choice((30.0, 300.0, 1e9)),
            "asyncrec._records.writing.inbox:_TOGETHER_BYTES": rng.choice((2000, 1 << 20)),
            "asyncrec.storage._local.sink:_MOST_TO_MEMORY": rng.choice((0, 2 << 20)),
            "asyncrec._records.reading.reader:INFLATE_BYTES": rng.choice((1000, 4 << 20)),
            "asyncrec._records.reading.decode_pipeline:_INFLATE_STEP": rng.choice((500, 256 << 10)),
            "*:LARGE_RECORD": rng.choice((200, 1 << 20, 1 << 20)),
            "*:BATCH_RECORDS": rng.choice((4, 1024)),
            "*:BATCH_BYTES": rng.choice((500, 512 << 10)),
        },
    }
    # With small parts, an object of hundreds of parts would never be uploaded. Real stores fail less often.
    settings["parts"] = max(settings["parts"], int(100_000 * settings["failing"]))
    return settings


def _faults(drawing: operations.Drawing) -> list[dict[str, Any]]:
    rng, processes = drawing.rng, drawing.plan["processes"]
    faults: list[dict[str, Any]] = []
    for number, process in enumerate(processes):
        chance = rng.random()
        if process["safe"] or process.get("own faults"):
            continue
        if process.get("holds"):
            kill = {"kind": "kill", "process": number, "by": "time", "since": "holding"}
            faults.append({**kill, "nth": rng.choice((1, 1, 2)), "at": rng.choice((0.0, 1.0, 120.0, 190.0, 230.0))})
            continue
        if process.get("takes_back"):
            faults.append(_takes_back(rng, number))
            continue
        if process.get("discards"):
            since = {"since": rng.choice(("first key", "leaving")), "at": int(10 ** (rng.random() * 1.7))}
            cancel = {"kind": "cancel", "process": number, "how": "anyio", **since, "then": _while_it_removes(rng)}
            faults.append(cancel)
            continue
        if chance > 0.85 and any("num_shards" in spec.get("options", {}) for spec in process["operations"]):
            faults.append({**_in_its_first_flush(rng), "machine": "m0", "process": number})
        elif chance < 0.45:
            kill = {"kind": "kill", "process": number, "by": rng.choice(_WHEN), **_moment(drawing)}
            if chance < 0.06:
                kill |= _while_it_removes(rng)
            elif kill["by"] == "time":
                kill["at"] = rng.choice((1.0, 80.0, 400.0, 900.0))
            faults.append(kill)
        elif chance < 0.6:
            how = rng.choice(_HOWS if drawing.may("native cancellation of commits") else _HOWS[:1])
            cancel = {"kind": "cancel", "process": number, "how": how, **_moment(drawing)}
            if rng.random() < 0.2:  # while the thread that takes the lock has not returned it yet
                cancel |= {"since": "locking", "nth": rng.choice((1, 1, 2, 3)), "at": rng.choice((0, 0, 0, 1, 2))}
            if rng.random() < 0.3:  # the process dies during cleanup
                cancel["then"] = _while_it_removes(rng) if rng.random() < 0.4 else _dies(rng, 2.0)
            faults.append(cancel)
    specs = [spec for process in processes for spec in process["operations"]]
    if any(process["safe"] for process in processes):
        return faults  # a safe process must also be spared the machine's faults
    if rng.random() < 0.3:
        faults.append({"kind": "power", "machine": "m0", "at": int(10 ** (rng.random() * 3.3))})
    if rng.random() < 0.1 and (drawing.may("a spool on a full disk") or not any(map(_spooled, specs))):
        faults.append({"kind": "full", "machine": "m0", "spare": rng.randrange(1, 20_000)})
    spills = any(spec["kind"] == "split" or spec.get("options", {}).get("spills") for spec in specs)
    if rng.random() < 0.15 and (drawing.may("a shuffle on a disk that fails") or not spills):
        calls = rng.choice((1, 1, 3, 10, 100))
        faults.append({"kind": "disk", "machine": "m0", "for": calls, **_of_somebody(drawing)})
    if rng.random() < 0.15 and not drawing.steady:
        faults.append({"kind": "down", "for": rng.choice((1.0, 100.0, 1000.0)), **_of_somebody(drawing)})
    if rng.random() < 0.25:
        number = rng.choice(_spooling(processes) or [0])
        power: dict[str, Any] = {"kind": "power", "machine": "m0", "process": number, "at": 0}
        power["since"] = rng.choice(("beginning", "beginning", "leaving", "publishing", "committing", "removing"))
        # From the second call on, the object has its name, but the name is not durable yet.
        faults.append({**power, "calls": rng.choice((1, 2, 2, 2, 3, 10))})
    return faults


def _in_its_first_flush(rng: random.Random) -> dict[str, Any]:
    """Draw a fault during the first flush of a fixed set. Nothing was promised before, so no object may be left."""
    at = int(10 ** (rng.random() * 1.3))
    if rng.random() < 0.5:
        return {"kind": "disk", "since": "flushing", "at": at - 1, "for": rng.choice((1, 1, 3))}
    return {"kind": "kill", "by": rng.choice(("call", "call", "step")), "since": "flushing", "at": at}


def _moment(drawing: operations.Drawing) -> dict[str, Any]:
    """Draw a time after the start of a process, or after it reaches a critical point."""
    since = drawing.rng.choice(
        ("", "", "", "beginning", "leaving", "first key", "flushing", "publishing", "committing")
    )
    return {"since": since, "at": int(10 ** (drawing.rng.random() * (2.0 if since else 3.0)))}


def _takes_back(rng: random.Random, number: int) -> dict[str, Any]:
    """Draw faults that keep a writer from committing published objects, and further faults during its cleanup."""
    first: dict[str, Any] = {"kind": "disk", "since": "committing", "at": 0, "for": rng.choice((1, 1, 2))}
    if rng.random() < 0.3:
        first = {"kind": "cancel", "how": rng.choice(_HOWS), "since": "publishing", "at": int(10 ** (rng.random() * 2))}
    then: dict[str, Any] = {"kind": "disk", "at": int(10 ** (rng.random() * 1.6)), "for": 2}
    if rng.random() < 0.7:
        then = _while_it_removes(rng) if rng.random() < 0.5 else _dies(rng, 1.5)
    return {**first, "machine": "m0", "process": number, "then": then}


def _dies(rng: random.Random, most: float) -> dict[str, Any]:
    return {"kind": "kill", "by": rng.choice(("call", "step")), "at": int(10 ** (rng.random() * most))}


def _while_it_removes(rng: random.Random) -> dict[str, Any]:
    """Draw a kill between two removals, when an object is gone but its sidecars still exist."""
    kill = {"kind": "kill", "by": rng.choice(("call", "call", "step")), "since": "removing"}
    return {**kill, "nth": rng.choice((1, 1, 1, 2, 3, 6)), "at": rng.choice((0, 0, 1, 2, 5))}


def _of_somebody(drawing: operations.Drawing) -> dict[str, Any]:
    """Draw a time, relative to some process, at which a disk or the store fails for all processes."""
    return {"process": drawing.rng.randrange(len(drawing.plan["processes"])), **_moment(drawing)}


def _spooling(processes: list[dict[str, Any]]) -> list[int]:
    """Return the processes that use a spool or, if any of them have their own spool, only these."""
    spools = [
        next((spec["options"]["spool"] for spec in each["operations"] if _spooled(spec)), None) for each in processes
    ]
    spooling = [number for number, spool in enumerate(spools) if spool is not None]
    return [number for number in spooling if spools.count(spools[number]) == 1] or spooling


def _spooled(spec: dict[str, Any]) -> bool:
    return "spool" in spec.get("options", {})
