"""`rewrite` replaces shards of a data set with new ones, and commits the change, for `delete` and `compact`.

Each piece of work is a job (`asyncrec._shards.writing.job`) that publishes its shards, wins a place in the log of
removals, and ends with one segment that adds the new shards and removes the old ones. Once the job has won its place,
no other job can remove shards, so the job then checks that the old shards are still in the data set. Other jobs may
change other shards concurrently.
"""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, aclosing, suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from asyncrec._concurrency.map import for_each
from asyncrec._concurrency.read_ahead import iterated_ahead
from asyncrec._concurrency.tasks import in_thread, surely_in_thread
from asyncrec._framing.compression import CompressionOptions
from asyncrec._records.writing.write_batch import PAIR_BYTES
from asyncrec._shards.manifest.names import maker_of, rewritten_name
from asyncrec._shards.manifest.origins import SORTED, Origin, origins_of, sorted_together, with_origins
from asyncrec._shards.manifest.segment import ShardEntry
from asyncrec._shards.ownership.census import find_jobs
from asyncrec._shards.ownership.end_job import end_job
from asyncrec._shards.ownership.removals import removed_at, times_of_removals
from asyncrec._shards.ownership.verdict import Verdict
from asyncrec._shards.writing.job import Job
from asyncrec._shards.writing.open_job import open_job, whole_job_header
from asyncrec._shards.writing.ordered_writer import Batch, KeyedBatch, Limits, Supply, write_shard
from asyncrec.errors import ConflictError, DatasetError, ObjectNotFoundError
from asyncrec.storage._url import join
from asyncrec.tools._forgotten import Found
from asyncrec.tools._frames_reading import FramedRecords
from asyncrec.tools._keyed_records import KeyedRecords
from asyncrec.tools._orphans import Orphan, find_unlisted
from asyncrec.tools._selection import SelectedDataset, SelectedShard, Selection
from asyncrec.tools._shard_reading import check_stored
from asyncrec.tools._sorting import ByFeature, Sorted, Sorter

Moved: TypeAlias = Mapping[str, Mapping[int, tuple[bytes, bytes]]]
"""Replacements, each a record with its digests, by the key of the shard and the number of the replaced record."""

# The number of shards to write at once. Each needs memory for a few chunks.
MOST_AT_ONCE = 4
# If the records of a shard are larger than this in total, they are sorted with temporary files.
_SORTED_BYTES = 64 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Joining:
    """The options for joining shards.

    Attributes:
        rule: as for `Job.commit`.
        sort_by: the feature by which each new shard is sorted; if `None`, the records keep their order.
    """

    rule: tuple[str, int] = ("", 0)
    sort_by: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Rewritten:
    """The result of `rewrite`.

    Attributes:
        job: the id of the job.
        old, new: the entries of the old and of the new shards.
        place: the place of the job in the log of removals.
    """

    job: str
    place: int
    old: list[ShardEntry]
    new: list[ShardEntry]


async def rewrite(
    selection: Selection,
    groups: Sequence[Sequence[Found]],
    *,
    compression: CompressionOptions,
    tasks: int,
    joining: Joining | None = None,
    moved: Moved | None = None,
    goes_on: Callable[[Job], Awaitable[bool]] | None = None,
) -> Rewritten | None:
    """Replace each group of shards with one new shard, leaving out some of their records.

    Args:
        groups: groups of shards of one data set, each shard with the numbers of the records to leave out.
        tasks: the number of shards to write at once. Sorted shards are written one at a time.
        joining: the options for joining shards. If passed, the old shards are kept for their readers; otherwise they
            are deleted after the commit.
        moved: records that replace some of the old records.
        goes_on: called as soon as the job is open. If it returns false, nothing is written, and `rewrite` returns
            `None`.

    Raises:
        ConflictError: another job has already replaced some of the shards; the data set is unchanged.
    """
    (dataset,) = selection.datasets
    old = [entry_of(shard) for group in groups for shard, _ in group]
    paths = [entry.path for entry in old]
    header = whole_job_header(
        dataset.folder,
        dataset.name,
        rewrites=True,
        joins=(min(paths), max(paths)) if joining is not None else (),
        index=old[0].index is not None,
        compression=compression,
        schema=dataset.manifest.schema,
        metadata={},
        contents=any(entry.key_bytes == PAIR_BYTES for entry in old),
    )
    async with open_job(dataset.folder, header, path=header.url, mode="append") as job:
        if goes_on is not None and not await goes_on(job):
            return None
        now = job.before
        if now is None or not await in_thread(lambda: all(map(now.shards.names, paths))):
            raise ConflictError(f"{selection.path}: shards were replaced at the same time")
        write = partial(_write, selection, job, joining, moved or {})
        found = await for_each(write, groups, tasks=tasks if joining is None or joining.sort_by is None else 1)
        new = [entry for entry in found if entry is not None]
        place = await job.commit(new, removed=paths, rule=("", 0) if joining is None else joining.rule)
        assert place is not None, "a commit with removals has a place"
    return Rewritten(job=header.writer, place=place, old=old, new=new)


