"""Actors that end another writer's log: processes that open, recover, wait for a turn, or take over a source.

The problem: A presumes that the writer W is dead, but W may only be asleep. In the naive solution, A marks W as ended,
and commits in its own log what W had flushed. If A dies between the two, the records are lost; or B commits them, too,
and then A wakes up. The end of the log and the adopted records are therefore one object with W's next number.
The process that creates it has ended W for good.

W's flush entries are a separate sequence, which readers do not list. Two numbers must therefore be won: first a *fence*
under the next flush number, after which W can acknowledge no flush; then, based on a look made after the fence, the
end. A fence without an end does not stop a writer forever: W can end its own log, and other processes can use the
existing fence.
"""

from __future__ import annotations

from . import questions
from .look import look_at
from .objects import Add, Data, Entry, Flush, Name, Records
from .questions import Standing
from .rules import on
from .store import Ask, Become
from .winning import LOST, UNSETTLED, WON, Part, create, delete, publish, upload

Adopted = tuple[Add, ...]


def ender(me: str, log: str, how: str = "", attempts: int = 1) -> Part:
    """End a log and delete its leftovers. ``how`` consists of words: ``torn``: listings are read in pages;
    ``published``: complete shards are adopted as they are, with ``sidecars``; ``long``: the end needs a separate list
    object; ``leaves``: leftovers are not deleted; ``unflushed``: it is known from the start that W never flushes.
    """
    if not on("adopt-in-end"):
        yield Become(apart, (me, log))
    outcome = "nothing"
    for attempt in range(attempts):
        token = f"{me}{attempt}" if attempt and on("token-per-attempt") else me
        outcome = yield from end_job(token, log, how)
        if outcome not in (LOST, "void"):
            break
    if "leaves" not in how and (outcome in (WON, "ended") or not on("look-after-end")):
        yield from clear(log)
    return outcome


def end_job(me: str, log: str, how: str = "", *, give_up: bool = False) -> Part:
    """Return `WON`, `LOST`, `UNSETTLED`, ``ended`` (by others), ``nothing`` (no log) or ``void`` (W continued)."""
    found: Standing | None = yield from _stand(log, how)
    if found is None:
        return "nothing"
    if found.ended:
        return "ended"
    if not give_up and "unflushed" not in how and on("fence"):
        if not found.fence:
            won = yield from create(Name("flush", log, found.next_flush), Flush("fence", me))
            if won != WON:
                return won
        if on("look-behind-fence"):
            found = yield from _stand(log, how)
            if found is None or found.ended:
                return "ended" if found else "void"
            if not found.fence:
                return "void"
    adds: Adopted | None = () if give_up else (yield from _adopt(me, log, how, found))
    if adds is None:
        return UNSETTLED
    elsewhere, entry = None, Entry("end", me, adds, progress=() if give_up else found.progress)
    if "long" in how:
        elsewhere = Name("list", log, found.last + 1, me if on("list-has-token") else "")
        if not (yield from upload(elsewhere, Data((), adds))):
            return UNSETTLED
        entry = entry._replace(adds=(), elsewhere=elsewhere, checksum=adds)
    won = yield from create(Name("entry", log, found.last + 1), entry)
    own = (
        *(name for add in adds if add.shard.token == me for name in add.objects()),
        *((elsewhere,) if elsewhere else ()),
    )
    if won == UNSETTLED:
        yield from delete(() if on("unsettled-deletes-nothing") else own)
        return won
    if won == WON and on("look-after-end"):
        counts = yield Ask(questions.stands_as_ended, (log, found.last + 1, me), decides=True)
        won = WON if counts else "void"
    if won != WON:
        yield from delete(own)
    return won


def _stand(log: str, how: str) -> Part:
    """Return the log's `Standing`, at one moment or from a torn listing, in which flush entries come last."""
    if "torn" not in how:
        return (yield Ask(questions.standing, (log,)))
    first = yield Ask(questions.page, (0, "number"))
    second = yield Ask(questions.page, (1, "number"))
    some = yield Ask(questions.flush_page, (log, 0))
    others = yield Ask(questions.flush_page, (log, 1))
    return questions.standing_in(look_at(dict(first), dict(second), dict(some), dict(others)), log)


def _adopt(me: str, log: str, how: str, found: Standing) -> Part:
    """Publish all live flushed records as shards with this attempt's token. Return the shards; `None` if unsettled."""
    by_shard: dict[int, Records] = {}
    for shard, records in found.live:
        by_shard[shard] = by_shard.get(shard, ()) + records
    adds: list[Add] = []
    if "published" in how:
        for add in (yield Ask(questions.published_of, (log, "sidecars" in how))):
            by_shard.pop(add.shard.number, None)
            adds.append(add)
    for shard, records in sorted(by_shard.items()):
        add = Add(Name("shard", log, shard, me), records)
        if not (yield from publish(add)):
            return None
        adds.append(add)
    return tuple(adds)


def clear(log: str) -> Part:
    """Delete the log's objects that nothing names, if the log has a valid end."""
    found = yield Ask(questions.garbage_of if on("look-after-end") else questions.unnamed_of, (log,), decides=True)
    yield from delete(found)


# -- without `adopt-in-end`: the naive solution


def apart(me: str, log: str) -> Part:
    """End a log, and then commit its flushed records in the actor's own log."""
    found: Standing | None = yield Ask(questions.standing, (log,))
    if found is None or found.ended:
        return "nothing"
    if (yield from create(Name("flush", log, found.next_flush), Flush("fence", me))) != WON:
        return LOST
    if (yield from create(Name("entry", log, found.last + 1), Entry("end", me))) != WON:
        return LOST
    add = Add(Name("shard", me), tuple(record for _, records in found.live for record in records))
    if add.records:
        yield from create(Name("entry", me), Entry("begin", me))
        yield from publish(add)
        yield from create(Name("entry", me, 1), Entry("end", me, (add,)))
    yield from clear(log)
    return WON
