"""The main themes: each draws a cast of processes that interfere with each other."""

from __future__ import annotations

from typing import Any

from .bystanders import bystanders, elsewhere
from .operations import Drawing, theme
from .sources import CONVERTED, DAMAGED, SOURCE

__all__ = ["SIZES", "writer"]

SIZES = (20, 60, 300, 3000)


def _limit(drawing: Drawing, share: float = 0.08) -> list[Any] | None:
    if not drawing.chance(share):
        return None
    return [drawing.rng.choice(("anyio", "asyncio")), drawing.rng.choice((0.0, 0.001, 0.1, 5.0))]


def _tasks(drawing: Drawing, *, spools: bool, commits: bool, keys: str, partitions: bool) -> list[list[list[Any]]]:
    rng = drawing.rng
    size = rng.choice(SIZES)
    total = 0
    tasks = []
    for task in range(rng.choice((1, 1, 2, 3))):
        actions: list[list[Any]] = []
        # The records with keys may begin and end anywhere in a shard.
        first_key = {"none": 1 << 30, "all": 0, "late": rng.randrange(1, 15)}[keys]
        for _ in range(rng.choice((3, 8, 20))):
            chance = rng.random()
            if chance < 0.62:
                options: dict[str, Any] = {}
                if partitions:
                    options["partition"] = rng.randrange(4)
                if (limit := _limit(drawing)) is not None:
                    options["limit"] = limit
                if rng.random() < 0.05:
                    options["mutable"] = True
                has_key = total >= first_key and rng.random() < 0.9
                key = f"{task}-{total}-{rng.randrange(1 << 20)}" if has_key else None
                actions.append(["write", size, key, options])
                total += 1
            elif chance < 0.72:
                count = rng.choice((2, 5, 30))
                given = {"partition": rng.randrange(4)} if partitions else {}
                actions.append(["many", count, size, {**given, "limit": _limit(drawing)}])
                total += count
            elif chance < 0.84:
                actions.append(["flush", _limit(drawing)])
            elif chance < 0.88:
                if spools:
                    actions.append(["wait", "spooled", _limit(drawing)])
            elif chance < 0.93:
                if commits:
                    actions.append(["commit", _limit(drawing)])
            elif chance < 0.97:
                actions.append(["sleep", rng.choice((0.0, 0.01, 1.0, 30.0, 1000.0))])
            elif chance < 0.98:
                actions.append(["bad"])
            elif chance < 0.985:
                actions.append(["fail"])
        if rng.random() < 0.25:
            actions.append(["sleep", 1000.0])  # the writer stays open without new records
        tasks.append(actions)
    return tasks


def writer(
    drawing: Drawing, path: str, *, fixed: bool, spool: str | None = None, mode: str = "append"
) -> dict[str, Any]:
    rng = drawing.rng
    options: dict[str, Any] = {"compression": rng.choice(("", "", "", "GZIP", "members", "ZLIB")), "mode": mode}
    if fixed:
        options["num_shards"] = rng.randint(1, 3)
    else:
        for option, values in (
            ("max_shard_records", (1, 3, 10, 100)),
            ("max_shard_bytes", (100, 2000, 50_000)),
            ("max_shard_seconds", (0.5, 20.0, 500.0)),
        ):
            if rng.random() < 0.45:
                options[option] = rng.choice(values)
        options["open_shards"] = rng.choice((1, 1, 2, 4))
        if rng.random() < 0.6:
            options["flush_seconds"] = rng.choice((None, 0.1, 1.0, 40.0))
        if rng.random() < 0.2:
            options["recover"] = False
    keys = rng.choice(("none", "all", "late", "late"))
    if rng.random() < 0.2:
        options["index"] = False
    if rng.random() < 0.25:
        options["on_duplicate"] = "skip"
    if rng.random() < 0.2:
        options["on_error"] = rng.choice(("commit", "discard"))
    if rng.random() < 0.2:
        options["exit_timeout"] = rng.choice((0.0, 1.0, 100.0))
    if rng.random() < 0.3:
        options["memory_limit"] = rng.choice(
            (20_000 if drawing.may("write_many beyond the memory") else 1 << 20, 3 << 20)
        )
    if spool is not None:
        options["spool"] = spool
        if rng.random() < 0.2:
            options["spool_limit"] = rng.choice((2000, 50_000))
    partitions = not fixed and options["open_shards"] > 1 and rng.random() < 0.5
    local = path.startswith("/")
    if (local or spool is not None) and not drawing.may("keys beside a journal"):
        keys = "none"
    in_store = not fixed and options.get("flush_seconds", "default") is not None
    spools = (local or spool is not None or in_store) and mode != "replace"
    tasks = _tasks(drawing, spools=spools, commits=not fixed and mode != "replace", keys=keys, partitions=partitions)
    spec = {"kind": "sharded", "path": path, "options": options, "tasks": tasks}
    if not partitions and rng.random() < 0.15:
        spec["partition_by"] = True
        for action in (action for actions in tasks for action in actions):
            if action[0] == "write" and rng.random() < 0.1 and drawing.may("a partition_by that raises"):
                action[3]["raises"] = True
    return spec


