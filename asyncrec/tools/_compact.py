"""`compact` joins small shards, merges the manifest into a checkpoint, and deletes objects that were replaced long ago.

A crawl that commits every minute creates thousands of shards, and readers must request or open every one of them.
Neighbouring shards are joined one piece at a time (`_rewriting`); pieces that another call is joining are skipped.
Readers can continue to read the old shards, which are kept for a grace period (docs/design/compacting-shards.md).
"""

from __future__ import annotations

import os
import secrets
import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import Any

import anyio

from asyncrec._arguments import Size
from asyncrec._concurrency.tasks import in_thread
from asyncrec._framing.compression import CompressionOptions, parse_compression
from asyncrec._shards.commit.compaction import GRACE_SECONDS, check_grace, compact_manifest
from asyncrec._shards.manifest.origins import SORTED, times_of
from asyncrec._shards.manifest.shard_columns import format_micros
from asyncrec._shards.manifest.snapshot import dataset_at
from asyncrec._shards.ownership.census import FoundJob, find_jobs
from asyncrec._shards.ownership.end_job import end_job
from asyncrec._shards.ownership.verdict import Verdict
from asyncrec._shards.writing.job import Job
from asyncrec.errors import ArgumentValueError, ConflictError, DatasetError, FormatError, ObjectNotFoundError
from asyncrec.example._age import Age
from asyncrec.storage._base import Storage
from asyncrec.storage._url import join, redact
from asyncrec.tools._bodies import has_contents
from asyncrec.tools._compact_report import CompactReport
from asyncrec.tools._duplicates import NO_DUPLICATES, Duplicates, find_duplicates
from asyncrec.tools._joining import Piece, planned
from asyncrec.tools._keyed_records import KeptCompression
from asyncrec.tools._parameters import Advance, Progress, at_once, check_jobs, shard_bytes
from asyncrec.tools._rewriting import MOST_AT_ONCE, Joining, clear_replaced, end_dead, entry_of, rewrite
from asyncrec.tools._selection import SelectedShard, Selection, reselected, selected

# Give up after this many plans in a row have failed because other processes removed the same shards.
_ATTEMPTS = 20
# If two jobs begin to join the same shards, one gives way. The other checks this many times, this many seconds apart.
_LOOKS, _BETWEEN_LOOKS = 5, 0.3
# If it is unknown whether a job is alive, its shards are left alone until this many seconds after it began.
_LEFT_SECONDS = 3600.0


