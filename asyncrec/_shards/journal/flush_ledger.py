"""`FlushLedger`: which records of a writer are in which entry of its flush log, and which entries are needed.

It knows numbers and sections, and sends no requests (`asyncrec._shards.commit.flush_log` does). Sections wait until the
next entry takes them. An entry is in doubt from its request to the answer. Then it is live until all its shards are
committed, or a later entry repeats it.

A later entry repeats a small one if it is at least as large. So of *n* entries of one size some log2(*n*) are live,
each byte is sent about as often, and what may be repeated is held in memory.
"""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field

from asyncrec._records.writing.write_batch import Positions, WriteBatch
from asyncrec._shards.journal.flush_entry import Section, size_of_positions
from asyncrec.storage._base import Buffer


@dataclass(eq=False)
class SentEntry:
    """An entry: its number, and the first that it repeats.

    ``first`` is the count of the first section that is in no earlier entry, or 0. The sections are kept as long as a
    later entry may repeat them, and the content until its answer has come.
    """

    number: int
    since: int
    sections: list[Section]
    first: int
    shards: set[str]
    content: bytes = b""

    size: int = field(init=False)
    held: int = field(init=False)  # bytes

    def __post_init__(self) -> None:
        self.hold(self.sections)

    def hold(self, sections: list[Section]) -> None:
        """Hold only these sections for a later entry."""
        self.sections = sections
        self.size = sum(each.size for each in sections)
        self.held = sum(each.content for each in sections)

    def leave_out(self, shards: Collection[str]) -> None:
        """Note that its records of these shards are void."""
        if not self.shards.isdisjoint(shards):
            self.shards.difference_update(shards)
            self.hold([each for each in self.sections if each.shard not in shards])


class FlushLedger:
    """The entries of one flush log.

    Attributes:
        kept: bytes that object writers keep for their next flush.
        last: the number of the last entry that is in the store; 0 before the first.
        taken: how many sections were taken.
        doubt: the entry that was requested and not answered.
        garbage: numbers of entries that nothing needs any more; see `deletable`.
    """

    def __init__(self, most: int) -> None:
        """``most`` is how many bytes of records an entry has at the most."""
        self.kept = 0
        self.last = 0
        self.taken = 0
        self.doubt: SentEntry | None = None
        self.garbage: set[int] = set()
        self._most = most
        self._waiting: deque[tuple[int, Section]] = deque()  # each with its count
        self._waiting_bytes = 0
        self._said = 0  # the last number that a commit says
        self._live: dict[int, SentEntry] = {}
        self._tail: list[SentEntry] = []  # the last entries, while a later one may repeat them
        self._beat = 0  # the last entry, if nothing in it is needed: it says that the writer lives

    @property
    def stored(self) -> int:
        """The count up to which each section is in an entry, or void."""
        if self.doubt is not None and self.doubt.first:
            return self.doubt.first - 1
        return self._waiting[0][0] - 1 if self._waiting else self.taken

    @property
    def is_needed(self) -> bool:
        """Whether something is in the log that no commit has."""
        return bool(self._live) or self.doubt is not None

    @property
    def is_unsaid(self) -> bool:
        """Whether nothing in it is needed, but its last entry stays until a commit states its number."""
        return not (self.is_needed or self.is_waiting) and self.last > self._said and self.last in self.garbage

    @property
    def is_waiting(self) -> bool:
        """Whether an entry is in doubt, or something is to be put into the next one."""
        return bool(self._waiting) or self.doubt is not None

    @property
    def held(self) -> int:
        """Bytes of records that are held in memory."""
        entries = self._tail if self.doubt is None else [*self._tail, self.doubt]
        return self.kept + self._waiting_bytes + sum(entry.held for entry in entries)

    def take(self, shard: str, batches: Sequence[WriteBatch]) -> None:
        """Take the kept records of a shard."""
        self.kept -= sum(batch.size for batch in batches)
        for section in cut(shard, batches, self._most):
            self.taken += 1
            self._waiting.append((self.taken, section))
            self._waiting_bytes += section.content

    def ask(self) -> SentEntry:
        """Return the entry to be created now: the one in doubt, or the next one, with what waits and is repeated."""
        if self.doubt is not None:
            return self.doubt
        number = self.last + 1
        sections: list[Section] = []
        size = 0
        first = self._waiting[0][0] if self._waiting else 0
        while self._waiting and (not sections or size + self._waiting[0][1].size <= self._most):
            _, section = self._waiting.popleft()
            sections.append(section)
            size += section.size
            self._waiting_bytes -= section.content
        since = number
        while self._tail and self._tail[-1].size <= size and size + self._tail[-1].size <= self._most:
            before = self._tail.pop()
            sections = before.sections + sections
            since = before.since
            size += before.size
        self.doubt = SentEntry(number, since, join(sections), first, {each.shard for each in sections})
        return self.doubt

    def won(self) -> None:
        """Note that the entry in doubt was created."""
        entry, self.doubt = self.doubt, None
        assert entry is not None, "it was asked for"
        self.last, entry.content = entry.number, b""
        self._drop({self._beat, *range(entry.since, entry.number)})
        self._beat = entry.number if self._live and not entry.sections else 0
        if not (entry.sections or self._live):  # a commit came before it: it is needed no more
            self.garbage.add(entry.number)
        if entry.shards:
            self._live[entry.number] = entry
        self._tail.append(entry)
        if 2 * entry.size > self._most:  # nothing repeats these any more
            self.forget_tail()

    def forget_tail(self) -> None:
        """Stop holding what later entries might repeat."""
        for each in self._tail:
            each.hold([])
        self._tail = []

    def committed(self, shards: Collection[str], flushed: int) -> None:
        """Note that these shards are committed, by a commit that says that the log had come up to ``flushed``."""
        self._said = max(self._said, flushed)
        self._waiting = deque((count, each) for count, each in self._waiting if each.shard not in shards)
        self._waiting_bytes = sum(section.content for _, section in self._waiting)
        for entry in (*self._live.values(), *([self.doubt] if self.doubt is not None else ())):
            entry.leave_out(shards)
        self._drop([number for number, entry in self._live.items() if not entry.shards])
        self._tail = [entry for entry in self._tail if entry.shards]
        if not self._live:
            self._drop({self._beat})
            self._beat = 0

    def deletable(self) -> list[int]:
        """Return the numbers of the entries that may be deleted now.

        The last entry stays until a commit states its number: else a fence might take that number once more.
        """
        return sorted(number for number in self.garbage if number < self.last or number <= self._said)

    def end(self) -> None:
        """Note that the writer has ended, and all its records are committed."""
        self._said = sys.maxsize
        self._drop({self._beat, *self._live})
        if self.doubt is not None:
            self.garbage.add(self.doubt.number)
        self.forget()

    def forget(self) -> None:
        """Hold nothing any more. What is in the store stays there."""
        self._tail, self.doubt = [], None
        self._waiting.clear()
        self._waiting_bytes = self.kept = 0

    def _drop(self, numbers: Iterable[int]) -> None:
        for number in numbers:
            if self._live.pop(number, None) is not None or (number and number == self._beat):
                self.garbage.add(number)


