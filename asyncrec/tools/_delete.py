"""`delete` removes records by rewriting the shards that contain them, leaving no byte of the deleted records.

If a record were only marked as deleted, every reader would have to check for the mark forever, and the bytes would
remain. Therefore, the affected shards are rewritten, one piece at a time. A piece is a job
(`asyncrec._shards.writing.job`) that publishes its shards, wins a place in the log of removals, and ends with one
segment that adds the new shards and removes the old ones. Then the old shards and everything derived from them are
deleted. docs/design/deleting-records.md explains the reasons, and what happens when processes race.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from contextlib import aclosing
from datetime import UTC, datetime
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from asyncrec._concurrency.map import for_each
from asyncrec._concurrency.tasks import in_thread
from asyncrec._framing.compression import parse_compression
from asyncrec._shards.commit.compaction import clean_runs
from asyncrec._shards.ownership.census import find_jobs
from asyncrec._shards.recovery.report import UnfinishedJob
from asyncrec.errors import ArgumentValueError, ConflictError, DatasetError, ObjectNotFoundError
from asyncrec.storage._base import Storage
from asyncrec.storage._url import join
from asyncrec.tools._bodies import Finder, WithContents, has_contents, next_move
from asyncrec.tools._conditions import Conditions, Where, features_of
from asyncrec.tools._delete_report import DeleteReport, Deletion
from asyncrec.tools._forgotten import ByConditions, ByKeys, Found
from asyncrec.tools._orphans import find_unlisted
from asyncrec.tools._parameters import Advance, Progress, at_once, check_jobs
from asyncrec.tools._revisited import revisits_without
from asyncrec.tools._rewriting import MOST_AT_ONCE, Moved, end_dead, entry_of, refuse_unnamed, removed_among, rewrite
from asyncrec.tools._selection import SelectedShard, Selection, reselected, selected

_NONE = np.empty(0, np.int64)
# The maximum size of a piece. If the process is killed, at most one piece has to be repeated. Rewriting a piece
# temporarily needs this much additional space.
_PIECE_SHARDS = 256
_PIECE_BYTES = 1 << 30
# The maximum number of attempts at planning. Whenever another process removes or replaces shards, the remaining work is
# planned again.
_ATTEMPTS = 5


async def delete(
    path: str | os.PathLike[str],
    *,
    keys: Iterable[str | bytes] | None = None,
    where: Sequence[Where] = (),
    content: bool = False,
    dry_run: bool = False,
    jobs: int | None = None,
    progress: Progress = lambda done, total: None,
    storage: Storage | None = None,
    storage_options: Mapping[str, Any] | None = None,
) -> DeleteReport:
    """Delete the records of a data set that have one of ``keys``, or for which every condition holds.

    The call deletes all such records committed before it began, and then searches once more for records committed
    meanwhile. A reader that opens the data set afterwards finds none of them, and no byte of them is left in its
    shards, indexes, keys and runs of keys. The other records keep their order, keys and times. A deleted key may be
    written again, but a writer that was open with ``on_duplicate="skip"`` during the call skips the key until the
    writer is opened again.

    If remaining revisits refer to a body that is deleted by key (``seen=`` of a writer), the body first moves to the
    earliest committed of these revisits, which becomes a whole page. Conditions that would leave such revisits are
    rejected.

    Shards that contain a record to delete are rewritten, and the old shards are deleted. A reader that already had the
    data set open raises ObjectNotFoundError at such a shard, and must open the data set again. Other processes may
    write during the call. If a writer replaces the data set at the same time, either the writer fails, or this call
    starts again with the new shards.

    Each commit, of at most 256 shards or 1 GiB, is atomic, but the whole call is not. If the call fails, is cancelled
    or is killed, only some of the records may be deleted. Call the function again with the same arguments.

    Args:
        keys: the keys, as they were passed to ``writer.write``.
        where: conditions, as for `filter`. All records are read. Pages are read twice, and so are records without a
            schema, or with one that allows more features.
        content: also delete all records that share a body with one of these records (its revisits under any key, and
            the page to which it refers). Such records are found only by the digests of a writer with ``seen=``.
        dry_run: count the records that would be deleted, without changing anything.
        jobs: the number of shards to rewrite at once; at most 4.

    Raises:
        TypeError, ValueError: neither keys nor conditions were passed, or both were; a key is empty, or neither text
            nor bytes; no record has the feature of a condition; or conditions select a page but not a revisit that
            needs its body. Nothing was changed. Without a schema, a ValueError is also raised if a record shows that a
            feature cannot have the value of a condition.
        DatasetError: the path is not a data set with a manifest, or a shard's keys are damaged.
        FormatError: a shard is damaged; that shard is not changed.
        ObjectChangedError: a shard is not the one in the manifest; that shard is not changed.
        ConflictError: other processes kept removing shards, or one of them did not end.
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
            await _check(selection, conditions, content=content)
        finder: Finder = by_keys or ByConditions(conditions)
        if content:
            finder = WithContents(finder)
        report = DeleteReport(path=selection.path, where=[str(each) for each in where], dry_run=dry_run, begun=begun)
        deleting = _Deleting(selection, finder, report, Advance(progress, selection.bytes), jobs)
        if dry_run:
            await deleting.count()
        else:
            await end_dead(selection.datasets[0])
            await deleting.run()
            await _clear_up(await reselected(selection), report)
    if by_keys is not None:
        report.keys, report.keys_found = by_keys.count, by_keys.found
    return report