def _promises_nothing(spec: dict[str, Any]) -> None:
    """Remove all flushes from the plan, because a job that has promised records cannot be undone."""
    spec["tasks"] = [[each for each in actions if each[0] not in ("flush", "wait")] for actions in spec["tasks"]]
    if "num_shards" not in spec["options"]:
        spec["options"]["flush_seconds"] = None


@theme("crawl", 4.0)
def crawl(drawing: Drawing) -> None:
    """Draw rolling writers that die and are restarted, on a disk, with a spool, or directly to a store."""
    rng = drawing.rng
    where = rng.choice(("local", "local", "spool", "spool", "store"))
    path = drawing.target(local=where == "local")
    mode = rng.choice(("append", "append", "append", "new"))
    for number in range(rng.choice((1, 1, 2, 3))):
        spool = f"/m0/{path.split('/')[-2]}-spool{number}" if where == "spool" else None
        start = 0.0
        for _ in range(rng.choice((1, 2, 3))):
            machine = elsewhere(drawing, path, spool)
            spec = writer(drawing, path, fixed=False, spool=spool, mode=mode)
            process = drawing.process(spec, start=start, machine=machine)
            if spec["options"].get("on_error") == "discard" and rng.random() < 0.5:
                process["discards"] = True
                _promises_nothing(spec)
            start += drawing.later()
        bystanders(drawing, path, spool=spool)


@theme("held", 0.7)
def held(drawing: Drawing) -> None:
    """Draw rolling writers whose program blocks the event loop, as a parser might, and is killed while blocking it."""
    rng = drawing.rng
    local = rng.random() < 0.6
    path = drawing.target(local=local)
    spool = None if local else f"/m0/{path.split('/')[-2]}-spool"
    start = 0.0
    for _ in range(rng.choice((1, 2))):
        spec = writer(drawing, path, fixed=False, spool=spool)
        spec["options"]["flush_seconds"] = rng.choice((0.1, 1.0, 40.0))
        for actions in spec["tasks"]:
            for _ in range(rng.choice((1, 2, 4))):
                at = rng.randrange(len(actions) + 1)
                # The longest pause is long enough for earlier records to reach the disk.
                sleep = rng.choice((0.0, 0.0, 5.0, 110.0))
                actions[at:at] = [["sleep", sleep], ["hold", rng.choice((3.0, 200.0, 200.0))]]
        drawing.process(spec, start=start)["holds"] = rng.random() < 0.8
        start += drawing.later()


@theme("fixed", 2.0)
def fixed(drawing: Drawing) -> None:
    """Draw writers of fixed sets with the same name, concurrent or successive, and writers that append to them."""
    rng = drawing.rng
    where = rng.choice(("local", "local", "spool", "store", "store"))
    path = drawing.target(local=where == "local")
    if where == "store" and rng.random() < 0.25:
        _taken_over(drawing, path)
        return
    together = drawing.may("fixed writers at once")
    start = 0.0
    safe = where == "store" and drawing.spared("a fixed writer on a store that fails")
    shards = rng.randint(1, 3)
    for number in range(rng.choice((1, 2, 2, 3)) if together else 1):
        spool = f"/m0/{path.split('/')[-2]}-spool{number}" if where == "spool" else None
        spec = writer(drawing, path, fixed=True, spool=spool, mode=rng.choice(("append", "append", "new")))
        spec["options"]["num_shards"] = shards
        if rng.random() < 0.2:
            spec["options"]["take_over"] = True
        machine = elsewhere(drawing, path, spool)
        process = drawing.process(spec, start=start + rng.random(), safe=safe, machine=machine)
        if rng.random() < 0.3:
            process["takes_back"] = True
            _promises_nothing(spec)
        if rng.random() < 0.3:
            start += drawing.later()
    if rng.random() < 0.5:
        late = writer(drawing, path, fixed=False)
        drawing.process(late, start=start + drawing.later())
    bystanders(drawing, path)


