"""Readers, followers, and a reader that cannot list.

The problem: a list comes in pages, and each name that it shows is read later. The naive way is to take what is there:
A ends and moves its shard between two pages, B moves it on, and the reader finds both. So a reader checks that what
it read belongs together, and looks again if it does not. It needs no turn and no lock: names are never used twice, a
removal is a difference of sets, and it depends on nothing but the shard that it names.
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
    """What a look needs, read object by object from a list that may be torn. None if that never belongs together."""
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
    """What was promised before the reader began is found once, unless it was removed meanwhile."""
    still, _ = yield Recall()
    if len(records) > len(set(records)):
        yield Tell("wrong", (f"{me} finds twice: {sorted(records)}",))
    if lost := (promised & still) - set(records):
        yield Tell("wrong", (f"{me} does not find {sorted(lost)}",))
    if back := gone & set(records):
        yield Tell("wrong", (f"{me} finds what was removed: {sorted(back)}",))


# -- a reader that cannot list


def over_https(me: str) -> Part:
    """Starts from ``~latest.json`` and goes on to the newest checkpoint, number by number.

    It must find one, and none that is older than the newest at the moment when it began.
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
    """Takes the records of entries above its cursor; of a rewritten shard those that were first committed above it.

    In a folder it syncs what it has listed: a number that a power cut takes back is used again, for another entry.
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
