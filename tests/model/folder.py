"""The same protocol in a local folder, where no answer is late but the power may fail.

The problem: W links an entry and acknowledges it. After a power cut, the entry is missing; or it exists but is empty;
or it exists, but the shard that it names does not. The naive solution is to sync each file. But a file's name is part
of its folder, which must be synced separately, and there is no order between two folders. Each process therefore syncs
everything that it is about to rely on, no matter which process made it: a file's content before its name, shards before
the entry that names them, and the entry before anything is acknowledged or deleted.
"""

from __future__ import annotations

from . import questions
from .objects import Add, Checkpoint, Content, Data, Entry, Name, Owner, Store
from .rules import on
from .store import Ask, Become, Choice, Cut, Link, Sync, Tell, Unlink, after_a_power_cut
from .winning import LOST, WON, Part


def create(name: Name, content: Content) -> Part:
    """Return `WON` or `LOST`. A folder always answers at once."""
    answer = yield Link(name, content, on("sync-content"))
    if on("sync-entries"):
        yield Sync("entries")
    return WON if answer == "ok" else LOST


def publish(add: Add) -> Part:
    """Publish a shard by linking its journal, whose content was synced as it was written."""
    yield Link(add.shard, Data(add.records), True)
    if on("sync-shards-first"):
        yield Sync("shards")


def writer(log: str, *records: str) -> Part:
    """Commit one shard for each record, one after the other, and close the log."""
    yield from create(Name("entry", log), Entry("begin", log))
    adds = tuple(Add(Name("shard", log, at), (record,)) for at, record in enumerate(records))
    for add in adds:
        yield from publish(add)
    yield Become(writing, (log, 1, adds))
    return ""


def writing(log: str, number: int, adds: tuple[Add, ...]) -> Part:
    if not adds:
        yield from create(Name("entry", log, number), Entry("end", log))
        return "closed"
    yield from create(Name("entry", log, number), Entry("commit", log, adds[:1]))
    yield Tell("committed", adds[0].records)
    yield Become(writing, (log, number + 1, adds[1:]))
    return ""


def ender(me: str, log: str) -> Part:
    """End a dead writer's log while holding its lock, and adopt the shards that it has published."""
    found: questions.Standing | None = yield Ask(questions.standing, (log,))
    if found is None or found.ended:
        return "nothing"
    adds: tuple[Add, ...] = yield Ask(questions.published_of, (log, False))
    if on("sync-before-end"):
        yield Sync("entries")
    if on("sync-what-is-adopted"):
        yield Sync("shards")
    if (yield from create(Name("entry", log, found.last + 1), Entry("end", me, adds))) != WON:
        return LOST
    yield Tell("committed", tuple(record for add in adds for record in add.records))
    return WON


def remover(me: str) -> Part:
    """Replace the existing data."""
    yield from create(Name("entry", me), Entry("begin", me))
    (turn, _, _), shards = yield Ask(questions.turn_and_snapshot)
    removes = tuple(name for name, *_ in shards)
    given, removed = yield Ask(questions.removed_by, (removes, ()))
    add = Add(Name("shard", me), (me.lower(),))
    yield from publish(add)
    if (yield from create(Name("turn", number=turn + 1), Owner(me))) != WON:
        return LOST
    yield Tell("vanishing", given)
    yield from create(Name("entry", me, 1), Entry("end", me, (add,), removes=removes, turn=turn + 1))
    yield Tell("committed", add.records)
    yield Tell("gone", given)
    for name in removed:
        yield Unlink(name)
    return "closed"


def maker() -> Part:
    found: tuple[int, Checkpoint] | None = yield Ask(questions.next_checkpoint)
    if found is None:
        return "not whole"
    number, checkpoint = found
    yield from create(Name("checkpoint", number=number), checkpoint)
    yield Become(deleter, ())
    return ""


def deleter() -> Part:
    """Delete covered objects. The newest checkpoint is synced first, because its maker may not have done so yet."""
    names = yield Ask(questions.covered)
    if on("sync-before-delete"):
        yield Sync("entries")
    for name in names:
        yield Unlink(name)
    return "deleted"


def power() -> Part:
    """Cut the power: all running processes die, and the disk is left in one of its possible states."""
    count: int = yield Ask(_outcomes)
    which: int = yield Choice(count)
    yield Cut(which)
    return "cut"


def _outcomes(store: Store) -> int:
    return len(list(after_a_power_cut(store)))
