"""`delete` forgets records: the shards that have them are written anew without them, and then no byte of them is left.

A page has to be taken down. The naive way is to note that its record is deleted, and to let readers pass over it: then
each reader, for ever, has to know of the note, and the bytes are still there. So the shards concerned are rewritten, a
piece at a time: a piece is a job (`asyncrec._shards.writing.job`) that publishes its shards, wins a place in the log of
removals, and ends with one segment that adds the new shards and removes the old ones. Behind that the old ones are
deleted, and whatever was made of them. docs/design/2026-11-28-forgetting-records.md says why, and what races do.
"""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack, aclosing
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from asyncrec._concurrency.map import for_each
from asyncrec._concurrency.tasks import in_thread
from asyncrec._framing.compression import parse_compression
from asyncrec._shards.commit.compaction import clean_runs
from asyncrec._shards.manifest.names import maker_of, rewritten_name
from asyncrec._shards.manifest.segment import ShardEntry
from asyncrec._shards.manifest.shard_list import SINCE, since_of
from asyncrec._shards.ownership.census import find_jobs
from asyncrec._shards.ownership.end_job import end_job
from asyncrec._shards.ownership.verdict import Verdict
from asyncrec._shards.recovery.report import UnfinishedJob
from asyncrec._shards.writing.job import Job
from asyncrec._shards.writing.open_job import open_job, whole_job_header
from asyncrec._shards.writing.ordered_writer import Batch, Limits, Supply, write_shard
from asyncrec.errors import ArgumentValueError, ConflictError, DatasetError, ObjectNotFoundError
from asyncrec.storage._base import Storage
from asyncrec.storage._url import join
from asyncrec.tools._conditions import Conditions, Where, features_of
from asyncrec.tools._delete_report import DeleteReport, Deletion
from asyncrec.tools._forgotten import ByConditions, ByKeys, Found
from asyncrec.tools._frames_reading import FramedRecords
from asyncrec.tools._orphans import find_unlisted
from asyncrec.tools._parameters import Advance, Progress, at_once, check_jobs
from asyncrec.tools._revisited import refuse_to_lose_bodies
from asyncrec.tools._selection import SelectedDataset, SelectedShard, Selection, reselected, selected

# A piece of the work: what a kill loses, and the room that is needed beside the data set.
_PIECE_SHARDS = 256
_PIECE_BYTES = 1 << 30
# Shards that are rewritten at once: each takes some chunks of memory.
_MOST_AT_ONCE = 4
# If another process removes or replaces shards at the same time, the rest is planned anew.
_ATTEMPTS = 5


async def delete(
    path: str | os.PathLike[str],
    *,
    keys: Iterable[str | bytes] | None = None,
    where: Sequence[Where] = (),
    dry_run: bool = False,
    jobs: int | None = None,
    progress: Progress = lambda done, total: None,
    storage: Storage | None = None,
    storage_options: Mapping[str, Any] | None = None,
) -> DeleteReport:
    """Delete the records of a data set that have one of some keys, or for which every condition holds.

    It deletes all records of a key, from everything that was committed when the call began, or later but before its
    last commit. A reader that opens the data set behind that finds none of them, and no byte of them is left in its
    shards, indexes, keys and runs of keys. The other records keep their order, keys and times. A deleted key may be
    written again, but a writer that was open with ``on_duplicate="skip"`` skips it until it is opened again.

    Shards that have such a record are written anew, and the old ones are deleted. A reader that has the data set open
    fails with ObjectNotFoundError at such a shard, and has to open it again. Others may write meanwhile; a writer that
    replaces the data set at the same time fails, or this call does it all again on what is there then.

    All or nothing is each commit, of at most 256 shards or 1 GiB, and not the whole call: if it fails, is cancelled or
    killed, some records are deleted and some are not. Call it again with the same arguments.

    Args:
        keys: the keys, as they were passed to ``writer.write``.
        where: conditions, as for `filter`; for these, all records are read, and pages twice.
        dry_run: count what would be deleted, and change nothing.
        jobs: how many shards are rewritten at once; at most 4.

    Raises:
        TypeError, ValueError: neither keys nor conditions were passed, or both, or a key is empty or no text, or no
            record has the feature of a condition, or conditions choose the body of a page and not a revisit of it:
            nothing was changed. Or, without a schema, a record shows that a feature cannot have the value of a
            condition.
        DatasetError: the path is not a data set with a manifest, or a shard's keys are damaged.
        FormatError: a shard is damaged, and stays as it is.
        ConflictError: other processes remove shards again and again, or one of them does not end.
        StorageError: the store failed.
    """
    check_jobs(jobs)
    if keys is not None and where:
        raise ArgumentValueError("keys and where cannot be combined; delete by one of them, and then by the other")
    if keys is None and not where:
        raise ArgumentValueError("neither keys nor a condition was passed, so there is nothing to delete")
    begun = datetime.now(UTC)
    by_keys = None if keys is None else await in_thread(ByKeys, keys)
    options = None if storage_options is None else dict(storage_options)
    async with selected(path, storage=storage, storage_options=options) as selection:
        if selection.kind != "data set":
            raise DatasetError(
                f"{selection.path}: records can be deleted only from a data set with a manifest; pass its folder and "
                "name"
            )
        conditions = Conditions(where, features_of(selection.schema), selection.path)
        if by_keys is None:
            await refuse_to_lose_bodies(selection, conditions)
        finder = by_keys or ByConditions(conditions)
        report = DeleteReport(path=selection.path, where=[str(each) for each in where], dry_run=dry_run, begun=begun)
        deleting = _Deleting(selection, finder, report, Advance(progress, selection.bytes), jobs)
        if dry_run:
            await deleting.count()
        else:
            await _end_dead(selection.datasets[0])
            await deleting.run()
            await _clear_up(await reselected(selection), report)
    if by_keys is not None:
        report.keys, report.keys_found = by_keys.count, by_keys.found
    return report


