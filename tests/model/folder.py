"""The same protocol in a local folder, where nothing is late and the power may fail.

The problem: W links an entry and acknowledges it, and after a power cut the entry is not there; or it is there and
empty; or it is there, and the shard that it names is not. The naive way is to sync each file. But the name of a file
is in its folder, which is synced by itself, and two folders keep no order between them. So each process syncs what it
is about to rely on, whichever process made it: content before the name, shards before the entry, the entry before
anything is acknowledged or deleted.
"""

from __future__ import annotations

from . import questions
from .objects import Add, Checkpoint, Content, Data, Entry, Name, Owner, Store
from .rules import on
from .store import Ask, Become, Choice, Cut, Link, Sync, Tell, Unlink, after_a_power_cut
from .winning import LOST, WON, Part


def create(name: Name, content: Content) -> Part:
    """`WON` or `LOST`. A folder answers at once."""
    answer = yield Link(name, content, on("sync-content"))
    if on("sync-entries"):
        yield Sync("entries")
    return WON if answer == "ok" else LOST


def publish(add: Add) -> Part:
    """The journal is the shard: its content was synced while it was written."""
    yield Link(add.shard, Data(add.records), True)
    if on("sync-shards-first"):
        yield Sync("shards")


def writer(log: str, *records: str) -> Part:
    """Has a shard ready for each record, commits one after the other, and closes."""
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
    """Holds the dead writer's lock, and takes the shards that it has published as they are."""
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
    """Replaces what is there."""
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
    """Another process may have made the newest checkpoint, and not have synced it yet."""
    names = yield Ask(questions.covered)
    if on("sync-before-delete"):
        yield Sync("entries")
    for name in names:
        yield Unlink(name)
    return "deleted"


def power() -> Part:
    """Cuts the power: whatever was running is dead, and the disk holds one of the things that it may hold."""
    count: int = yield Ask(_outcomes)
    which: int = yield Choice(count)
    yield Cut(which)
    return "cut"


def _outcomes(store: Store) -> int:
    return len(list(after_a_power_cut(store)))
