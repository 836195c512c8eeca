"""Find the records that a dead writer without a disk had flushed to its flush log, and write them to shards.

The naive approach is to list the log and write its records. But suppose process B does so while writer A is alive. A
flushes once more and reports to its caller that the records are safe; then B ends A without these records. Therefore B
first creates A's next flush entry as a *fence*, and then lists the log. After that, A's flushes fail. If a lock proves
that A's process is gone, none of A's requests can be acknowledged any more, so no fence is needed.

Entries for a committed shard no longer count. The names of B's shards contain a token of B, so that no other process
uses them if B loses a race. The segment that ends A's log lists these shards (docs/protocol.md).
"""

from __future__ import annotations

import secrets
from collections import Counter, deque
from collections.abc import Collection, Mapping
from contextlib import AsyncExitStack
from dataclasses import replace
from datetime import UTC, datetime
from typing import NamedTuple

from asyncrec._concurrency.map import for_each
from asyncrec._concurrency.tasks import in_thread
from asyncrec._framing.frames import ANY_RECORD_BYTES, FrameDecoder
from asyncrec._records.writing.memory_budget import ByteBudget
from asyncrec._records.writing.write_batch import Positions
from asyncrec._shards.commit.closing import load_last
from asyncrec._shards.commit.exclusive import create
from asyncrec._shards.commit.flush_log import fence_of
from asyncrec._shards.commit.manifest_writer import ManifestWriter
from asyncrec._shards.commit.shard import Shard
from asyncrec._shards.commit.shard_publisher import ShardPublisher
from asyncrec._shards.journal.flush_entry import FENCE_BYTES, MOST_ENTRY, FlushEntry, Section, parse_flush_entry
from asyncrec._shards.journal.header import JobHeader
from asyncrec._shards.manifest.listed_object import get_listed
from asyncrec._shards.manifest.names import (
    flush_key,
    flush_of,
    flush_prefix,
    manifest_prefix,
    rolling_shard_name,
    sequence_of,
)
from asyncrec._shards.manifest.segment import ShardEntry
from asyncrec._shards.ownership.marks import find_begun
from asyncrec.errors import ConflictError, ManifestError, ObjectExistsError
from asyncrec.storage._base import Storage
from asyncrec.storage._url import join

_ATTEMPTS = 100
# The number of shards to write concurrently, if their chunks fit into memory.
_AT_ONCE = 16
_TIME = "~time-"
_NEVER = datetime.min.replace(tzinfo=UTC)
# In some stores, a chunk is 64 MiB.
_MEMORY_LIMIT = 256 << 20
# The size limit of a stored entry, including its first line. A record's frame and digest are always in the same entry.
_MOST_BYTES = 2 * MOST_ENTRY


class Flushed(NamedTuple):
    """The content of a flush log.

    Attributes:
        entries: the numbers of the entries to read, in order, each with the names of the shards whose records it has.
        records: for each shard, the number of records to use.
        ends: for each shard, the last section to use: the number of its entry, and its index in that entry.
    """

    entries: Mapping[int, frozenset[str]]
    records: Mapping[str, int]
    ends: Mapping[str, tuple[int, int]]


async def numbers_of(folder: Storage, name: str, writer: str) -> list[int]:
    """Return the numbers of the listed entries of a flush log, in order."""
    prefix = flush_prefix(name)
    found = [flush_of(info.key[len(prefix) :]) async for info in folder.list_objects(f"{prefix}{writer}-")]
    return sorted(each[1] for each in found if each is not None and each[0] == writer)


async def load_entry(folder: Storage, name: str, writer: str, number: int) -> FlushEntry | None:
    """Load a listed entry; return `None` if it has been deleted.

    Raises:
        ManifestError: the entry cannot be read.
        StorageError: as for `get_listed`.
    """
    key = flush_key(name, writer, number)
    data = await get_listed(folder, key, max_bytes=_MOST_BYTES)
    return None if data is None else await in_thread(lambda: parse_flush_entry(data, name=f"{folder.root}/{key}"))


async def put_fence(folder: Storage, name: str, writer: str, *, by: str) -> None:
    """Prevent a writer from flushing any more records.

    The writer deletes its old entries, so it may already have used the number of the fence. Therefore a fence, even one
    that another process created, counts only if a later listing shows that the writer had not reached its number.

    Raises:
        ConflictError: the writer flushes faster than it can be fenced.
        StorageError: it is unknown whether the writer can still flush.
    """
    for _ in range(_ATTEMPTS):
        listed, committed = await _last_of(folder, name, writer)
        number = max(listed, committed)
        there = await load_entry(folder, name, writer, number) if listed > committed else None
        if there is None or not there.fenced_by:
            number += 1
            try:
                await create(folder, flush_key(name, writer, number), fence_of(writer, number, by=by), shield=False)
            except ObjectExistsError:
                continue
        listed, committed = await _last_of(folder, name, writer)
        if listed <= number and committed < number:
            return
    raise ConflictError(f"{join(folder.root, name)}: the writer {writer} is flushing too fast to be ended; stop it")


