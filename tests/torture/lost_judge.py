"""Judge the records of lost machines by comparing the machines' logs with the data sets. The checks are:

- Each acknowledged record is stored, and no record is stored twice.
- A lost record was accepted at most ``flush_seconds`` plus the time for its requests plus `MARGIN` before its machine
  was lost.
- `tools.verify` finds no fault. After a final `recover`, no flush entries are left except fences.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass, field

import anyio
from flushing_machines import MACHINE, Line, Machine, become, key_of, record_of
from store_processes import prepare

import asyncrec
from asyncrec import tools
from asyncrec._shards.journal.flush_entry import parse_flush_entry
from asyncrec.storage import Storage

# The time, in addition to flush_seconds and requests, that it may take until a thread has compressed an entry and the
# loop continues, if thirty processes share two cores.
MARGIN = 2.0
# The maximum number of consecutive requests: those of a full shard, with index, keys and segment, for which the next
# records must wait, and those of an entry in parts. Each machine keeps measuring requests. If one in the last ten
# seconds took longer than a second, the machine or the store cannot keep up with the writer, and ages are not judged.
_REQUESTS = 8
_LAST_SECONDS, _SLOW = 10.0, 1.0


@dataclass
class Life:
    """The times at which a process was killed, stopped and continued; `None` if it was not."""

    killed: float | None = None
    stopped: float | None = None
    continued: float | None = None

    def loss(self, *, conflict: bool, fenced: bool) -> float | None:
        """Return the time at which unflushed records may be lost; `None` if that is unknown or never happens."""
        if self.stopped is not None and (fenced or self.continued is None):
            return self.stopped
        return None if conflict else self.killed

    def age(self, taken: float, lost: float) -> float:
        """Return for how long the process had been running since it accepted a record at ``taken`` when it was lost."""
        if self.stopped is None or self.continued is None or lost <= self.continued:
            return lost - taken
        return lost - taken - max(0.0, self.continued - max(self.stopped, taken))


@dataclass
class Findings:
    counts: Counter[str] = field(default_factory=Counter)
    oldest: float = 0.0
    problems: list[str] = field(default_factory=list)


def judge(machines: list[Machine], lives: dict[int, Life], flush_seconds: list[float], pipe: int) -> None:
    become("judge", machines[0].folder)
    prepare(machines[0].store)
    found = Findings()
    for machine in machines:
        errors = machine.log.with_suffix(".errors")
        if errors.exists():
            found.problems.append(f"the writer {machine.number} failed: {errors.read_text()[-300:]}")
        found.counts["conflicts"] += any(line.kind == "f" for line in machine.lines())
    anyio.run(_judge_all, machines, lives, flush_seconds, found)
    answer = {"counts": found.counts, "oldest": found.oldest, "problems": found.problems[:10]}
    os.write(pipe, json.dumps(answer).encode())


async def _judge_all(
    machines: list[Machine], lives: dict[int, Life], flush_seconds: list[float], found: Findings
) -> None:
    async with asyncrec.open_storage(machines[0].store.url, **machines[0].store.options) as storage:
        for dataset, name in enumerate(machines[0].names):
            try:
                await _judge_one(machines, lives, dataset, storage, flush_seconds[dataset], found)
            except Exception as error:
                found.problems.append(f"{name}: {error!r}")


async def _judge_one(
    machines: list[Machine],
    lives: dict[int, Life],
    dataset: int,
    storage: Storage,
    flush_seconds: float,
    found: Findings,
) -> None:
    first, name = machines[0], machines[0].names[dataset]
    try:
        await asyncrec.recover(name, storage=storage)
    except asyncrec.ObjectNotFoundError:
        return  # no machine's job has begun
    again = await asyncrec.recover(name, storage=storage)
    if again.records or again.shards or again.lost or again.damaged:
        found.problems.append(f"{name}: recovering once more did something: {again}")
    fenced = await _fenced(storage, name, found)
    stored = await _stored(first, storage, name, found)
    for machine in machines:
        life = lives[machine.number]
        _compare(machine, life, dataset, stored, flush_seconds, found, fenced=machine.writer in fenced)
    if again.unfinished:  # jobs that have flushed nothing since they began or last committed
        found.counts["unfinished"] += len(again.unfinished)
        await asyncrec.recover(name, dead=[job.id for job in again.unfinished], storage=storage)
        # Writers that wrote the same records again did not know about unflushed records in published shards.
        rewritten = {number for machine in machines for number in machine.again.get(dataset, {})}
        if (then := await _stored(first, storage, name, found, rewritten)) != stored:
            found.counts["published"] += (then - stored).total()
            if stored - then:
                found.problems.append(f"{name}: after all writers were declared dead, {stored - then} went")
        await _fenced(storage, name, found)


async def _fenced(storage: Storage, name: str, found: Findings) -> set[str]:
    """Return the writers whose flush logs end with a fence, and report all other remaining entries."""
    fenced = set()
    async for info in storage.list_objects(f"_flush/{name}/"):
        entry = parse_flush_entry(await storage.get(info.key), name=info.key)
        fenced.add(entry.writer)
        if not entry.fenced_by:
            found.problems.append(f"{name}: {info.key} is left")
    return fenced


async def _stored(
    machine: Machine, storage: Storage, name: str, found: Findings, rewritten: Collection[int] = ()
) -> Counter[int]:
    """Count the numbers of all records, and check that each record is intact and has its key.

    Each record may be stored only once, except those of machines whose records another machine has ``rewritten``.
    """
    stored: Counter[int] = Counter()
    try:
        async with asyncrec.open_dataset(name, storage=storage) as dataset:
            async for record in dataset:
                number = int(record[:12])
                stored[number] += 1
                if record != record_of(machine.seed, number, machine.record_bytes):
                    found.problems.append(f"{name}: there is another record {number}")
            for number in [*stored][:: max(1, len(stored) // 20)]:
                key = key_of(machine.seed, number, machine.keyed)
                if key is not None and int((await dataset.get_by_key(key))[:12]) != number:
                    found.problems.append(f"{name}: the key of {number} leads elsewhere")
    except asyncrec.ObjectNotFoundError:
        return stored  # nothing was flushed
    if twice := [number for number, times in stored.items() if times > 1 and number // MACHINE not in rewritten]:
        found.counts["twice"] += len(twice)
        found.problems.append(f"{name}: {len(twice)} records are there twice: {twice[:5]}")
    report = await tools.verify(name, storage=storage)
    if not report.ok:
        found.problems.append(f"{name}: {report}"[:600])
    return stored


def _compare(
    machine: Machine,
    life: Life,
    dataset: int,
    stored: Counter[int],
    flush_seconds: float,
    found: Findings,
    *,
    fenced: bool,
) -> None:
    taken: list[Line] = []
    acknowledged: set[int] = set()
    conflict = False
    for line in machine.lines():
        if line.dataset != dataset:
            continue
        if line.kind == "w":
            taken.append(line)
        elif line.kind == "t":
            acknowledged.add(line.number)
        elif line.kind == "a":
            acknowledged.update(each.number for each in taken[: line.number])
        elif line.kind == "f":
            conflict = True
    if life.continued is not None and fenced:
        found.counts["paused and fenced"] += 1
        found.counts["told so"] += conflict
    about = f"{machine.names[dataset]}, machine {machine.number}"
    found.counts["taken"] += len(taken)
    found.counts["stored"] += sum(stored[each.number] for each in taken)
    found.counts["acknowledged"] += len(acknowledged)
    if lost := sorted(acknowledged - set(stored)):
        found.counts["lost"] += len(lost)
        found.problems.append(f"{about}: {len(lost)} of {len(acknowledged)} acknowledged are lost: {lost[:5]}")
    if (end := life.loss(conflict=conflict, fenced=fenced)) is None:
        found.counts["conflicts of what ran"] += conflict
        return
    ages = [life.age(line.time, end) for line in taken if line.time <= end and line.number not in stored]
    found.counts["not flushed"] += len(ages)
    slow = _slowest_request(machine, life, end)
    found.counts["writers in time" if slow < _SLOW else "slow writers"] += 1
    if slow > _SLOW:
        return
    found.oldest = max(found.oldest, *ages, 0.0)
    if late := [age for age in ages if age > flush_seconds + _REQUESTS * slow + MARGIN]:
        what = f"up to {max(late):.1f} s, and a request had taken {slow:.1f} s"
        found.problems.append(f"{about}: {len(late)} records were lost at an age of {what}")


def _slowest_request(machine: Machine, life: Life, end: float) -> float:
    """Return the duration of the slowest request, even unfinished, that a machine measured before it was lost."""
    slowest, begun = 0.0, None
    for line in machine.lines():
        if line.kind == "p" and line.time < end:
            begun = line.time
        elif line.kind == "q" and begun is not None:
            if line.time > end - _LAST_SECONDS:
                slowest = max(slowest, life.age(begun, min(line.time, end)))
            begun = None
    return slowest if begun is None else max(slowest, life.age(begun, end))