class _Deleting:
    """The progress of one call.

    It looks, goes through the shards that it has not seen, and looks again, until a look behind its last commit was
    gone through: whatever was committed before that commit is in it.
    """

    def __init__(
        self,
        selection: Selection,
        finder: ByKeys | ByConditions,
        report: DeleteReport,
        advance: Advance,
        jobs: int | None,
    ) -> None:
        self._selection = selection
        self._finder = finder
        self._report = report
        self._advance = advance
        self._tasks = min(at_once(jobs, selection.storage, far=_MOST_AT_ONCE), _MOST_AT_ONCE)
        self._seen: set[str] = set()

    async def count(self) -> None:
        async with aclosing(self._finder.find(self._selection, self._selection.shards)) as found:
            async for shard, records in found:
                if len(records):
                    self._report.records += len(records)
                    self._report.shards += 1
                    self._report.bytes += shard.size
                self._advance(shard.size)
        self._finder.end()

    async def run(self) -> None:
        """Delete.

        Raises:
            ConflictError: others were faster, again and again.
        """
        behind = False
        for attempts_left in reversed(range(_ATTEMPTS)):
            before, failure = self._report.records, None
            try:
                await self._go_through()
            except (ConflictError, ObjectNotFoundError) as error:
                failure = error
            if failure is None and (behind or before == self._report.records):
                break
            behind = failure is None
            old, self._selection = self._selection, await reselected(self._selection)
            # Others have removed shards: the rest is planned anew, on what is there now.
            if failure is not None and (not attempts_left or _removals(old) == _removals(self._selection)):
                raise failure
        self._finder.end()

    async def _go_through(self) -> None:
        """Go through the shards that it has not seen."""
        pieces: dict[tuple[str, bool], list[Found]] = {}

        async def rewrite(piece: list[Found]) -> None:
            self._seen.update(await self._rewrite(piece))
            for shard, _ in piece:
                self._see(shard)
            piece.clear()

        new = [shard for shard in self._selection.shards if shard.key not in self._seen]
        async with aclosing(self._finder.find(self._selection, new)) as found:
            async for shard, records in found:
                if not len(records):
                    self._see(shard)
                    continue
                assert shard.entry is not None, "a manifest lists it"
                piece = pieces.setdefault((shard.entry.compression, shard.entry.index is not None), [])
                piece.append((shard, records))
                if len(piece) == _PIECE_SHARDS or sum(each.size for each, _ in piece) >= _PIECE_BYTES:
                    await rewrite(piece)
        for piece in filter(None, pieces.values()):
            await rewrite(piece)

    def _see(self, shard: SelectedShard) -> None:
        self._seen.add(shard.key)
        self._advance(shard.size)

    async def _rewrite(self, piece: Sequence[Found]) -> list[str]:
        """Write the shards of a piece anew, and commit them in the place of the old ones; returns the keys of both.

        Raises:
            ConflictError: another process was faster; nothing was changed.
        """
        (dataset,) = self._selection.datasets
        old = [entry for shard, _ in piece if (entry := shard.entry) is not None]
        paths = [entry.path for entry in old]
        for path in paths:
            if maker_of(dataset.name, path) is None:
                raise DatasetError(
                    f"{self._selection.path}: the shard {path} has no name of this data set's own, so it cannot be "
                    "rewritten; reshard the data set first"
                )
        header = whole_job_header(
            dataset.folder,
            dataset.name,
            rewrites=True,
            index=old[0].index is not None,
            compression=parse_compression(old[0].compression),
            schema=dataset.manifest.schema,
            metadata={},
        )
        async with open_job(dataset.folder, header, path=header.url, mode="append") as job:
            now = job.before
            if now is None or not await in_thread(lambda: all(map(now.shards.names, paths))):
                raise ConflictError(f"{self._selection.path}: shards were replaced at the same time")
            found = await for_each(partial(_write_without, self._selection, job), piece, tasks=self._tasks)
            new = [entry for entry in found if entry is not None]
            await job.commit(new, removed=paths)
        done = Deletion(
            time=datetime.now(UTC),
            job=header.writer,
            records=sum(len(records) for _, records in piece),
            shards=tuple(paths),
            bytes=sum(entry.bytes for entry in old),
            written=sum(entry.bytes for entry in new),
        )
        self._report.deletions.append(done)
        self._report.records += done.records
        self._report.shards += len(old)
        self._report.bytes += done.bytes
        self._report.objects += [join(dataset.folder.root, each) for entry in old for each in entry.objects]
        return [dataset.prefix + entry.path for entry in new]


