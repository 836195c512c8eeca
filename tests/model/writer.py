"""A rolling writer: it flushes, commits shards as they fill, and closes, unless another process has ended its log.

The problem: W pauses for a day, A presumes W dead and ends its log, and W wakes up in the middle of a request. The
naive solution is a lease: W stops unless it has renewed the lease in time. But W cannot check the clock and send a
request in a single step. Instead, W creates its next entry exclusively: if that fails, W knows that it has lost,
and W acknowledges only what it has won.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from . import questions
from .objects import Add, Data, Entry, Flush, Name, Numbers, Positions, Records
from .rules import on
from .store import Ask, Become, Tell
from .winning import ABSENT, LOST, WON, Part, create, delete, publish, upload


class Do(NamedTuple):
    """A step of a script: ``flush`` or ``take`` records, ``commit`` a shard, ``close``, or ``become`` another function.

    With ``repeat``, a flush repeats all live records and replaces their entries. ``releases`` has the turns of sources
    to release.
    """

    what: str
    shard: int = 0
    records: Records = ()
    repeat: bool = False
    releases: Positions = ()
    then: Callable[..., Any] | None = None
    arguments: tuple[Any, ...] = ()


def flush(record: str, shard: int = 0, *, repeat: bool = False) -> Do:
    return Do("flush", shard, (record,), repeat)


def take(record: str, shard: int = 0) -> Do:
    return Do("take", shard, (record,))


def commit(shard: int = 0) -> Do:
    return Do("commit", shard)


CLOSE = Do("close")


class Open(NamedTuple):
    """An open shard: its records, which of them are flushed, and the first flush entry that contains any of them."""

    number: int
    records: Records = ()
    flushed: Records = ()
    first: int = 0


class Writing(NamedTuple):
    """A writer's memory. ``token`` is part of every object that it makes.

    With ``waits``, a writer that finds another process's fence waits for the end of its log instead of ending it
    itself. asyncrec's writers do this.
    """

    log: str
    script: tuple[Do, ...]
    token: str = "t"
    number: int = 1
    flushed: int = 0
    shards: tuple[Open, ...] = ()
    entries: tuple[tuple[int, tuple[int, ...]], ...] = ()
    done: tuple[tuple[int, tuple[Add, ...]], ...] = ()
    goes_on: bool = True
    waits: bool = False
    sidecars: bool = False
    long: bool = False
    source: str = ""

    def shard(self, number: int) -> Open:
        return next((each for each in self.shards if each.number == number), Open(number))

    def put(self, shard: Open) -> tuple[Open, ...]:
        return tuple(sorted({**{each.number: each for each in self.shards}, shard.number: shard}.values()))

    def add(self, shard: Open) -> Add:
        name = Name("shard", self.log, shard.number)
        return Add(name, shard.records, sidecar=name._replace(kind="sidecar") if self.sidecars else None)

    def opened(self, without: tuple[int, ...]) -> Numbers:
        return tuple((each.number, each.first) for each in self.shards if each.first and each.number not in without)

    def progress(self, *kept: Records) -> Positions:
        """Return the source position that an entry may state, which may cover only records that the entry keeps."""
        records = [record for some in kept for record in some] if on("position-of-kept") else []
        records = records or [record for each in self.shards for record in each.records]
        positions = [int(record[1:]) for record in records] if self.source else []
        return ((self.source, max(positions)),) if positions else ()


def writer(start: Writing, minds_turns: bool = False) -> Part:
    """Open a log and write, but with ``minds_turns`` only if no fixed data set exists or is being made."""
    if minds_turns and not on("begin-then-look") and (yield Ask(questions.must_not_append, (start.log,), decides=True)):
        return "refused"
    if (yield from create(Name("entry", start.log), Entry("begin", start.token))) != WON:
        return "refused"
    if on("look-after-begin") and not (yield Ask(questions.has_begun, (start.log,), decides=True)):
        return "refused"
    if minds_turns and on("begin-then-look") and (yield Ask(questions.must_not_append, (start.log,), decides=True)):
        end = Entry("end", start.log)
        yield from create(Name("entry", start.log, 1), end)
        return "gave up"
    yield Become(writing, (start,))
    return ""


def writing(now: Writing) -> Part:
    if not now.script:
        return "stopped"
    step, rest = now.script[0], now._replace(script=now.script[1:])
    shard = now.shard(step.shard)
    if step.what == "take":
        yield Become(writing, (rest._replace(shards=now.put(shard._replace(records=shard.records + step.records))),))
    if step.then is not None:
        yield Become(step.then, (rest, *step.arguments))
    if step.what == "flush":
        yield Become(flushing, (rest, step))
    yield Become(committing, (rest, step))
    return ""


def flushing(now: Writing, step: Do) -> Part:
    """Create the next flush entry. The records are reported as flushed only once the entry's number is won."""
    number, shard = now.flushed + 1, now.shard(step.shard)
    now = now._replace(shards=now.put(shard._replace(records=shard.records + step.records)))
    sections, since = {step.shard: step.records}, number
    if step.repeat:
        since = min((each.first for each in now.shards if each.first), default=number)
        sections = {each.number: each.flushed for each in now.shards if each.flushed}
        sections[step.shard] = shard.flushed + step.records
    kept = (*sections.values(), *(each.flushed for each in now.shards))
    entry = Flush("flush", now.token, tuple(sections.items()), since, now.progress(*kept))
    won = yield from create(Name("flush", now.log, number), entry)
    if won == WON:
        yield Tell("flushed", step.records)
        shards = now.put(now.shard(step.shard)._replace(flushed=shard.flushed + step.records))
        firsts = {
            each.number: number for each in shards if each.number in sections and (since < number or not each.first)
        }
        shards = tuple(each._replace(first=firsts.get(each.number, each.first)) for each in shards)
        repeated = tuple(each for each, _ in now.entries if each >= since)
        yield from delete(tuple(Name("flush", now.log, each) for each in repeated))
        entries = (*(each for each in now.entries if each[0] < since), (number, tuple(sections)))
        yield Become(writing, (now._replace(flushed=number, shards=shards, entries=entries),))
    if won in (LOST, ABSENT):
        yield Become(fenced, (now, number, step))
    return "unsettled"