async def _last_of(folder: Storage, name: str, writer: str) -> tuple[int, int]:
    """Return the last number of a flush log that is listed, and the last number that a commit states.

    The log is listed first: if an entry is no longer listed because a commit made it unnecessary, that commit states
    its number.
    """
    listed = await numbers_of(folder, name, writer)
    _, segment = await load_last(folder, name, writer)
    return max(listed, default=0), 0 if segment is None else segment.flushed


async def live_of(folder: Storage, name: str, writer: str) -> Flushed:
    """Find the records in a fenced flush log, ignoring entries that a later entry repeats.

    The caller must ignore records whose shard was ever committed. If the last records of a shard are only a part of the
    records of one position, they are left out.
    """
    ends: dict[str, tuple[int, int]] = {}
    entries: dict[int, frozenset[str]] = {}
    records: Counter[str] = Counter()
    repeated: set[int] = set()
    for number in reversed(await numbers_of(folder, name, writer)):
        if number in repeated or (entry := await load_entry(folder, name, writer, number)) is None:
            continue
        repeated.update(range(entry.since, number))
        if entry.sections:
            entries[number] = frozenset(each.shard for each in entry.sections)
            for place, each in reversed(list(enumerate(entry.sections))):
                if each.positions is not None:
                    ends.setdefault(each.shard, (number, place))
                if each.shard in ends:
                    records[each.shard] += each.records
    return Flushed(dict(sorted(entries.items())), records, ends)


async def publish_flushed(
    folder: Storage, header: JobHeader, found: Flushed, shards: Collection[str], manifest: ManifestWriter
) -> tuple[list[ShardEntry], int]:
    """Publish the flushed records of these shards, in new shards with names that only this attempt uses.

    Return the entries of the new shards, and the number of bytes in incomplete frames.
    """
    own = replace(header, writer=f"{header.writer}.{secrets.token_hex(4)}")
    budget = ByteBudget(_MEMORY_LIMIT, objects=_AT_ONCE)
    publisher = ShardPublisher(folder, own, budget=budget, clock=manifest.clock, deadline=manifest.deadline)
    entries: list[ShardEntry] = []
    cut = 0
    waiting = deque(shards)
    while waiting:
        async with AsyncExitStack() as stack:
            open_now: dict[str, _Adopted] = {}
            # Each entry is then loaded only once for all these shards.
            while waiting and _has_room(budget, len(open_now)):
                shard = waiting.popleft()
                name = rolling_shard_name(own.name, own.writer, sequence_of(shard))
                out = await stack.enter_async_context(publisher.open_shard(name))
                open_now[shard] = _Adopted(out, header.key_bytes)
            for number, inside in found.entries.items():
                if inside.isdisjoint(open_now):
                    continue
                # If an entry is gone, the writer has committed its shards or another process has ended the log. In
                # either case, the new shards will not be committed.
                entry = await load_entry(folder, header.name, header.writer, number)
                for place, section in enumerate(() if entry is None else entry.sections):
                    adopted = open_now.get(section.shard)
                    if adopted is not None and (number, place) <= found.ends[section.shard]:
                        await adopted.write(section)
            for adopted in open_now.values():
                await adopted.out.output.finish()
        for adopted in open_now.values():
            entries.append(replace(publisher.entry_of(adopted.out, 0, 0), first=None, last=None))
            cut += adopted.cut
            if adopted.positions:
                manifest.progress.note(entries[-1].path, adopted.positions)
    return entries, cut


def _has_room(budget: ByteBudget, shards: int) -> bool:
    """Return whether another shard fits into memory in addition to the open shards."""
    return not shards or (shards < _AT_ONCE and 2 * budget.reserved * (shards + 1) <= budget.limit * shards)


class _Adopted:
    """A new shard that is written from the flushed records of another shard."""

    def __init__(self, out: Shard, key_bytes: int) -> None:
        self.out = out
        self._width = key_bytes
        self.positions: Positions = {}
        self._decoder = FrameDecoder(max_record_bytes=ANY_RECORD_BYTES)
        self._digests = b""
        self._fed = 0

    async def write(self, section: Section) -> None:
        """Write the records that end in this section. The first of them may begin in an earlier section."""
        self.positions |= section.positions or {}
        self._digests += section.digests if section.digests is not None else bytes(self._width * section.records)
        keyed = any(self._digests)
        for frames in section.frames:
            self._fed += len(frames)
            if records := await in_thread(lambda part: self._decoder.feed(bytes(part)), frames):
                end = self._width * len(records)
                keys = [self._digests[at : at + self._width] for at in range(0, end, self._width)]
                self._digests = self._digests[end:]
                await self.out.write(records, keys if keyed or any(map(any, keys)) else None)

    @property
    def cut(self) -> int:
        """The number of bytes that are left in an incomplete frame."""
        return self._fed - self._decoder.offset


