"""Shorthand for configurations: functions for actors, initial store contents, and limits on what may happen when."""

from __future__ import annotations

from typing import Any

from .. import checkpoints, ender, readers, sources, turns, writer
from ..judge import Told
from ..objects import Add, Content, Data, Entry, Name, Store
from ..rules import on
from ..states import Actor, Process
from ..store import Delete, Request
from ..writer import Do, Writing


def writes(log: str, *script: Do, minds_turns: bool = False, **how: Any) -> Actor:
    return Actor(log, writer.writer, (Writing(log, script, **how), minds_turns))


def ends(me: str, log: str, how: str = "", attempts: int = 1) -> Actor:
    return Actor(me, ender.ender, (me, log, how, attempts))


def removes(me: str, what: str, how: str = "", may_end: bool = True) -> Actor:
    return Actor(me, turns.remover, (me, what, how, may_end))


def is_fixed(me: str) -> Actor:
    return Actor(me, turns.fixed, (me, me.lower()))


def merges(me: str, how: str = "", pointer: bool = False) -> Actor:
    return Actor(me, checkpoints.maker, (me, how, pointer))


def reads(me: str, how: str = "whole") -> Actor:
    return Actor(me, readers.reader, (me, how))


def reads_by_pointer(me: str) -> Actor:
    return Actor(me, readers.over_https, (me,))


def follows(me: str, rounds: int, in_folder: bool = False) -> Actor:
    return Actor(me, readers.follower, (me, rounds, in_folder))


def consumes(me: str, *legs: tuple[int, bool], source: str = "q") -> Actor:
    return Actor(me, sources.consumer, (me, source, *legs))


def chooses(me: str, id: str, last: int) -> Actor:
    return Actor(me, sources.chosen, (me, id, last))


def committed(
    log: str, *records: str, sidecars: bool = False, closed: bool = False
) -> tuple[tuple[Name, Content], ...]:
    """Return the objects of a log that has committed one shard for each record."""
    objects: list[tuple[Name, Content]] = [(Name("entry", log), Entry("begin", "t"))]
    for number, record in enumerate(records):
        shard = Name("shard", log, number)
        sidecar = shard._replace(kind="sidecar") if sidecars else None
        add = Add(shard, (record,), sidecar=sidecar)
        objects.append((Name("entry", log, number + 1), Entry("commit", "t", (add,))))
        objects += [(name, Data((record,))) for name in add.objects()]
    if closed:
        objects.append((Name("entry", log, len(records) + 1), Entry("end", log)))
    return tuple(objects)


def told(*records: str) -> Told:
    return Told(committed=frozenset(records))


def grace(me: str, request: Request, store: Store, processes: dict[str, Process]) -> bool:
    """Allow no deletion of a covered object between a reader's listing and its last read of a listed object."""
    if not (isinstance(request, Delete) and request.covered and on("grace")):
        return True
    return not any(process.function is readers.reading and process.answers for process in processes.values())


def lock(me: str, request: Request, store: Store, processes: dict[str, Process]) -> bool:
    """Let A begin only after W has died, because in a folder A needs W's lock. A power cut ends W before A begins.

    A power cut also kills a follower in the middle of a round; between rounds, it continues from its saved cursor.
    """
    power = processes.get("power")
    if power is not None and me == "A":
        return power.request is None
    if power is not None and me == "f":
        return power.request is not None or not processes["f"].answers
    begun = (each.answers or each.request is None for name, each in processes.items() if name in ("A", "power"))
    return me != "W" or not any(begun)