def entry_of(shard: SelectedShard) -> ShardEntry:
    """Return the entry of a shard in the manifest of its data set."""
    assert shard.entry is not None, "a manifest lists the shard"
    return shard.entry


def refuse_unnamed(selection: Selection, shards: Sequence[SelectedShard]) -> None:
    """Reject shards that cannot be rewritten.

    Raises:
        DatasetError: the name of a shard does not have the form that the data set uses.
    """
    (dataset,) = selection.datasets
    for shard in shards:
        if maker_of(dataset.name, entry_of(shard).path) is None:
            raise DatasetError(
                f"{selection.path}: the shard {entry_of(shard).path} is not named as this data set names shards, so it "
                "cannot be rewritten; reshard the data set first"
            )


async def _write(
    selection: Selection, job: Job, joining: Joining | None, moved: Moved, group: Sequence[Found]
) -> ShardEntry | None:
    """Publish the remaining records of a group as one new shard. Return its entry, or `None` if no record remains."""
    old = [entry_of(shard) for shard, _ in group]
    if sum(entry.records for entry in old) == sum(len(dropped) for _, dropped in group):
        for shard, _ in group:
            with suppress(ObjectNotFoundError):  # a lost shard can be removed
                await check_stored(selection.storage, shard)
        return None

    sort_by = None if joining is None else joining.sort_by

    def records(stack: AsyncExitStack) -> AsyncIterator[Batch]:
        batches = _records(selection, group, moved) if sort_by is None else _sorted(selection, group, sort_by)
        stack.push_async_callback(batches.aclose)
        return batches

    async with iterated_ahead(records, "the old shards") as batches:
        new = await write_shard(
            job.publisher,
            rewritten_name(old[0].path, job.header.writer),
            Supply(batches),
            Limits(),
            compressed=bool(job.header.compression.type),
        )
    name = job.header.name
    origins = [each for entry, (_, dropped) in zip(old, group, strict=True) for each in _left(entry, dropped, name)]
    firsts, lasts = ([time for time in times if time] for times in zip(*((e.first, e.last) for e in old), strict=True))
    new = replace(new, first=min(firsts, default=None), last=max(lasts, default=None))
    if joining is not None and sort_by is not None:
        origins = sorted_together(origins, first=joining.rule[0] == "first")
    known = sort_by if sort_by is not None or len(old) > 1 else old[0].extra.get(SORTED)
    if known is not None:
        new = replace(new, extra={**new.extra, SORTED: known})
    return with_origins(new, origins, name)


async def _sorted(selection: Selection, group: Sequence[Found], sort_by: str) -> AsyncGenerator[Batch]:
    """Yield the records of `_records`, sorted by a feature.

    The records are read twice: first to get the values of the feature, and then to sort them with temporary files.

    Raises: as for `_records` and `ByFeature`.
    """
    order = ByFeature(sort_by, selection.schema, selection.path)
    key_bytes = max(entry_of(shard).key_bytes for shard, _ in group)
    async with aclosing(_records(selection, group, {}, framed=False)) as batches:
        async for batch in batches:
            await in_thread(order.show, batch.records)
    await in_thread(order.end)
    sorter = Sorter(order, key_bytes=key_bytes, memory_limit=_SORTED_BYTES, temporary_folder=None)
    try:
        async with aclosing(_records(selection, group, {}, framed=False)) as batches:
            async for batch in batches:
                await in_thread(sorter.add, batch)
        async for batch in Sorted(sorter):
            yield batch
    finally:
        await surely_in_thread(sorter.close)