async def compact(
    path: str | os.PathLike[str],
    *,
    max_shard_bytes: Size | None = None,
    compression: KeptCompression = "keep",
    drop_duplicates: bool = False,
    newest: str | None = None,
    sort_by: str | None = None,
    manifest_only: bool = False,
    dry_run: bool = False,
    grace: float = GRACE_SECONDS,
    latest: bool = False,
    jobs: int | None = None,
    progress: Progress = lambda done, total: None,
    storage: Storage | None = None,
    storage_options: Mapping[str, Any] | None = None,
) -> CompactReport:
    """Join small shards of the data set at ``path``, and merge its commits into a checkpoint: a manifest in one object.

    Call this function occasionally during a crawl, and once after the crawl has ended. Other processes may write, read
    or compact at the same time, and concurrent calls share the work. Records keep their order, keys, and times.

    Shards smaller than half of ``max_shard_bytes`` are joined with their neighbours. Larger shards are not changed, and
    neither is a joined shard until its new neighbours are about as large. The old shards are kept for ``grace`` seconds
    so that readers that have the data set open can continue; a later call deletes them. Each commit covers at most
    1 GiB. If the call fails, is cancelled or is killed, call the function again to continue. Shards that are committed
    during the call are joined by the next call.

    The call also reads the keys of new shards and sorts them into *runs* beside the checkpoint, with 24 bytes for each
    key. With runs, look-ups by key and writers that skip duplicates need no request for each shard. A million keys are
    sorted at a time, which takes 150 MiB of memory, or up to 300 MiB if more keys are new.

    Args:
        path: the data set's folder and name.
        max_shard_bytes: the maximum size of a joined shard; 256 MiB by default.
        compression: the compression of the new shards. Shards with another compression are rewritten regardless of
            size. By default, each shard keeps its compression, and only shards of the same compression are joined.
        drop_duplicates: leave out each record with the key of a record that was committed earlier. Shards with such
            records, which are found by reading the keys of all shards, are rewritten regardless of their size. Data
            sets of writers with ``seen=``, whose records share bodies, are rejected.
        newest: with ``drop_duplicates``, a feature, such as ``"date"``, by which the newest record of each key is kept
            (see `asyncrec.open_dataset`) rather than the first committed. Records whose keys occur more than once are
            read and compared. For pages, all records are read, because no revisit may lose its body.
        sort_by: with ``drop_duplicates``, a feature by which the records of each joined shard are sorted. Unsorted
            shards are rewritten regardless of their size, except those younger than ``grace``. The values are numbers
            or text; only the first 128 bytes of text are compared. Records without the feature come first. Each shard
            is read twice, and sorted with temporary files and 64 MiB of memory, plus up to 136 bytes for each record.
        manifest_only: only merge the manifest, without joining or deleting any shards.
        dry_run: count the shards that would be joined, without changing anything.
        grace: the number of seconds for which old shards are kept after the commit that replaced them, segments after
            they were merged, and checkpoints after the next checkpoint was written. At least 60.
        latest: also write an object with a fixed name that refers to the newest checkpoint, for readers of a store that
            cannot list objects. That checkpoint is kept.
        jobs: the number of shards to write at once; at most 4.

    Raises:
        ValueError: options are invalid or contradict each other; or the feature ``newest`` has no order; or a page
            whose newest version is a revisit would lose its body. The data set is unchanged.
        ObjectNotFoundError: there is no manifest.
        DatasetError: the path is not a data set with a manifest.
        FormatError: a shard is damaged; neither that shard nor the shards to be joined with it are changed. With
            ``newest``, no shard is joined if a record is damaged whose key occurs more than once or that may be a page.
        DatasetError, ObjectChangedError: a shard is not the one in the manifest; it is not joined.
        ManifestError: the manifest cannot be read.
        ConflictError: other processes kept removing shards, or one of them did not end.
        StorageError: the store failed.
    """
    check_jobs(jobs)
    check_grace(grace)
    target = None if compression == "keep" else parse_compression(compression)
    size = shard_bytes(max_shard_bytes)
    if manifest_only and (max_shard_bytes is not None or target is not None or drop_duplicates or dry_run):
        raise ArgumentValueError(
            "manifest_only joins no shards, so it cannot be combined with max_shard_bytes, compression, "
            "drop_duplicates or dry_run"
        )
    if not drop_duplicates and (newest is not None or sort_by is not None):
        raise ArgumentValueError(
            "newest chooses the record to keep when others with its key are dropped"
            if newest is not None
            else "sort_by loses the order in which records with the same key were committed"
        ).with_remedy("pass drop_duplicates=True, too", command="add --drop-duplicates")
    options = None if storage_options is None else dict(storage_options)
    report = CompactReport(path=redact(os.fspath(path)), dry_run=dry_run)
    if not manifest_only:
        async with selected(path, storage=storage, storage_options=options) as selection:
            if selection.kind != "data set":
                raise DatasetError(
                    f"{selection.path}: only a data set with a manifest can be compacted; pass its folder and name"
                )
            if drop_duplicates and await in_thread(has_contents, selection):
                raise ArgumentValueError(
                    f"{selection.path}: drop_duplicates would drop versions of pages whose bodies other pages may "
                    "refer to, because a writer of this data set used seen=; nothing was changed"
                )
            tasks = min(at_once(jobs, selection.storage, far=MOST_AT_ONCE), MOST_AT_ONCE)
            for argument, feature in (("newest", newest), ("sort_by", sort_by)):
                if feature is not None:  # raises before anything is changed
                    Age(feature, selection.schema, selection.path, argument=argument)
            joining = _Joining(selection, _Wanted(size, target, drop_duplicates, newest, sort_by, grace), report, tasks)
            if dry_run:
                await joining.count()
                return report
            await end_dead(selection.datasets[0])
            await joining.run(progress)
    async with dataset_at(path, storage=storage, storage_options=options) as (folder, name):
        done = await compact_manifest(folder, name, path=report.path, grace=grace, latest=latest)
        report.id, report.shards, report.records = done.manifest.id, len(done.manifest.shards), done.manifest.records
        report.checkpoint = None if done.checkpoint is None else join(folder.root, done.checkpoint)
        report.written, report.merged, report.deleted = done.written, done.covered, done.deleted
        report.latest = join(folder.root, done.latest) if done.latest else None
    if not manifest_only and done.manifest.removals:
        async with selected(path, storage=storage, storage_options=options) as selection:
            report.removed = await clear_replaced(selection, grace)
    return report