def join(sections: Sequence[Section]) -> list[Section]:
    """Join sections of one shard to one section, except if some records have keys and others have none.

    They are not joined either if the result would not end where the records of a position do.
    """
    groups: list[list[Section]] = []
    last: dict[str, list[Section]] = {}
    for section in sections:
        group = last.get(section.shard)
        other = group is None or (group[0].digests is None) != (section.digests is None)
        if group is None or other or section.positions is None:
            group = last[section.shard] = []
            groups.append(group)
        group.append(section)
    return [_joined(group) if len(group) > 1 else group[0] for group in groups]


def _joined(group: Sequence[Section]) -> Section:
    digests = [each.digests for each in group if each.digests is not None]
    return Section(
        shard=group[0].shard,
        records=sum(each.records for each in group),
        digests=b"".join(digests) if digests else None,
        frames=tuple(frame for each in group for frame in each.frames),
        positions=None
        if group[-1].positions is None
        else {source: pair for each in group for source, pair in (each.positions or {}).items()},
    )


def cut(shard: str, batches: Sequence[WriteBatch], most: int) -> list[Section]:
    """Make sections of batches, each of at most ``most`` bytes; a frame may go on in the next."""
    keyed = next((batch for batch in batches if batch.digests is not None), None)
    width = 0 if keyed is None else len(keyed.digests or b"") // keyed.count
    sections: list[Section] = []
    frames: list[Buffer] = []
    digests: list[bytes] = []
    positions: Positions = {}
    records = size = 0
    is_whole = True  # no records of a position go on behind this

    def end() -> None:
        nonlocal frames, digests, positions, records, size
        if frames or records:
            joined = b"".join(digests) if width else None
            own = positions if is_whole else None
            sections.append(Section(shard=shard, records=records, digests=joined, frames=tuple(frames), positions=own))
            positions = {} if is_whole else positions
        frames, digests, records, size = [], [], 0, 0

    for batch in batches:
        hashes = width * batch.count
        described = size_of_positions(batch.positions)
        if size and size + batch.size + hashes + described > most:
            end()
        records += batch.count
        size += hashes + described
        if width:
            digests.append(bytes(hashes) if batch.digests is None else batch.digests)
        is_whole = is_whole and batch.positions is None and not batch.goes_on
        for frame in batch.frames:
            view = memoryview(frame)
            while len(view):
                part = view[: max(1, most - size)]
                frames.append(part)
                size += len(part)
                view = view[len(part) :]
                if size >= most and (len(view) or frame is not batch.frames[-1]):
                    end()
        positions |= batch.positions or {}
        is_whole = not batch.goes_on
        if size >= most:
            end()
    end()
    return sections