class _Deleting:
    """One call of `delete`.

    The call lists the shards and processes them. If it has committed anything, it lists the shards once more, and
    processes the new ones. Then it stops, because a busy writer might keep adding new shards forever.
    """

    def __init__(
        self, selection: Selection, finder: Finder, report: DeleteReport, advance: Advance, jobs: int | None
    ) -> None:
        self._selection = selection
        self._finder = finder
        self._report = report
        self._advance = advance
        self._tasks = min(at_once(jobs, selection.storage, far=MOST_AT_ONCE), MOST_AT_ONCE)
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
        """Delete the records.

        Raises:
            ConflictError, ObjectNotFoundError: other processes interfered with every attempt.
        """
        behind = False
        for attempts_left in reversed(range(_ATTEMPTS)):
            before, failure = self._report.records, None
            try:
                if not isinstance(self._finder, ByConditions):
                    await self._move_bodies()
                await self._go_through()
            except (ConflictError, ObjectNotFoundError) as error:
                failure = error
            if failure is None and (behind or before == self._report.records):
                break
            behind = failure is None
            old, self._selection = self._selection, await reselected(self._selection)
            # If other processes have removed shards, plan the remaining work again for the current data set.
            if failure is not None and (not attempts_left or _removals(old) == _removals(self._selection)):
                raise failure
        self._finder.end()

    async def _move_bodies(self) -> None:
        """Move each body that the remaining revisits need into one of those revisits."""
        while True:
            new = [shard for shard in self._selection.shards if shard.key not in self._seen]
            piece = await next_move(self._selection, self._finder, new)
            if piece is None:
                break
            await self._rewrite([(shard, _NONE) for shard in piece.shards], piece.moved)
            self._selection = await reselected(self._selection)

    async def _go_through(self) -> None:
        """Delete the records in all shards that have not been processed yet."""
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
                entry = entry_of(shard)
                piece = pieces.setdefault((entry.compression, entry.index is not None), [])
                piece.append((shard, records))
                if len(piece) == _PIECE_SHARDS or sum(each.size for each, _ in piece) >= _PIECE_BYTES:
                    await rewrite(piece)
        for piece in filter(None, pieces.values()):
            await rewrite(piece)

    def _see(self, shard: SelectedShard) -> None:
        self._seen.add(shard.key)
        self._advance(shard.size)

    async def _rewrite(self, piece: Sequence[Found], moved: Moved | None = None) -> list[str]:
        """Rewrite the shards of a piece, and commit the new shards in their place. Return the keys of the new shards.

        ``moved`` contains the pages, with their bodies, that replace revisits in these shards.

        Raises:
            ConflictError: another process has already replaced the shards; nothing was changed.
        """
        (dataset,) = self._selection.datasets
        refuse_unnamed(self._selection, [shard for shard, _ in piece])
        compression = parse_compression(entry_of(piece[0][0]).compression)
        groups = [[found] for found in piece]
        made = await rewrite(self._selection, groups, compression=compression, tasks=self._tasks, moved=moved)
        assert made is not None, "rewrite was called without goes_on"
        done = Deletion(
            time=datetime.now(UTC),
            job=made.job,
            records=sum(len(records) for _, records in piece),
            shards=tuple(entry.path for entry in made.old),
            bytes=sum(entry.bytes for entry in made.old),
            written=sum(entry.bytes for entry in made.new),
        )
        self._report.deletions.append(done)
        self._report.records += done.records
        if moved is None:
            self._report.shards += len(made.old)
            self._report.bytes += done.bytes
        self._report.objects += [join(dataset.folder.root, each) for entry in made.old for each in entry.objects]
        return [dataset.prefix + entry.path for entry in made.new]