def fenced(now: Writing, number: int, step: Do) -> Part:
    """Handle a flush number that is taken: the log may have ended, or the process that fenced it may have died.

    If the log has no end, the writer ends it itself, with all its records, so no fence stops a writer forever.
    """
    ended_by, fence = yield Ask(questions.end_and_fence, (now.log,), decides=True)
    if fence > number and on("ended-by-look"):  # the writer's own entry was created: no other process makes that number
        yield Tell("flushed", step.records)
        shard = now.shard(step.shard)
        now = now._replace(shards=now.put(shard._replace(flushed=shard.flushed + step.records)))
    if ended_by:
        yield Become(told, (now, now.number, ()))
    if now.waits:
        yield Become(waiting, (now,))
    if not on("fenced-writer-ends"):
        yield Become(writing, (now._replace(script=(step, *now.script), flushed=number),))
    yield Become(committing, (now._replace(script=()), CLOSE))
    return ""


def waiting(now: Writing) -> Part:
    """Acknowledge nothing until the log has an end. If no process makes one, a real writer does so, like an ender."""
    ended_by, _ = yield Ask(questions.end_and_fence, (now.log,), decides=True)
    yield Become(told, (now, now.number, ())) if ended_by else Become(waiting, (now,))
    return ""


def committing(now: Writing, step: Do) -> Part:
    """Publish shards, create the entry that names them, and then delete the flush entries that it supersedes."""
    chosen = (step.shard,) if step.what == "commit" else tuple(each.number for each in now.shards)
    adds = tuple(now.add(each) for each in now.shards if each.number in chosen)
    elsewhere = Name("list", now.log, now.number, now.token if on("list-has-token") else "") if now.long else None
    if elsewhere and not on("list-before-entry"):
        won = yield from create(Name("entry", now.log, now.number), _entry(now, step, adds, chosen, elsewhere))
    for add in adds:
        if not (yield from publish(add)):
            return "unsettled"
    if elsewhere and not (yield from upload(elsewhere, Data((), adds))):
        return "unsettled"
    if not elsewhere or on("list-before-entry"):
        won = yield from create(Name("entry", now.log, now.number), _entry(now, step, adds, chosen, elsewhere))
    if won == ABSENT:  # without `same-bytes`: the next attempt includes records taken since
        late = tuple(now.add(Open(each.shard, each.records)) for each in now.script if each.what == "take")
        for add in late:
            yield from publish(add)
        adds += late
        won = yield from create(Name("entry", now.log, now.number), _entry(now, step, adds, chosen, None))
    if won == WON:
        yield Tell("committed", tuple(record for add in adds for record in add.records))
        gone = tuple(number for number, shards in now.entries if step.what == "close" or set(shards) <= set(chosen))
        yield from delete(tuple(Name("flush", now.log, number) for number in gone))
        if step.what == "close":
            return "closed"
        after = now._replace(
            number=now.number + 1,
            shards=tuple(each for each in now.shards if each.number not in chosen),
            entries=tuple(each for each in now.entries if each[0] not in gone),
            done=(*now.done, (now.number, adds)),
        )
        yield Become(writing, (after,))
    if won == LOST:
        yield Become(told, (now, now.number, adds))
    return "unsettled"


def _entry(now: Writing, step: Do, adds: tuple[Add, ...], chosen: tuple[int, ...], elsewhere: Name | None) -> Entry:
    kind = "end" if step.what == "close" else "commit"
    return Entry(
        kind,
        now.log if kind == "end" else now.token,
        () if elsewhere else adds,
        elsewhere,
        adds if elsewhere else (),
        now.opened(chosen),
        now.flushed,
        repeats=now.done if kind == "end" else (),
        progress=now.progress(*(each.records if each.number in chosen else each.flushed for each in now.shards)),
        releases=step.releases,
    )


def told(now: Writing, number: int, adds: tuple[Add, ...]) -> Part:
    """Handle an entry number that is taken. Shards in the log's end are stored; nothing more is acknowledged."""
    last, ended_by, named = yield Ask(questions.end_of, (now.log,), decides=True)
    kept: tuple[Add, ...] = ()
    if not on("same-bytes"):  # the object may be from an earlier attempt of this writer
        there = yield Ask(questions.named_of, (now.log,))
        kept = tuple(add for add in adds if add.shard in there)
    elif last > number and on("ended-by-look"):  # the entry was created: otherwise nothing could come after it
        kept = adds
    yield Tell("committed", tuple(record for add in kept for record in add.records))
    if not ended_by:
        return "stopped"
    for add in adds:
        if add not in kept and not (on("read-end-before-delete") and add.shard in named):
            yield from delete(add.objects())
    if not now.goes_on:
        return "ended"
    safe = {add.shard for add in kept} | set(named)
    rest: tuple[Any, ...] = tuple(
        record
        for shard in now.shards
        if Name("shard", now.log, shard.number) not in safe
        for record in shard.records
        if record not in shard.flushed
    )
    if rest:
        again = Writing(f"{now.log}'", (Do("take", 0, rest), CLOSE), goes_on=False)
        yield Become(writer, (again,))
    return "ended"


__all__ = ["CLOSE", "Do", "Writing", "commit", "flush", "take", "writer", "writing"]
