"""Actors that need the data set to themselves: fixed sets, and removers, which replace, compact or forget.

The problem: C compacts shard 0 while D forgets a record in it. The naive solution is to compare what each one removes
when it commits, but then readers would have to handle both orders. The actors therefore take turns. A turn is a number
that is won by exclusive creation, its effect is in the ``end`` of its owner's log, and no process takes the next turn
before that log has ended. If the owner dies, the waiting process ends its log, but never takes over the turn itself.

A rewriter that finds its turn taken need not start over: its new shards stay correct as long as the shards that it
removes still exist. It therefore takes a later turn (``how`` is ``"again"``), and gives up only if one of them is gone.
"""

from __future__ import annotations

from typing import NamedTuple

from . import questions
from .ender import end_job
from .look import look_at
from .objects import Add, Entry, Name, Owner, Records
from .questions import Rows
from .rules import on
from .store import Ask, Become, Tell
from .winning import ABSENT, LOST, UNSETTLED, WON, Part, create, delete, publish


class Plan(NamedTuple):
    """The planned content of an ``end``: shards to add, shards to remove, and records to forget."""

    adds: tuple[Add, ...] = ()
    removes: tuple[Name, ...] = ()
    forgets: tuple[tuple[Name, str], ...] = ()


def take_turn(me: str, number: int) -> Part:
    won = yield from create(Name("turn", number=number), Owner(me))
    if won == WON and on("look-after-turn") and not (yield Ask(questions.has_turn, (number, me), decides=True)):
        return LOST
    return LOST if won == ABSENT else won


def give_up(me: str, number: int = 1, made: tuple[Name, ...] = ()) -> Part:
    """End the actor's own log, and delete its shards only after that, because until then another process may end it."""
    won = yield from create(Name("entry", me, number), Entry("end", me))
    if won != UNSETTLED:
        yield from delete(made)
    return "gave up"


def _begin(me: str) -> Part:
    return (yield from create(Name("entry", me), Entry("begin", me)))


def _snapshot(how: str) -> Part:
    if how != "torn":
        return (yield Ask(questions.turn_and_snapshot))
    for _ in range(2):
        first = yield Ask(questions.page, (0, "name"))
        second = yield Ask(questions.page, (1, "name"))
        look = look_at(dict(first), dict(second))
        if look.whole or not on("whole-look"):
            return look.last_turn(), questions.rows(look)
    return None


# -- a fixed set


def fixed(me: str, record: str) -> Part:
    """Write a fixed set, under plain names if it gets the first turn. Give up if other data exist."""
    if (yield from _begin(me)) != WON:
        return "unsettled"
    (number, owner, settled), shards = yield Ask(questions.turn_and_snapshot)
    if not shards and not settled:
        yield from end_job(me, owner, give_up=True)
        (number, owner, settled), shards = yield Ask(questions.turn_and_snapshot)
    if shards or not settled:
        return (yield from give_up(me))
    if (yield from take_turn(me, number + 1)) != WON:
        return (yield from give_up(me))
    if on("look-for-others-after-turn") and (yield Ask(questions.must_not_be_fixed, (me,), decides=True)):
        return (yield from give_up(me))
    name = Name("shard", token="plain") if number == 0 else Name("shard", me)
    add = Add(name, (record,))
    if not (yield from publish(add)):
        return "unsettled"
    yield Become(closing, (me, Plan((add,)), number + 1, True))
    return ""


# -- removers


def remover(me: str, what: str, how: str = "", may_end: bool = True) -> Part:
    """Begin a log, look, make shards, take the next turn, and end the log with what it adds and removes."""
    if (yield from _begin(me)) != WON:
        return "unsettled"
    yield Become(removing, (me, what, how, may_end, 0))
    return ""


def removing(me: str, what: str, how: str, may_end: bool, attempt: int) -> Part:
    found = yield from _snapshot(how)
    if found is None:
        return (yield from give_up(me))
    (number, owner, settled), shards = found
    if not settled and on("settle-turn"):
        if may_end and not attempt:
            yield from end_job(me, owner, give_up=True)
            yield Become(removing, (me, what, how, may_end, 1))
        return (yield from give_up(me))
    plan = PLANS[what](me, shards, attempt)
    if plan is None:
        return (yield from give_up(me))
    for add in plan.adds:
        if not (yield from publish(add)):
            return "unsettled"
    won = yield from take_turn(me, number + 1)
    if won == UNSETTLED:
        return won
    if won == LOST and how == "again":
        yield Become(retrying, (me, plan, may_end, 0))
    if won != WON:
        return (yield from give_up(me, made=tuple(add.shard for add in plan.adds)))
    yield Become(closing, (me, plan, number + 1, False))
    return ""


