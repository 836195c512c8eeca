"""`FlushLedger`: the entries of a writer's flush log, the records in each, and which entries are still needed.

The ledger only does the bookkeeping; `asyncrec._shards.commit.flush_log` sends the requests. Flushed sections wait
until the next entry is created. An entry is in doubt while its request is unanswered. After that, it is live until all
its shards are committed or a later entry repeats it.

A new entry repeats the entries before it that are no larger than itself. Therefore, of *n* entries of equal size, only
about log2(*n*) are live, and each byte is sent about log2(*n*) times. Sections that may be repeated stay in memory.
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
    """An entry whose creation has been requested: its number, its sections, and the first entry that it repeats.

    ``first`` is the running number of the first section that is new in this entry, or 0 if none is new. The sections
    are kept as long as a later entry may repeat them, and the encoded content until the store has answered.
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
        """Keep only these sections, which a later entry may repeat."""
        self.sections = sections
        self.size = sum(each.size for each in sections)
        self.held = sum(each.content for each in sections)

    def leave_out(self, shards: Collection[str]) -> None:
        """Record that the entry is no longer needed for these shards, and drop their sections."""
        if not self.shards.isdisjoint(shards):
            self.shards.difference_update(shards)
            self.hold([each for each in self.sections if each.shard not in shards])


class FlushLedger:
    """The entries of one flush log.

    Attributes:
        kept: the number of bytes that object writers are keeping for their next flush.
        last: the number of the last entry in the store; 0 if there is no entry yet.
        taken: the number of sections that have been passed to `take`; each section's running number is this count.
        doubt: the entry that was requested but is not confirmed yet.
        garbage: the numbers of the entries that are no longer needed; see `deletable`.
    """

    def __init__(self, most: int) -> None:
        """``most`` is the maximum number of bytes of records in an entry."""
        self.kept = 0
        self.last = 0
        self.taken = 0
        self.doubt: SentEntry | None = None
        self.garbage: set[int] = set()
        self._most = most
        self._waiting: deque[tuple[int, Section]] = deque()  # sections, each with its running number
        self._waiting_bytes = 0
        self._said = 0  # the highest entry number that a commit has stated
        self._live: dict[int, SentEntry] = {}
        self._tail: list[SentEntry] = []  # the latest entries, which a later entry may repeat
        self._beat = 0  # the number of the last entry if it is empty and only shows that the writer is alive

    @property
    def stored(self) -> int:
        """The running number up to which every section is in a stored entry or no longer needed."""
        if self.doubt is not None and self.doubt.first:
            return self.doubt.first - 1
        return self._waiting[0][0] - 1 if self._waiting else self.taken

    @property
    def is_needed(self) -> bool:
        """Whether the log has uncommitted records."""
        return bool(self._live) or self.doubt is not None

    @property
    def is_unsaid(self) -> bool:
        """Whether the log's last entry is only kept because no commit has stated its number yet."""
        return not (self.is_needed or self.is_waiting) and self.last > self._said and self.last in self.garbage

    @property
    def is_waiting(self) -> bool:
        """Whether an entry is in doubt, or sections wait for the next entry."""
        return bool(self._waiting) or self.doubt is not None

    @property
    def held(self) -> int:
        """The number of bytes of records held in memory."""
        entries = self._tail if self.doubt is None else [*self._tail, self.doubt]
        return self.kept + self._waiting_bytes + sum(entry.held for entry in entries)

    def take(self, shard: str, batches: Sequence[WriteBatch]) -> None:
        """Turn a shard's kept records into sections that wait for the next entry."""
        self.kept -= sum(batch.size for batch in batches)
        for section in cut(shard, batches, self._most):
            self.taken += 1
            self._waiting.append((self.taken, section))
            self._waiting_bytes += section.content

    def ask(self) -> SentEntry:
        """Return the entry to create: the one in doubt, or else a new one with the waiting and repeated sections."""
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
        """Record that the entry in doubt was created."""
        entry, self.doubt = self.doubt, None
        assert entry is not None, "an entry is in doubt"
        self.last, entry.content = entry.number, b""
        self._drop({self._beat, *range(entry.since, entry.number)})
        self._beat = entry.number if self._live and not entry.sections else 0
        if not (entry.sections or self._live):  # its shards were committed before it was created
            self.garbage.add(entry.number)
        if entry.shards:
            self._live[entry.number] = entry
        self._tail.append(entry)
        if 2 * entry.size > self._most:  # it is too large for any later entry to repeat
            self.forget_tail()

    def forget_tail(self) -> None:
        """Discard the sections that later entries might repeat."""
        for each in self._tail:
            each.hold([])
        self._tail = []

    def committed(self, shards: Collection[str], flushed: int) -> None:
        """Record that a commit contains these shards and states ``flushed`` as the number of the log's last entry."""
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

        The last entry must stay until a commit states its number. Otherwise, a fence could reuse that number.
        """
        return sorted(number for number in self.garbage if number < self.last or number <= self._said)

    def end(self) -> None:
        """Record that the writer has finished and that all its records are committed."""
        self._said = sys.maxsize
        self._drop({self._beat, *self._live})
        if self.doubt is not None:
            self.garbage.add(self.doubt.number)
        self.forget()

    def forget(self) -> None:
        """Discard all sections in memory. The entries in the store remain."""
        self._tail, self.doubt = [], None
        self._waiting.clear()
        self._waiting_bytes = self.kept = 0

    def _drop(self, numbers: Iterable[int]) -> None:
        for number in numbers:
            if self._live.pop(number, None) is not None or (number and number == self._beat):
                self.garbage.add(number)


def join(sections: Sequence[Section]) -> list[Section]:
    """Join the sections of each shard, except that a section with keys is not joined to a section without keys.

    A section whose last position continues in the next section is not joined to the sections before it.
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
    """Split batches into sections of at most ``most`` bytes. A frame may continue in the next section."""
    keyed = next((batch for batch in batches if batch.digests is not None), None)
    width = 0 if keyed is None else len(keyed.digests or b"") // keyed.count
    sections: list[Section] = []
    frames: list[Buffer] = []
    digests: list[bytes] = []
    positions: Positions = {}
    records = size = 0
    is_whole = True  # false if the records of one position continue in the next section

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