def _taken_over(drawing: Drawing, path: str) -> None:
    """Draw an operator's mistake: taking over the name of a writer on another machine that is alive and publishes."""
    rng, settings = drawing.rng, drawing.plan["settings"]
    settings["failing"] = rng.choice((0.0, 0.0, 0.01))
    settings["parts"] = rng.choice((100, 700))
    settings["lax"] = rng.random() < 0.7
    first, second = writer(drawing, path, fixed=True), writer(drawing, path, fixed=True)
    first["options"]["num_shards"] = second["options"]["num_shards"] = rng.randint(1, 3)
    second["options"]["take_over"] = True
    for actions in first["tasks"]:
        actions.insert(rng.randrange(len(actions) + 1), ["sleep", 1000.0])
    drawing.process(first, start=0.0, machine="m1", safe=rng.random() < 0.7)
    drawing.process(second, start=rng.choice((5.0, 500.0)) * (1 + rng.random()), machine="m0")
    if rng.random() < 0.5:
        bystanders(drawing, path)


@theme("replace", 2.0)
def replace(drawing: Drawing) -> None:
    """Draw concurrent writers that replace the data set, and some that append to it."""
    rng = drawing.rng
    path = drawing.target(local=rng.random() < 0.5)
    together = drawing.may("replacing writers at once")
    first = writer(drawing, path, fixed=rng.random() < 0.5)
    alone = drawing.spared("a replacing writer that fails")
    drawing.process(first, start=0.0, safe=alone or rng.random() < 0.7)
    start = drawing.later() if together else 200_000.0
    for _ in range(rng.choice((1, 2, 2, 3))):
        if rng.random() < 0.3:
            count = rng.choice((3, 20))
            spec: dict[str, Any] = {"kind": "split", "path": path, "count": count, "size": rng.choice(SIZES[:3])}
            spec.update(num_shards=rng.randint(1, 3), memory_limit=rng.choice((500, 64 << 20)))
        else:
            spec = writer(drawing, path, fixed=rng.random() < 0.6, mode="replace")
        drawing.process(spec, start=start + rng.random() * 2, safe=alone, machine=elsewhere(drawing, path))
        if not together or rng.random() < 0.3:
            start += 200_000.0 if not together else drawing.later()
    if rng.random() < 0.5 and together:
        drawing.process(writer(drawing, path, fixed=False), start=start + rng.random() * 2)
    bystanders(drawing, path)


@theme("joint", 1.0)
def joint(drawing: Drawing) -> None:
    """Draw drivers of jobs with the same id, concurrent or successive, with tasks that fail or run again."""
    rng = drawing.rng
    path = drawing.target(local=rng.random() < 0.5)
    options: dict[str, Any] = {"mode": rng.choice(("append", "append", "new", "replace"))}
    options |= {"compression": rng.choice(("", "", "GZIP")), "index": rng.random() < 0.8}
    if rng.random() < 0.8:
        options["job_id"] = "monday"
    if rng.random() < 0.4:
        drawing.process(writer(drawing, path, fixed=False), start=0.0)
    start = 0.0
    for _ in range(rng.choice((1, 2, 2, 3))):
        parts = [
            {
                "size": rng.choice(SIZES),
                "count": rng.choice((1, 3, 10)),
                "attempts": [*rng.sample(("fails", "lost"), rng.choice((0, 0, 1, 2))), "counts"],
            }
            for _ in range(rng.choice((1, 2, 3)))
        ]
        limits = rng.choice(({}, {"max_shard_records": 2}, {"max_shard_bytes": 500}))
        given = {**options, "take_over": rng.random() < 0.3, "detached": rng.random() < 0.4}
        spec = {"kind": "joint", "path": path, "options": given, "parts": parts, "limits": limits}
        drawing.process(spec, start=start + rng.random(), machine=elsewhere(drawing, path))
        if rng.random() < 0.7:
            start += drawing.later()
    bystanders(drawing, path)


