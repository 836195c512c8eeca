"""The questions that actors ask: pure functions of a store that return only what the actor uses.

Each answer reflects a single moment. For a torn listing, the actor asks for its pages and combines them in one look.
"""

from __future__ import annotations

from typing import NamedTuple

from .look import Log, Look, look_at
from .objects import Add, Content, Data, Name, Positions, Records, Store, sorts_in_first_page
from .rules import on

# For each shard of a snapshot: its name, its records, and the log and number that first committed each record.
Rows = tuple[tuple[Name, Records, tuple[tuple[str, int], ...]], ...]


class Standing(NamedTuple):
    """The facts about a log that a process needs in order to end it."""

    last: int
    ended: str
    next_flush: int = 0
    fence: int = 0
    live: tuple[tuple[int, Records], ...] = ()
    progress: Positions = ()


def standing(store: Store, log: str) -> Standing | None:
    return standing_in(look_at(store), log)


def standing_in(look: Look, name: str) -> Standing | None:
    """Return the log's standing; `None` if there is no such log or the parts that were read are inconsistent."""
    log = look.logs.get(name)
    if log is None or not log.whole:
        return None
    if log.ended:
        return Standing(log.last, log.ended)
    flushes = look.flushes(name)
    return Standing(log.last, "", flushes.next, flushes.fence, flushes.live, flushes.progress)


def stands_as_ended(store: Store, log: str, number: int, by: str) -> bool:
    """Return whether the end under this number is valid: no higher number exists, even in a checkpoint."""
    found = look_at(store).logs[log]
    return found.last == number and found.ended == by


def has_begun(store: Store, log: str) -> bool:
    """Return whether the log has only its begin entry and is in no checkpoint."""
    found = look_at(store).logs.get(log)
    return found is None or (found.last == 0 and not found.ended)


def end_and_fence(store: Store, log: str) -> tuple[str, int]:
    look = look_at(store)
    found = look.logs[log]
    tops = [name.number for name in store if name.kind == "flush" and name.log == log]
    return found.ended, max(tops, default=0)


def end_of(store: Store, log: str) -> tuple[int, str, tuple[Name, ...]]:
    """Return the log's last number, the process that ended it, and the shards that its end names."""
    found = look_at(store).logs[log]
    adds = found.end.adds if found.end else ()
    if found.end and found.end.elsewhere:
        content = store.get(found.end.elsewhere, Data(()))
        adds = content.adds if isinstance(content, Data) else ()
    return found.last, found.ended, tuple(add.shard for add in adds)


def named_of(store: Store, log: str) -> tuple[Name, ...]:
    return tuple(sorted(name for name, listed in look_at(store).shards.items() if listed.log == log))


def garbage_of(store: Store, log: str) -> tuple[Name, ...]:
    look = look_at(store)
    return look.garbage(log) if log in look.logs and look.logs[log].ended else ()


def unnamed_of(store: Store, log: str) -> tuple[Name, ...]:
    """Return the same as `garbage_of`, for a process that does not check whether the log has ended."""
    named = look_at(store).named()
    kinds = ("shard", "sidecar")
    return tuple(sorted(name for name in store if name.kind in kinds and name.log == log and name not in named))


def published_of(store: Store, log: str, sidecars: bool) -> tuple[Add, ...]:
    """Return the shards that the log's own writer has published and that no entry names."""
    named = look_at(store).named()
    return tuple(
        Add(name, content.records, sidecar=name._replace(kind="sidecar") if sidecars else None)
        for name, content in sorted(store.items())
        if name.kind == "shard" and name.log == log and not name.token and name not in named
        if isinstance(content, Data)
    )


def rows(look: Look) -> Rows:
    """Return the shards of a snapshot without the forgotten records."""
    found = []
    for name, listed in sorted(look.shards.items()):
        kept = look.kept(listed) if on("compaction-forgets") else tuple(zip(listed.records, listed.origin, strict=True))
        found.append((name, tuple(record for record, _ in kept), tuple(origin for _, origin in kept)))
    return tuple(found)


def turn_and_snapshot(store: Store) -> tuple[tuple[int, str, bool], Rows]:
    look = look_at(store)
    return look.last_turn(), rows(look)