def _removals(selection: Selection) -> int:
    return selection.datasets[0].manifest.removals


async def _write_without(selection: Selection, job: Job, found: Found) -> ShardEntry | None:
    """Publish what is left of a shard, in its place; `None` if nothing is left."""
    shard, positions = found
    entry = shard.entry
    assert entry is not None, "a manifest lists it"
    if len(positions) == entry.records:
        return None
    async with AsyncExitStack() as stack:
        records = FramedRecords(replace(selection, shards=(shard,)), stack, lambda done, total: None)
        async with aclosing(_without(records, positions)) as batches:
            new = await write_shard(
                job.publisher,
                rewritten_name(entry.path, job.header.writer),
                Supply(batches),
                Limits(),
                compressed=bool(entry.compression),
            )
    if new.records + len(positions) != entry.records:
        raise DatasetError(
            f"{shard.display_path}: the shard has {new.records + len(positions):,} records, but the manifest says "
            f"{entry.records:,}; it stays as it is. Run 'asyncrec verify' for details"
        )
    return replace(new, first=entry.first, last=entry.last, extra={**new.extra, SINCE: since_of(entry)})


async def _without(batches: AsyncIterator[Batch], positions: NDArray[np.int64]) -> AsyncGenerator[Batch]:
    """All records but those at these positions."""
    number = 0
    async for batch in batches:
        low, high = positions.searchsorted([number, number + len(batch)]).tolist()
        if low == high:
            yield batch
        elif high - low < len(batch):
            yield await in_thread(batch.without, positions[low:high] - number)
        number += len(batch)


async def _end_dead(dataset: SelectedDataset) -> None:
    """End the deletions that have died, as far as this machine can tell: what they have published goes."""
    for job in await find_jobs(dataset.folder, dataset.name):
        if job.header.rewrites:
            await end_job(dataset.folder, job, Verdict())


async def _clear_up(selection: Selection, report: DeleteReport) -> None:
    """Delete what was made of removed shards, and what earlier deletions have left of them; note what is not known."""
    (dataset,) = selection.datasets
    folder, name, shards = dataset.folder, dataset.name, dataset.manifest.shards
    runs = await clean_runs(folder, name, path=selection.path)
    report.unfinished = [UnfinishedJob.of(job.header) for job in await find_jobs(folder, name)]
    orphans = await find_unlisted(dataset, selection.base, min_age=0)

    def look() -> set[str]:
        """What was committed once, and is no longer in the data set: such a name is never made again."""
        left = {orphan.key for orphan in orphans if orphan.owner is None and shards.history.rows_naming(orphan.key)}
        return {key for key in left.union(shards.history.objects_of(left)) if not shards.names(key)}

    left = await in_thread(look)
    await for_each(folder.delete, sorted(left))
    deleted = {*report.objects, *(join(folder.root, key) for key in (*runs, *left))}
    report.objects = sorted(deleted)
    report.uncommitted = sorted(orphan.path for orphan in orphans if orphan.key not in left)
