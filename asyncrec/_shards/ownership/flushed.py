"""Find in its flush log what a writer without a disk had flushed when it died, and write it into shards.

The naive way is to list the log and to write what is there. Suppose B does that while the writer A is still alive: A
flushes once more, tells its caller that the records are safe, and B ends A without them. So B first creates A's next
flush entry as a *fence*, and lists after that: a later flush of A's is refused, and A gets an error. If a lock has
proven that A's process is gone, no request of A's can be acknowledged any more, and no fence is needed.

Entries for a shard that was committed are void. B's shards have B's token in their names, so that they stay B's own if
B loses, and the end of A's log names them (docs/protocol.md).
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
from asyncrec.errors import ConflictError, ManifestError, ObjectExistsError, ObjectNotFoundError
from asyncrec.storage._base import Storage
from asyncrec.storage._url import join

_ATTEMPTS = 100
# Shards that are made at once, if their chunks fit into the memory.
_AT_ONCE = 16
_TIME = "~time-"
_NEVER = datetime.min.replace(tzinfo=UTC)
# Some stores take chunks of 64 MiB.
_MEMORY_LIMIT = 256 << 20
# One that is not compressed, with its line; a record's frame and digest are not divided between two.
_MOST_BYTES = 2 * MOST_ENTRY


class Flushed(NamedTuple):
    """The content of a flush log.

    Attributes:
        entries: the numbers of the entries that are read, in order, each with the shards that it has records of.
        records: how many of their records are taken, by shard.
        ends: the section up to which a shard's are taken: the number of the entry, and the section's own in it.
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
    """Load an entry; `None` if it is gone.

    Raises:
        ManifestError: it cannot be read.
    """
    key = flush_key(name, writer, number)
    try:
        data = await folder.get(key, max_bytes=_MOST_BYTES)
    except ObjectNotFoundError:
        return None
    return await in_thread(lambda: parse_flush_entry(data, name=f"{folder.root}/{key}"))


async def put_fence(folder: Storage, name: str, writer: str, *, by: str) -> None:
    """Ensure that a writer flushes nothing more.

    The number of a fence may have been used before: the writer deletes its entries. So a fence, also one of another
    process, counts only if a look after it shows that the writer has not come so far.

    Raises:
        ConflictError: the writer flushes faster than it can be fenced.
        StorageError: it is unknown whether the writer still flushes.
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
    """Return the last number of a flush log that is listed, and the last that a commit states.

    In this order: an entry that is no longer listed because a commit made it void is stated by that commit.
    """
    listed = await numbers_of(folder, name, writer)
    _, segment = await load_last(folder, name, writer)
    return max(listed, default=0), 0 if segment is None else segment.flushed


async def live_of(folder: Storage, name: str, writer: str) -> Flushed:
    """Find what is in a flush log, behind its fence, except entries that a later one repeats.

    Its records of shards that were ever committed are void. The last records of a shard may be a part of a position's
    records: those are left out.
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
    """Publish what was flushed of these shards, under names of this attempt's own.

    Returns their entries, and how many bytes are left of frames that have no end.
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
            # Each entry is loaded once for all of these.
            while waiting and _has_room(budget, len(open_now)):
                shard = waiting.popleft()
                name = rolling_shard_name(own.name, own.writer, sequence_of(shard))
                out = await stack.enter_async_context(publisher.open_shard(name))
                open_now[shard] = _Adopted(out, header.key_bytes)
            for number, inside in found.entries.items():
                if inside.isdisjoint(open_now):
                    continue
                # If it is gone, the writer has committed, or another has ended it: then nothing of this is committed.
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
    """Return whether one more shard fits beside those that are open."""
    return not shards or (shards < _AT_ONCE and 2 * budget.reserved * (shards + 1) <= budget.limit * shards)


class _Adopted:
    """A shard that is made of what was flushed of another."""

    def __init__(self, out: Shard, key_bytes: int) -> None:
        self.out = out
        self._width = key_bytes
        self.positions: Positions = {}
        self._decoder = FrameDecoder(max_record_bytes=ANY_RECORD_BYTES)
        self._digests = b""
        self._fed = 0

    async def write(self, section: Section) -> None:
        """Write the whole records of a section, and of the ones before it."""
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
        """How many bytes are left of a frame that has no end."""
        return self._fed - self._decoder.offset


async def check_end(folder: Storage, header: JobHeader, number: int) -> None:
    """Ensure that the log of a writer that may be alive has nothing behind ``number``, its supposed end.

    Raises:
        ConflictError: it has; the writer is alive.
    """
    if (await load_last(folder, header.name, header.writer))[0] > number:
        raise ConflictError(
            f"{join(folder.root, header.name)}: the writer {header.writer} is alive; it has committed while it was "
            "being recovered"
        )


async def delete_adopted(folder: Storage, entries: Collection[ShardEntry]) -> None:
    """Delete shards that `publish_flushed` made, and no commit names: no other process has their names."""
    for entry in entries:
        for key in entry.objects:
            await folder.delete(key)


async def delete_flushed(folder: Storage, name: str, writer: str, *, fenced: bool) -> None:
    """Delete a flush log whose writer has ended. ``fenced``: its fence stays, since the writer may be alive."""
    numbers = await numbers_of(folder, name, writer)
    if fenced and numbers:
        there = await load_entry(folder, name, writer, numbers[-1])
        if there is not None and there.fenced_by:
            del numbers[-1]
    await for_each(folder.delete, [flush_key(name, writer, number) for number in numbers])


async def silent_among(folder: Storage, headers: Collection[JobHeader]) -> set[str]:
    """Return the ids of those writers that have flushed something, and have not changed for too long.

    The store's own clock decides: if there is anything to judge, a small object is made and deleted to read it. The
    flush logs of all writers are listed at once, and then the commits of those that have not flushed for too long. A
    fence is not a sign of life: another process has made it.
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
    """Return the time by the store's clock; `None` if the store does not list the new object yet."""
    key = f"{flush_prefix(name)}{_TIME}{secrets.token_hex(8)}"
    await folder.put(key, b"\n")
    try:
        return max([info.modified async for info in folder.list_objects(key)], default=None)
    finally:
        await folder.delete(key)


async def clear_flushed(folder: Storage, name: str) -> None:
    """Delete late entries of writers that have ended, and objects left by judging writers. Fences stay."""
    prefix = flush_prefix(name)
    keys = [info.key async for info in folder.list_objects(prefix)]
    if not keys:
        return
    begun = set(await find_begun(folder, name))  # looked at behind the list
    for key in keys:
        found = flush_of(key[len(prefix) :])
        if key.startswith(f"{prefix}{_TIME}"):
            await folder.delete(key)
        elif found is not None and found[0] not in begun:
            entry = await load_entry(folder, name, *found)
            if entry is not None and not entry.fenced_by:
                await folder.delete(key)
