"""Readers, followers, and a reader that cannot list objects.

The problem: a listing arrives in pages, and each listed object is read later. The naive solution is to use whatever is
found. But A may rewrite a shard between two pages, and B may rewrite A's shard, and the reader finds both results. A
reader therefore checks that what it has read is consistent, and looks again if it is not. It needs neither a turn nor a
lock: names are never used twice, and a removal is a set difference that depends only on the shard it names.
"""

from __future__ import annotations

from . import questions
from .look import NO_CHECKPOINT, look_at
from .objects import Checkpoint, Data, Entry, Name, Store
from .rules import on
from .store import Ask, Become, Get, Recall, Sync, Tell
from .winning import Part

_ATTEMPTS = 3


def gather(how: str) -> Part:
    """Read what a look needs, object by object, from a listing that may be torn; `None` if it stays inconsistent."""
    for _ in range(_ATTEMPTS):
        names: tuple[Name, ...] = ()
        for page in (0,) if how == "whole" else (0, 1):
            names += yield Ask(questions.names, (page, how))
        found: Store = {}
        number = max((name.number for name in names if name.kind == "checkpoint"), default=0)
        checkpoint = (yield Get(Name("checkpoint", number=number))) if number else NO_CHECKPOINT
        if checkpoint is None:
            continue
        if number:
            found[Name("checkpoint", number=number)] = checkpoint
        if not (yield from _read_uncovered(names, checkpoint, found)):
            continue
        if look_at(found).whole or not on("whole-look"):
            return (found,)
    return None


def _read_uncovered(names: tuple[Name, ...], checkpoint: Checkpoint, found: Store) -> Part:
    lines = {line.log: line for line in checkpoint.logs}
    for name in names:
        line = lines.get(name.log)
        if name.kind != "entry" or (line and (line.ended or name.number <= line.last)):
            continue
        entry = yield Get(name)
        if entry is None:
            return False
        found[name] = entry
        if isinstance(entry, Entry) and entry.elsewhere is not None:
            found[entry.elsewhere] = (yield Get(entry.elsewhere)) or Data(())
    return True


def reader(me: str, how: str = "whole") -> Part:
    promised, gone = yield Recall()
    yield Become(reading, (me, how, promised, gone))
    return ""


def reading(me: str, how: str, promised: frozenset[str], gone: frozenset[str]) -> Part:
    parts = yield from gather(how)
    if parts is None:
        return "never whole"
    yield from _judge(me, look_at(*parts).records(), promised, gone)
    return "read"


def _judge(me: str, records: list[str], promised: frozenset[str], gone: frozenset[str]) -> Part:
    """Judge that every record promised before the reader began is found once, unless it has been removed since."""
    still, _ = yield Recall()
    if len(records) > len(set(records)):
        yield Tell("wrong", (f"{me} finds twice: {sorted(records)}",))
    if lost := (promised & still) - set(records):
        yield Tell("wrong", (f"{me} does not find {sorted(lost)}",))
    if back := gone & set(records):
        yield Tell("wrong", (f"{me} finds what was removed: {sorted(back)}",))


# -- a reader that cannot list objects


def over_https(me: str) -> Part:
    """Start from ``~latest.json`` and proceed to the newest checkpoint, number by number.

    The reader must find a checkpoint that is not older than the newest one at the time when it began.
    """
    least: int = yield Ask(questions.newest)
    pointer = yield Get(Name("latest"))
    yield Become(walking, (me, pointer.checkpoint, least))
    return ""


def walking(me: str, number: int, least: int) -> Part:
    found = yield Get(Name("checkpoint", number=number))
    while found is not None and on("walk-from-pointer"):
        following = yield Get(Name("checkpoint", number=number + 1))
        if following is None:
            break
        found, number = following, number + 1
    if found is None:
        yield Tell("wrong", (f"{me} was led to checkpoint {number}, which is not there",))
        return "nothing"
    if (yield Get(found.columns)) is None:
        if not on("walk-from-pointer"):
            yield Tell("wrong", (f"{me} was led to checkpoint {number}, whose columns are gone",))
        yield Become(walking, (me, number, least))
    if number < least:
        yield Tell("wrong", (f"{me} reads checkpoint {number}, and {least} was there before",))
    return "read"


# -- a follower


def follower(me: str, rounds: int, in_folder: bool = False) -> Part:
    yield Become(following, (me, rounds, in_folder, (), ()))
    return ""


def following(me: str, rounds: int, in_folder: bool, cursor: tuple[tuple[str, int], ...], had: tuple[str, ...]) -> Part:
    """Return the records of entries after its cursor; of rewritten shards, those first committed after the cursor.

    In a folder, the follower syncs what it has listed, because a number that a power cut undoes is later reused for a
    different entry.
    """
    lasts, shards, entries = yield Ask(questions.shards_and_logs)
    if in_folder and on("follower-syncs"):
        yield Sync("entries")
    seen = dict(cursor)
    given = list(had)
    for (_, records, origin), (log, number) in zip(shards, entries, strict=True):
        if number > seen.get(log, -1):
            first = origin if on("origins") else ((log, number),) * len(records)
            given += [record for record, (at, when) in zip(records, first, strict=True) if when > seen.get(at, -1)]
    if len(given) > len(set(given)):
        yield Tell("wrong", (f"{me} was given twice: {sorted(given)}",))
    if missing := {record for _, records, _ in shards for record in records} - set(given):
        yield Tell("wrong", (f"{me} is never given {sorted(missing)}",))
    for log, last in lasts:
        seen[log] = max(seen.get(log, -1), last)
    if rounds > 1:
        yield Become(following, (me, rounds - 1, in_folder, tuple(sorted(seen.items())), tuple(given)))
    return f"given {' '.join(given)}"
