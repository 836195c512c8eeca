"""Actors that continue a source, or a writer id that a user chose: one at a time, from the stored position.

The problem: P reads the stored position 7 of a queue and sleeps. Q takes over, also reads 7, and both store record 8.
The naive solution is a lock on the source, but P would not know that it has lost the lock. Q therefore first ends P's
log, then wins the source's next turn, and only then reads the position. Nothing that P sends after that can be
acknowledged.

An id that a user chooses works in the same way: its runs are logs named ``<id>.<run>``, and the next run begins only
after the last one has ended.
"""

from __future__ import annotations

from . import questions
from .ender import end_job
from .objects import Entry, Name, Owner
from .rules import on
from .store import Ask, Become
from .winning import LOST, WON, Part, create
from .writer import CLOSE, Do, Writing, flush, writing


def consumer(me: str, source: str, *legs: tuple[int, bool]) -> Part:
    """Continue a source up to a position, flushing each record. Then release the source, if requested, and close.

    With several ``legs``, it takes the source again for each one, in the same log.
    """
    if (yield from create(Name("entry", me), Entry("begin", me))) != WON:
        return "unsettled"
    yield Become(consuming, (Writing(me, (), goes_on=False, source=source), *legs))
    return ""


def consuming(now: Writing, leg: tuple[int, bool], *legs: tuple[int, bool]) -> Part:
    me, source = now.log, now.source
    turn, owner, free, position = yield Ask(questions.source, (source,))
    if on("source-turn"):
        if not free and on("end-the-owner"):
            yield from end_job(f"{me}{turn}" if on("token-per-attempt") else me, owner)
            turn, owner, free, position = yield Ask(questions.source, (source,))
        won = LOST
        if free or not on("end-the-owner"):
            won = yield from create(Name("source", source, turn + 1), Owner(me))
        if won == WON:
            _, owner, _, position = yield Ask(questions.source, (source,), decides=True)
        if won != WON or owner != me:
            yield Become(writing, (now._replace(script=(CLOSE,)),))
    last, release = leg
    script: tuple[Do, ...] = tuple(flush(f"{source}{each}") for each in range(position + 1, last + 1))
    if release and script and not on("position-of-kept"):
        script = (*script[:-1], script[-1]._replace(what="take"))
    script += (Do("commit", -1, releases=((source, turn + 1),)),) if release else ()
    script += (Do("become", then=consuming, arguments=legs),) if legs else (CLOSE,)
    yield Become(writing, (now._replace(script=script),))
    return ""


def chosen(me: str, id: str, last: int) -> Part:
    """Open the next run of an id, and continue where the last one ended."""
    run, ended, position = yield Ask(questions.runs, (id,))
    if not ended and on("last-run-ended"):
        yield from end_job(me, f"{id}.{run}")
        run, ended, position = yield Ask(questions.runs, (id,))
        if not ended:
            return "refused"
    log = f"{id}.{run + 1}"
    if (yield from create(Name("entry", log), Entry("begin", me))) != WON:
        return "refused"
    now, _, position = yield Ask(questions.runs, (id,), decides=True)
    if on("look-after-begin") and not (now == run + 1 and (yield Ask(questions.has_begun, (log,), decides=True))):
        return "refused"
    script = (*(flush(f"{id}{each}") for each in range(position + 1, last + 1)), CLOSE)
    yield Become(writing, (Writing(log, script, token=me, goes_on=False, source=id),))
    return ""
