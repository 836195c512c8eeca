"""A look: what a process knows about a data set from a listing and the listed objects.

`Look` is a pure function of a store, or of the part of it that a process has read. It starts from the newest checkpoint
and adds the entries that the checkpoint does not cover. If ``whole`` is false, the parts are inconsistent with each
other, and the process must look again.
"""

from __future__ import annotations

from functools import lru_cache
from itertools import chain

from .objects import (
    Add,
    Checkpoint,
    Content,
    Data,
    Entry,
    Flush,
    Line,
    Listed,
    Name,
    Numbers,
    Owner,
    Positions,
    Records,
    Store,
)
from .rules import depends_on_rules, on

NO_CHECKPOINT = Checkpoint(0, (), (), (), ())


class Log:
    """One log. ``last`` is its highest number, ``covered`` the highest number that the checkpoint covers."""

    def __init__(self, line: Line, entries: dict[int, Entry]) -> None:
        self.name = line.log
        self.covered, self.last, self.ended = line.last, line.last, line.ended
        self.opened: Numbers = line.opened
        self.flushed, self.releases = line.flushed, line.releases
        self.end = entries.get(line.last) if line.ended else None
        self.news: dict[int, Entry] = {}
        self.whole = True
        if not line.ended and entries:
            self._read({number: entry for number, entry in entries.items() if number > line.last})

    def _read(self, entries: dict[int, Entry]) -> None:
        if not entries:
            return
        self.last = max(entries)
        if entries[self.last].kind == "end":
            self.end, self.ended = entries[self.last], entries[self.last].by
        for number in range(self.covered + 1, self.last + 1):
            entry = entries.get(number)
            if entry is None or (entry.kind == "end" and number < self.last):
                self.whole = False
                continue
            self.news[number] = entry
            self.releases += entry.releases
            if entry.kind == "commit":
                self.opened, self.flushed = entry.opened, entry.flushed

    def line(self) -> Line:
        return Line(self.name, self.last, self.ended, self.opened, self.flushed, self.releases)


class Flushes:
    """The flush entries of one log, interpreted together with what its commits say about them.

    ``next`` is the first unused number. ``fence`` is the last number if that is a valid fence, and otherwise 0.
    """

    def __init__(self, log: Log, entries: dict[int, Flush]) -> None:
        top = max(entries, default=0)
        self.next = max(top, log.flushed) + 1
        self.fence = top if top and entries[top].kind == "fence" and top > log.flushed else 0
        opened = dict(log.opened)
        repeated = {
            number
            for last, entry in entries.items()
            if entry.kind == "flush" and on("replaced-flush")
            for number in range(entry.since, last)
        }
        self.live: tuple[tuple[int, Records], ...] = tuple(
            (shard, records)
            for number, entry in sorted(entries.items())
            if number not in repeated
            for shard, records in entry.sections
            if number > log.flushed
            or (number >= opened.get(shard, number + 1) if on("opened-shards") else shard not in _committed(log))
        )
        self.progress: Positions = tuple(each for number in sorted(entries) for each in entries[number].progress)


def _committed(log: Log) -> set[int]:
    """Return the shards that a log's uncovered entries add, which is all that is known without ``opened``."""
    return {add.shard.number for entry in log.news.values() for add in entry.adds}