def retrying(me: str, plan: Plan, may_end: bool, attempt: int) -> Part:
    """Take a later turn for the shards already made, provided that the shards they replace still exist."""
    made = tuple(add.shard for add in plan.adds)
    (number, owner, settled), shards = yield Ask(questions.turn_and_snapshot)
    if not settled and on("settle-turn"):
        if may_end and not attempt:
            yield from end_job(me, owner, give_up=True)
            yield Become(retrying, (me, plan, may_end, 1))
        return (yield from give_up(me, made=made))
    there = {name for name, *_ in shards}
    if on("removed-still-there") and not there.issuperset(plan.removes):
        return (yield from give_up(me, made=made))
    won = yield from take_turn(me, number + 1)
    if won == UNSETTLED:
        return won
    if won != WON:
        return (yield from give_up(me, made=made))
    yield Become(closing, (me, plan, number + 1, False))
    return ""


def closing(me: str, plan: Plan, turn: int, alone: bool) -> Part:
    """Create the end, which decides the outcome, and only then delete what it removes."""
    kept: Records = tuple(record for add in plan.adds for record in add.records)
    gone: Records = ()
    removed: tuple[Name, ...] = ()
    if plan.removes or plan.forgets:
        given, removed = yield Ask(questions.removed_by, (plan.removes, plan.forgets))
        gone = tuple(record for record in given if record not in kept)
        yield Tell("vanishing", gone)
    end = Entry("end", me, plan.adds, removes=plan.removes, forgets=plan.forgets, turn=turn)
    won = yield from create(Name("entry", me, 1), end)
    if won == UNSETTLED and on("remove-behind-end"):
        return won
    if won in (LOST, ABSENT):
        yield from delete(tuple(add.shard for add in plan.adds))
        return "told"
    if won == WON:
        yield Tell("committed", kept)
        yield Tell("gone", gone)
        if alone:
            yield Tell("winners", (me,))
    yield from delete(removed)
    return "closed"


def _rewritten(me: str, attempt: int, records: Records, origin: tuple[tuple[str, int], ...]) -> tuple[Add, ...]:
    return (Add(Name("shard", me, attempt), records, origin),) if records else ()


def _replace(me: str, shards: Rows, attempt: int) -> Plan | None:
    return Plan(_rewritten(me, attempt, (me.lower(),), ()), tuple(name for name, *_ in shards))


def _compact(me: str, shards: Rows, attempt: int) -> Plan | None:
    if not shards:
        return None
    records = tuple(record for _, some, _ in shards for record in some)
    origin = tuple(each for *_, some in shards for each in some)
    return Plan(_rewritten(me, attempt, records, origin), tuple(name for name, *_ in shards))


def _rewrite_first(me: str, shards: Rows, attempt: int) -> Plan | None:
    return _compact(me, shards[:1], attempt)


def _rewrite_last(me: str, shards: Rows, attempt: int) -> Plan | None:
    return _compact(me, shards[-1:], attempt)


def _forget_a(me: str, shards: Rows, attempt: int) -> Plan | None:
    """Plan to rewrite the shard that contains the record, without the record."""
    for name, records, origin in shards:
        if "a" in records:
            at = records.index("a")
            rest = _rewritten(me, attempt, records[:at] + records[at + 1 :], origin[:at] + origin[at + 1 :])
            return Plan(rest, (name,))
    return None


def _mark_a(me: str, shards: Rows, attempt: int) -> Plan | None:
    """Plan to rewrite no shard, and only name the record in the end."""
    for name, records, _ in shards:
        if "a" in records:
            return Plan(forgets=((name, "a"),))
    return None


PLANS = {
    "replace": _replace,
    "compact": _compact,
    "first": _rewrite_first,
    "last": _rewrite_last,
    "forget": _forget_a,
    "mark": _mark_a,
}