async def check_end(folder: Storage, header: JobHeader, number: int) -> None:
    """Check that a log has no segment after ``number``, which is supposed to be its end. Its writer may be alive.

    Raises:
        ConflictError: the log continues, so the writer is alive.
    """
    if (await load_last(folder, header.name, header.writer))[0] > number:
        raise ConflictError(
            f"{join(folder.root, header.name)}: the writer {header.writer} is alive; it committed while it was "
            "being recovered"
        )


async def delete_adopted(folder: Storage, entries: Collection[ShardEntry]) -> None:
    """Delete shards that `publish_flushed` created but no commit lists. No other process uses their names."""
    for entry in entries:
        for key in entry.objects:
            await folder.delete(key)


async def delete_flushed(folder: Storage, name: str, writer: str, *, fenced: bool) -> None:
    """Delete the flush log of an ended writer. With ``fenced``, keep its fence, because the writer may be alive."""
    numbers = await numbers_of(folder, name, writer)
    if fenced and numbers:
        there = await load_entry(folder, name, writer, numbers[-1])
        if there is not None and there.fenced_by:
            del numbers[-1]
    await for_each(folder.delete, [flush_key(name, writer, number) for number in numbers])


async def silent_among(folder: Storage, headers: Collection[JobHeader]) -> set[str]:
    """Return the ids of the writers that have flushed records but have been silent for too long since then.

    All times are by the store's clock. If any writer has flushed, a small object is created and deleted to read that
    clock. The flush logs of all writers are listed together; then, for the writers that have not flushed for too long,
    the commits are listed. A fence is not a sign of life, because another process created it.
    """
    silent_after = {header.writer: header.silent_after for header in headers if header.silent_after}
    if not silent_after:
        return set()
    name = next(iter(headers)).name
    prefix = flush_prefix(name)
    told: dict[str, datetime] = {}
    maybe_fences: list[tuple[str, int, datetime]] = []
    async for info in folder.list_objects(prefix):
        found = flush_of(info.key[len(prefix) :])
        if found is not None and found[0] in silent_after:
            since = told.setdefault(found[0], _NEVER)
            if info.size == FENCE_BYTES:
                maybe_fences.append((*found, info.modified))
            else:
                told[found[0]] = max(info.modified, since)
    for writer, number, modified in maybe_fences:
        if modified > told[writer] and not await _is_fence(folder, name, writer, number):
            told[writer] = modified
    if not told or (now := await _time_of(folder, name)) is None:
        return set()

    def is_silent(writer: str, since: datetime) -> bool:
        return (now - since).total_seconds() > silent_after[writer]

    silent = set()
    for writer, flushed in told.items():
        if is_silent(writer, flushed):
            committed = [info.modified async for info in folder.list_objects(f"{manifest_prefix(name)}{writer}-")]
            if is_silent(writer, max(committed, default=flushed)):
                silent.add(writer)
    return silent


async def _is_fence(folder: Storage, name: str, writer: str, number: int) -> bool:
    try:
        entry = await load_entry(folder, name, writer, number)
    except ManifestError:
        return False
    return entry is not None and entry.fenced_by != ""


async def _time_of(folder: Storage, name: str) -> datetime | None:
    """Return the time by the store's clock, or `None` if the store does not yet list the object created to read it."""
    key = f"{flush_prefix(name)}{_TIME}{secrets.token_hex(8)}"
    await folder.put(key, b"\n")
    try:
        return max([info.modified async for info in folder.list_objects(key)], default=None)
    finally:
        await folder.delete(key)


async def clear_flushed(folder: Storage, name: str) -> None:
    """Delete the entries that ended writers created late, and objects left behind by `_time_of`. Keep fences."""
    prefix = flush_prefix(name)
    keys = [info.key async for info in folder.list_objects(prefix)]
    if not keys:
        return
    begun = set(await find_begun(folder, name))  # listed after the keys, so the writer of each key is included
    for key in keys:
        found = flush_of(key[len(prefix) :])
        if key.startswith(f"{prefix}{_TIME}"):
            await folder.delete(key)
        elif found is not None and found[0] not in begun:
            entry = await load_entry(folder, name, *found)
            if entry is not None and not entry.fenced_by:
                await folder.delete(key)