class Look:
    """Everything that a process knows about a data set. ``ended_turn`` is the last turn that has taken effect."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.number = max((name.number for name in store if name.kind == "checkpoint"), default=0)
        found = store.get(Name("checkpoint", number=self.number), NO_CHECKPOINT)
        assert isinstance(found, Checkpoint)
        self.checkpoint = found
        self.logs = self._logs()
        self.whole = all(log.whole for log in self.logs.values())
        self.shards = {listed.shard: listed for listed in found.shards}
        self.ended_turn = found.turn
        self.progress = dict(found.progress)
        self.forgotten = set(found.forgotten) if on("forgotten-in-checkpoint") else set()
        self._apply_news()
        self.turns = {
            name.number: owner.log
            for name, owner in store.items()
            if name.kind == "turn" and name.number > found.turn and isinstance(owner, Owner)
        }

    def _logs(self) -> dict[str, Log]:
        lines = {line.log: line for line in self.checkpoint.logs}
        entries: dict[str, dict[int, Entry]] = {log: {} for log in lines}
        for name, content in self.store.items():
            if isinstance(content, Entry):
                entries.setdefault(name.log, {})[name.number] = content
        return {log: Log(lines.get(log, Line(log, -1)), own) for log, own in sorted(entries.items())}

    def _apply_news(self) -> None:
        removed: set[Name] = set()
        for log in self.logs.values():
            for number, entry in log.news.items():
                self._add(log.name, number, self._adds(entry))
                for repeated, adds in entry.repeats:
                    if repeated > log.covered or not on("numbered-repeats"):
                        self._add(log.name, repeated, adds)
                removed.update(entry.removes)
                self.forgotten.update(entry.forgets)
                self.ended_turn = max(self.ended_turn, entry.turn)
                for source, position in entry.progress:
                    self.progress[source] = max(position, self.progress.get(source, 0))
        if not removed <= self.shards.keys() and on("unknown-removal"):
            self.whole = False
        for name in removed:
            self.shards.pop(name, None)
        if not {name for name, _ in self.forgotten} <= self.shards.keys() | removed and on("unknown-removal"):
            self.whole = False
        self.forgotten = {each for each in self.forgotten if each[0] in self.shards}

    def _adds(self, entry: Entry) -> tuple[Add, ...]:
        if entry.elsewhere is None:
            return entry.adds
        content = self.store.get(entry.elsewhere)
        if isinstance(content, Data) and content.adds == entry.checksum:
            return content.adds
        self.whole = False
        return ()

    def _add(self, log: str, number: int, adds: tuple[Add, ...]) -> None:
        for add in adds:
            listed = Listed(add.shard, add.records, log, number, add.origins(log, number), add.sidecar)
            self.shards.setdefault(add.shard, listed)

    def flushes(self, log: str) -> Flushes:
        entries = {
            name.number: content
            for name, content in self.store.items()
            if name.kind == "flush" and name.log == log and isinstance(content, Flush)
        }
        return Flushes(self.logs[log], entries)

    def kept(self, listed: Listed) -> tuple[tuple[str, tuple[str, int]], ...]:
        """Return the records of a shard that are not forgotten, each with its origin."""
        pairs = zip(listed.records, listed.origin, strict=True)
        return tuple(each for each in pairs if (listed.shard, each[0]) not in self.forgotten)

    def records(self) -> list[str]:
        return [record for listed in self.shards.values() for record, _ in self.kept(listed)]

    def named(self) -> set[Name]:
        """Return the shards and sidecars of the snapshot."""
        sidecars = (listed.sidecar for listed in self.shards.values() if listed.sidecar)
        return {*self.shards, *sidecars}

    def make_checkpoint(self) -> Checkpoint:
        return Checkpoint(
            self.ended_turn,
            tuple(log.line() for log in self.logs.values()),
            tuple(sorted(self.shards.values())),
            tuple(sorted(self.forgotten)),
            tuple(sorted(self.progress.items())),
        )

    def last_turn(self) -> tuple[int, str, bool]:
        """Return the last turn's number, its owner, and whether it is settled because the owner's log has ended."""
        number = max(self.ended_turn, *self.turns) if self.turns else self.ended_turn
        if number == self.ended_turn:
            return number, "", True
        owner = self.turns[number]
        return number, owner, owner in self.logs and bool(self.logs[owner].ended)

    def covered_objects(self) -> tuple[Name, ...]:
        """Return the objects that the newest checkpoint has made redundant."""
        lines = {line.log: line for line in self.checkpoint.logs}
        found = []
        for name in self.store:
            line = lines.get(name.log)
            if name.kind == "entry" and line and name.number <= line.last:
                superfluous = name.number < line.last or (bool(line.ended) and not on("end-stays"))
            elif name.kind == "list" and line and name.number <= line.last:
                superfluous = not self._keeps(name, line)
            elif name.kind == "turn":
                superfluous = name.number <= self.checkpoint.turn
            elif name.kind == "columns":
                superfluous = name.number <= self.number and name != self.checkpoint.columns
            else:
                stays = Name("latest") in self.store and on("checkpoints-stay")
                superfluous = name.kind == "checkpoint" and name.number < self.number and not stays
            if superfluous:
                found.append(name)
        return tuple(sorted(found))

    def _keeps(self, name: Name, line: Line) -> bool:
        """Return whether a list object belongs to the last entry of its log, which is kept."""
        entry = self.store.get(Name("entry", name.log, line.last))
        return isinstance(entry, Entry) and entry.elsewhere == name and on("list-stays-with-end")

    def garbage(self, log: str) -> tuple[Name, ...]:
        """Return the leftovers of an ended log, shards first, so that the owner of a remaining shard can be found."""
        flushes = self.flushes(log)
        named = self.named() | {entry.elsewhere for entry in self.logs[log].news.values() if entry.elsewhere}
        end = self.logs[log].end
        named |= {end.elsewhere} if end and end.elsewhere else set()
        fence = Name("flush", log, flushes.fence) if on("fence-stays") else None
        kinds = ("shard", "sidecar", "list", "flush")
        found = (name for name in self.store if name.kind in kinds and name.log == log)
        return tuple(
            sorted(
                (name for name in found if name not in named and name != fence), key=lambda name: kinds.index(name.kind)
            )
        )


@lru_cache(maxsize=200_000)
def _look_at(objects: frozenset[tuple[Name, Content]]) -> Look:
    return Look(dict(objects))


depends_on_rules(_look_at.cache_clear)


def look_at(*parts: Store) -> Look:
    """Return the look at the union of the parts, which were read in several steps."""
    return _look_at(frozenset(chain.from_iterable(part.items() for part in parts)))
