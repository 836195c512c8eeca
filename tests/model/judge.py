"""The invariants, which are checked in every state as if every process died in it.

A state is judged three times: as it is; after all logs have been ended and cleared at once (`recovered`); and after a
checkpoint has been made of the result, the objects that it covers have been deleted, and all requests in flight have
arrived. A crash therefore needs no step of its own: a crashed process is simply never scheduled again.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import permutations
from typing import NamedTuple, TypeAlias

from .look import Look, look_at
from .objects import Add, Data, Entry, Flush, Name, Store, Torn
from .store import Change, change

Set: TypeAlias = frozenset[str]
Also: TypeAlias = Callable[[Look, Look], str]


class Told(NamedTuple):
    """The promises made to callers about records. Those in ``vanishing`` are being removed and may be missing; those in
    ``gone`` must be missing.
    """

    committed: Set = frozenset()
    flushed: Set = frozenset()
    vanishing: Set = frozenset()
    gone: Set = frozenset()
    winners: Set = frozenset()
    wrong: Set = frozenset()

    def promised(self) -> tuple[Set, Set]:
        """Return the records that must be found now, and those that must not."""
        return self.committed - self.vanishing, self.gone


NOTHING_TOLD = Told()


def nothing_more(now: Look, recovered: Look) -> str:
    """The default additional check of a configuration, which accepts everything."""
    return ""


def exclude(*pairs: tuple[str, str]) -> Also:
    """Return a check that at most one record of each pair is found, because a replacement is all-or-nothing."""

    def check(now: Look, recovered: Look) -> str:
        for look in (now, recovered):
            found = set(look.records())
            for one, other in pairs:
                if {one, other} <= found:
                    return f"{one} and {other} are both there: not replaced whole"
        return ""

    return check


def positions_without_gaps(now: Look, recovered: Look) -> str:
    """Check that each position of a source is stored once, without gaps."""
    found = sorted(int(record[1:]) for record in recovered.records())
    return "" if found == list(range(1, len(found) + 1)) else f"positions are missing: {found}"


def judge(store: Store, told: Told, in_flight: tuple[Change, ...], also: Also) -> str:
    """Describe what is wrong in this state; return ``""`` if nothing is."""
    if told.wrong or len(told.winners) > 1:
        return "; ".join(sorted(told.wrong)) or f"more than one won: {sorted(told.winners)}"
    if wrong := _found(store, told, flushed=False):
        return wrong
    later = recovered(store)
    if wrong := _found(later, told, flushed=True) or also(look_at(store), look_at(later)):
        return f"after recovery: {wrong}"
    for order in permutations(in_flight):
        if wrong := _arriving(later, told, order) or _arriving(merged(later), told, order):
            return f"after recovery and late requests: {wrong}"
    return _left(merged(later)) or (_found(merged(later), told, flushed=True) and "a checkpoint changed the look")


def _found(store: Store, told: Told, *, flushed: bool) -> str:
    """Check I1 to I6: every promised record is found exactly once, and no removed record is found."""
    torn = [str(name) for name, content in store.items() if isinstance(content, Torn) and name.kind == "entry"]
    if torn:
        return f"cannot be read: {', '.join(torn)}"
    look = look_at(store)
    if not look.whole:
        return "no look is whole any more"
    records = look.records()
    found = set(records)
    if len(records) > len(found):
        return f"found twice: {sorted(records)}"
    for listed in look.shards.values():
        if store.get(listed.shard) != Data(listed.records):
            return f"the manifest names {listed.shard}, which holds {store.get(listed.shard)}"
        if listed.sidecar and store.get(listed.sidecar) != Data(listed.records):
            return f"the manifest names {listed.sidecar}, which is not there"
    if lost := told.committed - found - told.vanishing:
        return f"acknowledged as committed, and not found: {sorted(lost)}"
    if flushed and (lost := told.flushed - found - told.vanishing):
        return f"acknowledged as flushed, and not found: {sorted(lost)}"
    if back := told.gone & found:
        return f"removed, and found again: {sorted(back)}"
    return ""


def _arriving(store: Store, told: Told, order: tuple[Change, ...]) -> str:
    for request in order:
        store = change(store, request)[0]
        if wrong := _found(store, told, flushed=True):
            return wrong
    store = recovered(store)
    return _found(store, told, flushed=True) or _left(store)


def _left(store: Store) -> str:
    """Check I11: an object that nothing names belongs to a log, and is deleted once that log has ended."""
    look = look_at(store)
    left = [str(name) for name in store if name.kind in ("shard", "sidecar") and name not in look.named()]
    lines = {line.log: line for line in look.checkpoint.logs}
    for name in store:
        if name.kind == "list" and name.log in lines:
            entry = store.get(Name("entry", name.log, lines[name.log].last))
            if not (isinstance(entry, Entry) and entry.elsewhere == name) and lines[name.log].last >= name.number:
                left.append(str(name))
    return f"left without an owner: {', '.join(left)}" if left else ""


def recovered(store: Store) -> Store:
    """Return the store after all open logs are ended at once, with all flushed records, and unnamed objects deleted."""
    look = look_at(store)
    store = dict(store)
    for log in look.logs.values():
        if log.ended:
            continue
        flushes = look.flushes(log.name)
        by_shard: dict[int, tuple[str, ...]] = {}
        for shard, records in flushes.live:
            by_shard[shard] = by_shard.get(shard, ()) + records
        adds = tuple(Add(Name("shard", log.name, shard, "judge"), records) for shard, records in by_shard.items())
        store.update({add.shard: Data(add.records) for add in adds})
        if not flushes.fence:
            store[Name("flush", log.name, flushes.next)] = Flush("fence", "judge")
        end = Entry("end", "judge", adds, progress=flushes.progress)
        store[Name("entry", log.name, log.last + 1)] = end
    look = look_at(store)
    gone = {name for log in look.logs for name in look.garbage(log)}
    gone |= {name for name in store if name.kind == "shard" and name.token == "plain" and name not in look.shards}
    return {name: content for name, content in store.items() if name not in gone}


def merged(store: Store) -> Store:
    """Return the store after a checkpoint is made and the objects that it covers are deleted."""
    look = look_at(store)
    store = {**store, Name("checkpoint", number=look.number + 1): look.make_checkpoint()}
    gone = look_at(store).covered_objects()
    return {name: content for name, content in store.items() if name not in gone}