def _left(entry: ShardEntry, dropped: NDArray[np.int64], name: str) -> list[Origin]:
    """Return the origins of a shard's records, without counting the dropped records."""
    origins, end, left = origins_of(entry, name), 0, []
    for each in origins:
        begin, end = end, end + each.records
        low, high = dropped.searchsorted([begin, end]).tolist()
        left.append(each._replace(records=each.records - (high - low)))
    return left


async def _records(
    selection: Selection, group: Sequence[Found], moved: Moved, *, framed: bool = True
) -> AsyncGenerator[Any]:
    """Yield the records of a group, leaving out some records and replacing others.

    The batches are of the type `Batch`, or `KeyedBatch` if ``framed`` is false.

    Raises:
        DatasetError, ObjectChangedError: a shard is not the one in the manifest.
    """
    keyed = any(entry_of(shard).keys is not None for shard, _ in group)
    for shard, dropped in group:
        number = 0
        async with AsyncExitStack() as stack:
            kind = FramedRecords if framed else KeyedRecords
            records = kind(replace(selection, shards=(shard,)), stack, lambda done, total: None, keyed=keyed)
            async for batch in records:
                low, high = dropped.searchsorted([number, number + len(batch)]).tolist()
                if shard.key in moved:
                    assert low == high, "a shard with replacements drops no records"
                    for part in _with_moved(batch, number, moved[shard.key]):
                        yield part
                elif low == high:
                    yield batch
                elif high - low < len(batch):
                    yield await in_thread(batch.without, dropped[low:high] - number)
                number += len(batch)


def _with_moved(batch: Batch, first: int, moved: Mapping[int, tuple[bytes, bytes]]) -> Iterator[Batch]:
    """Yield a batch in parts, with replacements for some records. ``first`` is the number of its first record."""
    at = first
    for number in sorted(number for number in moved if first <= number < first + len(batch)):
        record, digests = moved[number]
        before, rest = batch.split(number - at)
        _, batch = rest.split(1)
        at = number + 1
        if len(before):
            yield before
        yield KeyedBatch([record], [digests])
    if len(batch):
        yield batch


async def end_dead(dataset: SelectedDataset) -> None:
    """End the rewriting jobs that this machine can prove dead, and delete the objects that they published."""
    for job in await find_jobs(dataset.folder, dataset.name):
        if job.header.rewrites:
            await end_job(dataset.folder, job, Verdict())


async def removed_among(
    dataset: SelectedDataset, orphans: Sequence[Orphan], times: Mapping[str, float] | None = None, *, until: float = 0.0
) -> list[str]:
    """Return the keys of objects that were once committed but are no longer in the data set.

    The names of such objects are never reused.

    Args:
        times: the times of the removals. If passed, return only objects that were removed by the time ``until``.
    """
    shards = dataset.manifest.shards
    history = shards.history

    def look() -> list[str]:
        left = {orphan.key for orphan in orphans if orphan.owner is None and history.rows_naming(orphan.key)}
        keys = [key for key in left.union(history.objects_of(left)) if not shards.names(key)]
        return sorted(key for key in keys if times is None or removed_at(history, key, times) <= until)

    return await in_thread(look)


async def clear_replaced(selection: Selection, grace: float) -> tuple[str, ...]:
    """Delete the objects that were removed from the data set at least ``grace`` seconds ago. Return their paths.

    Removals are timed by the store's clock, but the times are compared with this machine's clock.
    """
    (dataset,) = selection.datasets
    until = time.time() - grace
    times = await times_of_removals(dataset.folder, dataset.name, dataset.manifest.shards.history)
    if min(times.values(), default=until + 1) > until:
        return ()  # no removal is old enough, so there is no need to list objects
    orphans = await find_unlisted(dataset, selection.base, min_age=0)
    gone = await removed_among(dataset, orphans, times, until=until)
    await for_each(dataset.folder.delete, gone)
    return tuple(join(dataset.folder.root, key) for key in gone)