async def _check(selection: Selection, conditions: Conditions, *, content: bool) -> None:
    """Check the conditions before anything is deleted, by reading all records unless a schema shows enough.

    Raises:
        ValueError: no record has the feature of a condition; or as for `_refuse_to_lose_bodies`.
        Other errors: as for `_refuse_to_lose_bodies`.
    """
    # Conditions never move a body, because they could also select the page that receives it.
    if not (content and await in_thread(partial(has_contents, selection, everywhere=True))):
        await _refuse_to_lose_bodies(selection, conditions)
    elif not conditions.known:
        async with aclosing(ByConditions(conditions).find(selection, selection.shards)) as found:
            async for _ in found:
                pass
    conditions.end()


async def _refuse_to_lose_bodies(selection: Selection, conditions: Conditions) -> None:
    """Raise an error if conditions select a page with a body, but not every revisit that refers to that body.

    Raises:
        ValueError: the conditions select such a page; the message names some of the revisits.
        Other errors: as for `KeyedRecords` and `Conditions.chosen`.
    """

    def chosen(records: list[bytes], first: int) -> NDArray[np.bool_]:
        found = np.zeros(len(records), np.bool_)
        found[conditions.chosen(records)] = True
        return found

    if lost := await revisits_without(selection, chosen):
        raise ArgumentValueError(
            f"{selection.path}: the conditions select pages with bodies, but not the revisits that refer to them, such "
            f"as {', '.join(lost)}; nothing was deleted"
        ).with_remedy(
            "delete these pages by their keys, with all their versions, or choose conditions that keep the bodies"
        )


def _removals(selection: Selection) -> int:
    return selection.datasets[0].manifest.removals


async def _clear_up(selection: Selection, report: DeleteReport) -> None:
    """Delete outdated runs of keys and leftovers of removed shards. Report unlisted objects and unfinished jobs."""
    (dataset,) = selection.datasets
    folder, name = dataset.folder, dataset.name
    runs = await clean_runs(folder, name, path=selection.path)
    report.unfinished = [UnfinishedJob.of(job.header) for job in await find_jobs(folder, name)]
    orphans = await find_unlisted(dataset, selection.base, min_age=0)
    left = await removed_among(dataset, orphans)
    await for_each(folder.delete, left)
    deleted = {*report.objects, *(join(folder.root, key) for key in (*runs, *left))}
    report.objects = sorted(deleted)
    report.uncommitted = sorted(orphan.path for orphan in orphans if orphan.key not in left)