@dataclass(frozen=True, slots=True)
class _Wanted:
    """The options of one call of `compact`. If ``compression`` is `None`, each shard keeps its compression."""

    max_bytes: int
    compression: CompressionOptions | None
    drops: bool
    newest: str | None
    sort_by: str | None
    grace: float

    async def plan(self, selection: Selection) -> tuple[list[Piece], Duplicates]:
        """Return the pieces to join, and the duplicate records to leave out."""
        kind = None if self.compression is None else self.compression.type
        dropped = await find_duplicates(selection, self.newest) if self.drops else NO_DUPLICATES
        until = format_micros(round((time.time() - self.grace) * 1e6))

        def concerned(shard: SelectedShard) -> bool:
            return shard in dropped or self.sort_by not in (None, entry_of(shard).extra.get(SORTED))

        def stays(shard: SelectedShard) -> bool:
            """Return whether a shard is too young to sort: a follower may have read only some of its records."""
            return self.sort_by is not None and max(since for _, since in times_of(entry_of(shard))) > until

        plan = partial(planned, max_bytes=self.max_bytes, compression=kind, concerned=concerned, stays=stays)
        return await in_thread(plan, selection.shards), dropped

    def compression_of(self, piece: Piece) -> CompressionOptions:
        """Return the compression for a piece's new shards."""
        return self.compression or parse_compression(piece.kind.compression)