def has_turn(store: Store, number: int, owner: str) -> bool:
    """Return whether this turn belongs to this owner and is the last one."""
    last, has, _ = look_at(store).last_turn()
    return last == number and has == owner


def must_not_append(store: Store, log: str) -> bool:
    """Return whether a fixed data set exists or is being made."""
    look = look_at(store)
    number, _, settled = look.last_turn()
    return bool(number) and (not settled or bool(look.shards))


def must_not_be_fixed(store: Store, log: str) -> bool:
    """Return whether other data exist or a log that appends is open."""
    look = look_at(store)
    owners = set(look.turns.values())
    appends = any(not other.ended for other in look.logs.values() if other.name != log and other.name not in owners)
    return bool(look.records()) or appends


def removed_by(
    store: Store, shards: tuple[Name, ...], forgets: tuple[tuple[Name, str], ...]
) -> tuple[Records, tuple[Name, ...]]:
    """Return the records that are removed with these shards or forgotten, and the objects that are removed."""
    look = look_at(store)
    there = [look.shards[name] for name in shards if name in look.shards]
    records = [record for listed in there for record, _ in look.kept(listed)]
    sidecars = [listed.sidecar for listed in there if listed.sidecar]
    return (*records, *(record for shard, record in forgets if shard in look.shards)), (*shards, *sidecars)


def next_checkpoint(store: Store) -> tuple[int, Content] | None:
    look = look_at(store)
    return (look.number + 1, look.make_checkpoint()) if look.whole else None


def covered(store: Store) -> tuple[Name, ...]:
    return look_at(store).covered_objects()


def newest(store: Store) -> int:
    return look_at(store).number


def source(store: Store, name: str) -> tuple[int, str, bool, int]:
    """Return the last turn of a source, its owner, whether the source is free, and its stored position."""
    look = look_at(store)
    turns = {key.number: owner.log for key, owner in store.items() if key.kind == "source" and key.log == name}  # type: ignore[union-attr]
    last = max(turns, default=0)
    log = look.logs.get(turns.get(last, ""))
    released = log is not None and _has_released(log, name, last)
    free = not last or log is None or bool(log.ended) or released
    return last, turns.get(last, ""), free, look.progress.get(name, 0)


def _has_released(log: Log, source: str, turn: int) -> bool:
    return any(name == source and (number == turn or not on("release-names-turn")) for name, number in log.releases)


def runs(store: Store, name: str) -> tuple[int, bool, int]:
    """Return the last run of a writer's id, whether it has ended, and the stored position."""
    look = look_at(store)
    found = {
        int(log.partition(".")[2]): bool(look.logs[log].ended) for log in look.logs if log.partition(".")[0] == name
    }
    last = max(found, default=-1)
    return last, found.get(last, True), look.progress.get(name, 0)


def shards_and_logs(store: Store) -> tuple[tuple[tuple[str, int], ...], Rows, tuple[tuple[str, int], ...]]:
    """Return the data for a follower: the last number of each log, the shards, and the log and number of each shard."""
    look = look_at(store)
    lasts = tuple((log.name, log.last) for log in look.logs.values())
    shards = rows(look)
    return lasts, shards, tuple((look.shards[name].log, look.shards[name].number) for name, *_ in shards)


def names(store: Store, page: int, by: str) -> tuple[Name, ...]:
    """Return the names of entries and checkpoints: all, or one of two pages. Checkpoints sort after all logs."""
    found = (name for name in store if name.kind in ("entry", "checkpoint"))
    return tuple(sorted(name for name in found if by == "whole" or sorts_in_first_page(name, by) == (page == 0)))


def page(store: Store, number: int, by: str) -> tuple[tuple[Name, Content], ...]:
    """Return one of two pages of a listing with the listed objects, except shards, sidecars and flush entries."""
    left = ("shard", "sidecar", "flush")
    found = ((name, content) for name, content in store.items() if name.kind not in left)
    return tuple(sorted((each for each in found if sorts_in_first_page(each[0], by) == (number == 0)), key=repr))


def flush_page(store: Store, log: str, number: int) -> tuple[tuple[Name, Content], ...]:
    """Return one of two pages of the listing of a log's flush entries: the first entry, or those after it."""
    found = (each for each in store.items() if each[0].kind == "flush" and each[0].log == log)
    return tuple(sorted((each for each in found if (each[0].number < 2) == (number == 0)), key=repr))