@theme("tools", 2.0)
def tools(drawing: Drawing) -> None:
    """Draw tools that repeatedly make a target from a source, while other processes clean up around it."""
    rng = drawing.rng
    local = rng.random() < 0.6
    tool = rng.choice(("reshard", "reshard", "convert", "copy", "repair"))
    options: dict[str, Any] = {}
    path = drawing.target(local=local)
    source, expects = SOURCE
    if tool == "reshard":
        options = rng.choice(({"num_shards": 3}, {"max_shard_records": 7}, {"max_shard_bytes": 2000}))
        options = {**options, "compression": rng.choice(("", "GZIP"))}
        if rng.random() < 0.3:
            options |= {"shuffle": True, "seed": 1, "spills": True}
    elif tool == "convert":
        source, expects = CONVERTED
        options = {"max_shard_bytes": rng.choice((500, 2000, 1 << 20))}
    elif tool == "repair":
        source, expects = DAMAGED
        path += ".tfrecord"
        options = {"overwrite": rng.random() < 0.3}
    spec = {"kind": "make", "tool": tool, "source": source, "target": path, "options": options, "expects": expects}
    start = 0.0
    safe = drawing.spared("a tool that fails")
    for _ in range(rng.choice((1, 2, 3))):
        drawing.process(spec, start=start + rng.random() * 5, safe=safe, machine=elsewhere(drawing, path))
        if not drawing.may("tools at once"):
            start += 200_000.0
        elif rng.random() < 0.7:
            start += drawing.later()
    if tool != "repair" and drawing.may("recover beside tools"):
        bystanders(drawing, path)


@theme("files", 1.0)
def files(drawing: Drawing) -> None:
    """Draw writers of single files, which replace, create or append to them."""
    rng = drawing.rng
    mode = rng.choice(("w", "x", "a", "a"))
    safe = mode == "a" and drawing.spared("continued files that are torn")
    path = drawing.target(local=mode == "a" or rng.random() < 0.6, name="events.tfrecord")
    start = 0.0
    kind = rng.choice(("", "", "GZIP", "ZLIB") if mode != "a" else ("", "", "GZIP"))
    for _ in range(rng.choice((1, 2, 3))):
        tasks = _tasks(drawing, spools=False, commits=False, keys="none", partitions=False)
        spec = {"kind": "file", "path": path, "mode": mode, "compression": kind, "tasks": tasks}
        drawing.process(spec, start=start + rng.random(), safe=safe)
        if rng.random() < 0.7:
            start += drawing.later()


@theme("reading", 1.0)
def reading(drawing: Drawing) -> None:
    """Draw readers of a source. Any of their waits for the next record may be cancelled."""
    rng = drawing.rng
    for _ in range(rng.choice((1, 2))):
        how = rng.choice(("shard", "shard", "interleave", "shuffled", "sampler"))
        options: dict[str, Any] = {}
        if how == "shard":
            options = {"chunk_size": rng.choice((100, 1000, 256 << 10)), "on_corrupt": rng.choice(("raise", "skip"))}
        elif how == "interleave":
            options = {"cycle_length": rng.choice((1, 2, 4)), "block_length": rng.choice((1, 5))}
            options["parallelism"] = rng.choice((0, 2))
        elif how == "shuffled":
            options = {"mode": rng.choice(("block", "buffer", "global")), "buffer_size": rng.choice((5, 1000))}
        else:
            options = {"batch_size": rng.choice((4, 32)), "prefetch_size": rng.choice((0, 2))}
        kind = rng.choice(("plain", "gzip", "members", "zlib"))
        source, expects = SOURCE
        spec = {"kind": "read", "path": f"{source[:-6]}-{kind}/pages", "how": how, "options": options}
        hows = ["anyio", "asyncio"] if drawing.may("native cancellation of reads") else ["anyio"]
        spec.update(shard=rng.randrange(3), expects=expects, interruptions=rng.randrange(1 << 30), hows=hows)
        drawing.process(spec, start=0.0, safe=rng.random() < 0.8)