class _Joining:
    """One call of `compact`. It plans the pieces, joins them, and plans again if other processes interfered."""

    def __init__(self, selection: Selection, wanted: _Wanted, report: CompactReport, tasks: int) -> None:
        self._selection = selection
        self._wanted = wanted
        self._report = report
        self._tasks = tasks
        self._advance: Advance | None = None
        self._dropped = NO_DUPLICATES
        self._seen_removals = 0

    async def count(self) -> None:
        """Count the shards that a call would join, without changing anything."""
        pieces, self._dropped = await self._wanted.plan(self._selection)
        for piece in pieces:
            found = await in_thread(self._dropped.of, piece.shards)
            self._report.duplicates += sum(len(dropped) for _, dropped in found)
            self._report.joined += len(piece.shards)
            self._report.into += len(piece.groups)
            self._report.bytes += piece.bytes
            self._report.commits += 1

    async def run(self, progress: Progress) -> None:
        """Join the shards.

        Raises:
            ConflictError, ObjectNotFoundError: other processes interfered with every attempt.
            FormatError, DatasetError: a shard is damaged.
        """
        attempts_left = _ATTEMPTS
        while True:
            pieces, self._dropped = await self._wanted.plan(self._selection)
            self._seen_removals = _removals(self._selection)
            if not pieces:
                break
            if self._advance is None:
                self._advance = Advance(progress, sum(piece.bytes for piece in pieces))
            before = self._report.commits
            failure = await self._go_through(pieces)
            if failure is None:
                break  # ignore later commits, because with a busy writer this call might otherwise never finish
            old, self._selection = self._selection, await reselected(self._selection)
            if before < self._report.commits:
                attempts_left = _ATTEMPTS
            else:
                attempts_left -= 1
                if not attempts_left or _removals(old) == _removals(self._selection):
                    raise failure

    async def _go_through(self, pieces: list[Piece]) -> Exception | None:
        """Join the pieces that no other call is joining. Return the last error caused by another process, if any.

        Raises:
            FormatError, DatasetError: a shard is damaged. Raised only once the other pieces have been processed.
        """
        self._report.left = 0
        failure: Exception | None = None
        damage: FormatError | DatasetError | None = None
        begin = secrets.randbelow(len(pieces))  # concurrent calls begin with different pieces
        for piece in (*pieces[begin:], *pieces[:begin]):
            try:
                await self._join(piece)
            except ConflictError as error:
                failure = error
                if _removals(await reselected(self._selection)) <= self._seen_removals:
                    break  # no shards were removed, so an unfinished job still holds the turn that every piece needs
            except ObjectNotFoundError as error:
                failure = error
            except (FormatError, DatasetError) as error:
                damage = error
        if damage is not None:
            raise damage
        return failure

    async def _join(self, piece: Piece) -> None:
        """Join the shards of a piece, unless another call is joining them."""
        if await self._at_work(piece):
            self._report.left += 1
            return
        groups = await in_thread(lambda: [self._dropped.of(group) for group in piece.groups])
        made = await rewrite(
            self._selection,
            groups,
            compression=self._wanted.compression_of(piece),
            tasks=self._tasks,
            joining=Joining(rule=(self._dropped.rule, self._seen_removals), sort_by=self._wanted.sort_by),
            goes_on=partial(self._goes_on, piece),
        )
        if made is None:
            self._report.left += 1
            return
        self._seen_removals = made.place
        self._report.joined += len(made.old)
        self._report.into += len(made.new)
        self._report.bytes += sum(entry.bytes for entry in made.old)
        self._report.rewritten += sum(entry.bytes for entry in made.new)
        self._report.duplicates += sum(len(dropped) for group in groups for _, dropped in group)
        self._report.commits += 1
        if self._advance is not None:
            self._advance(piece.bytes)

    async def _goes_on(self, piece: Piece, job: Job) -> bool:
        """Return whether this job may continue with a piece, because no other job is working on it.

        Two jobs, A and B, may both check, see no other job, and begin, so each checks again after it has begun. If
        they see each other, the job with the larger id gives way. If only A sees B, then B made its second check before
        A began and is already working, so A does not wait long.
        """
        for look in range(_LOOKS):
            if look:
                await anyio.sleep(_BETWEEN_LOOKS)
            own, found = job.header.writer, await self._at_work(piece)
            others = [each.header.writer for each in found if each.header.writer != own]
            if not others:
                return True
            if min(others) < own:
                return False
        return False

    async def _at_work(self, piece: Piece) -> list[FoundJob]:
        """Return the jobs that are joining shards of a piece. Jobs that turn out to be dead are ended and left out."""
        (dataset,) = self._selection.datasets
        paths = [entry_of(shard).path for shard in piece.shards]
        found = []
        for job in await find_jobs(dataset.folder, dataset.name):
            joins = job.header.joins
            if not joins or joins[0] > max(paths) or joins[1] < min(paths):
                continue
            state = await in_thread(job.state)
            if state == "dead":
                await end_job(dataset.folder, job, Verdict())
            elif state == "alive" or (state == "unknown" and not _is_old(job)):
                found.append(job)
        return found


def _removals(selection: Selection) -> int:
    return selection.datasets[0].manifest.removals


def _is_old(job: FoundJob) -> bool:
    """Return whether a job began too long ago to wait for. Even if it is still alive, only one job can win the turn."""
    if not job.header.since:
        return True
    return (datetime.now(UTC) - datetime.fromisoformat(job.header.since)).total_seconds() > _LEFT_SECONDS
