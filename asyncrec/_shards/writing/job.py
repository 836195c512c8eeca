"""`Job` makes shards for one data set. It lasts from the creation of its mark to the segment that ends its log.

Every writer and every tool that makes shards is a job, so that these rules are implemented only once:

1. Before its first object, a job has a mark that names its owner, and a lock that is released when its process exits.
2. A job that needs exclusive use of the data set's name claims it, and fails at once if another job has claimed it.
3. Shards, indexes and keys have names that no other job uses.
4. The closing segment is created exclusively, and commits everything that was not yet committed. A process that gives
   up a dead job first creates a tombstone under the same name, so only one of the two can exist.
5. A job that replaces shards takes a place in the log of removals before it commits, and deletes the old shards
   afterwards.
6. The mark shows which objects may be left behind, and which process may delete them. The mark is deleted last.

    async with open_job(folder, header, path=path) as job:
        async with job.publisher.open_shard(job.shard_name(0)) as shard: ...
        await job.commit([job.publisher.entry_of(shard, begun, ended)])
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from functools import partial
from typing import Any, Literal

from asyncrec._concurrency.deadline import CLEAN_UP_SECONDS
from asyncrec._concurrency.tasks import in_thread, surely_in_thread
from asyncrec._path_log import PathLog
from asyncrec._records.writing.memory_budget import ByteBudget
from asyncrec._shards.commit.fates import Fates
from asyncrec._shards.commit.flush_log import FlushLog
from asyncrec._shards.commit.manifest_writer import ManifestWriter, OnCommit
from asyncrec._shards.commit.shard_publisher import ShardPublisher, is_lost
from asyncrec._shards.journal.header import JobHeader
from asyncrec._shards.journal.job_names import JobNames
from asyncrec._shards.journal.staging import Staging
from asyncrec._shards.manifest.manifest import Manifest
from asyncrec._shards.manifest.replaced import REPLACES
from asyncrec._shards.manifest.segment import ShardEntry
from asyncrec._shards.manifest.snapshot import load_manifest
from asyncrec._shards.ownership.end_job import Exit, end_own_job
from asyncrec._shards.ownership.marks import Claim
from asyncrec._shards.ownership.removals import take_place
from asyncrec._shards.spool.folder import SpoolFolder
from asyncrec.errors import ConflictError
from asyncrec.storage._base import Storage
from asyncrec.storage._url import join

Mode = Literal["append", "new", "replace"]

_path_log = PathLog("asyncrec.shards")


class Job:
    """A job that makes shards for a data set, begun by `open_job`.

    Attributes:
        header: the description of the job.
        store: the data set's folder, in which the job commits.
        staging_folder: the folder in which the shards are first written and published: a spool, or else ``store``.
        spool: the staging folder if it is a spool, otherwise `None`.
        before: the data set as it was when the job began; `None` if it did not exist.
        uncovered: how many segments no checkpoint covered when the job began, and the number of the newest checkpoint
            at that time.
        replaces: whether the new shards replace the whole data set.
        removed: the shards that the job removes; `None` until it requests a place in the log of removals.
        staging: the files outside the store with which another process can end the job if this process dies.
        manifest: the writer of the segments.
        publisher: the publisher of the shards.
        fates: the states of the shards.
        shares: whether other processes make shards under the job's names. If so, the process that ends the job looks
            for these shards. That is either this process ("end here") or another one ("end elsewhere").
    """

    def __init__(
        self,
        header: JobHeader,
        store: Storage,
        staging_folder: Storage,
        *,
        mode: Mode,
        before: Manifest | None,
        uncovered: tuple[int, int] = (0, 0),
        staging: Staging,
        claim: Claim | None,
        budget: ByteBudget,
        on_commit: OnCommit | None,
    ) -> None:
        self.header = header
        self.store = store
        self.staging_folder = staging_folder
        self.spool = staging_folder if isinstance(staging_folder, SpoolFolder) else None
        self.before = before
        self.uncovered = uncovered
        self.staging = staging
        self.fates = Fates()
        flush_log = None
        if header.silent_after:
            flush_log = FlushLog(store, header.name, header.writer, compression=header.compression.type, budget=budget)
        self.manifest = ManifestWriter(
            store,
            header.name,
            header.writer,
            schema=header.schema,
            metadata=header.metadata,
            after=before,
            on_commit=on_commit,
            fates=self.fates,
            promised=self._is_promised,
            flush_log=flush_log,
        )
        self.publisher = ShardPublisher(
            store,
            header,
            budget=budget,
            clock=self.manifest.clock,
            deadline=self.manifest.deadline,
            fates=self.fates,
            staging=staging_folder,
        )
        self.publisher.flush_log = flush_log
        self.publisher.say = self.manifest.say
        self.shares: Literal["none", "end here", "end elsewhere"] = "none"
        self._claim = claim
        self.replaces = mode == "replace"
        self.removed: tuple[str, ...] | None = None

    @property
    def committed(self) -> bool:
        """Whether the job has ended successfully, with a closing segment."""
        return self.manifest.closed

    @property
    def flush_log(self) -> FlushLog | None:
        """The log to which a job without a disk flushes records; `None` if the job has no such log."""
        return self.publisher.flush_log

    @property
    def spools(self) -> bool:
        """Whether flushed records survive a crash of the process, and are then recovered from a disk or the store."""
        if self.header.kind == "whole":
            return False
        return self.staging_folder.flush_level == "spooled" or self.flush_log is not None

    def shard_name(self, number: int) -> str:
        """Return the name of the shard with this number."""
        return JobNames.of(self.header, plain=self._claim is not None and self._claim.plain).shard(number)

    async def commit(
        self,
        entries: Sequence[ShardEntry] = (),
        *,
        metadata: Mapping[str, Any] | None = None,
        carried: Mapping[str, Any] | None = None,
        removed: Sequence[str] = (),
        rule: tuple[str, int] = ("", 0),
    ) -> int | None:
        """Add these entries to the data set, remove the shards that they replace, and end the job. Call this only once.

        Return the job's place in the log of removals, or `None` if it removes no shards.

        ``metadata`` is known only at the end, and is added to the header's metadata. ``carried`` is passed to
        `ManifestWriter.close`. ``removed`` are the shards that the entries replace, unless the job replaces the entire
        data set. ``rule`` is the rule for `take_place`, and the last place in the log of removals in the job's
        snapshot.

        Raises:
            ConflictError: the job was abandoned, or another job replaced the data set; nothing is committed.
            StorageError: nothing is committed, unless a note on the error says that this is unknown.
        """
        place = None
        if self.replaces and self.before is not None:
            removed = await in_thread(tuple, self.before.shards.paths())
            carried = {**(carried or {}), "extra": {REPLACES: True}}
        if self.replaces or removed:
            self.removed = tuple(removed)
            keeps, known = rule
            place = await take_place(
                self.store,
                self.header.name,
                self.header.writer,
                since=known if keeps else self.before.removals if self.before else 0,
                removes=self.removed if self.header.rewrites else None,
                rule=keeps,
                deadline=self.manifest.deadline,
            )
            now = await load_manifest(self.store, self.header.name, path=self.header.name)
            there = () if now is None else now.shards.paths()
            if missing := await in_thread(set(removed).difference, there):
                raise ConflictError(
                    f"{self.store.root}/{self.header.name}: the shard {min(missing)}, which this writer was "
                    "replacing, was removed by another process; no record of this writer is in the data set"
                )
        await self.manifest.close(
            sorted(entries, key=lambda entry: entry.path),
            remove=self.removed or (),
            removal=place,
            metadata=metadata,
            carried=carried,
        )
        return place

    def _is_promised(self) -> bool:
        """Return whether `asyncrec.recover` would complete the job rather than give it up."""
        if self.header.kind == "rolling":
            return True
        return self.header.kind == "fixed" and self.staging.acknowledged

    async def end(self, mark: Staging | None) -> None:
        """Delete the job's marks, unless objects that need them remain. This is shielded and has a time limit.

        ``mark`` is the lock of the mark in the store, if the job's header is in a spool.
        """
        ended = False
        async with AsyncExitStack() as stack:
            if self.flush_log is not None:
                stack.callback(self.flush_log.room.close)
            if mark is not None:
                stack.push_async_callback(lambda: surely_in_thread(partial(mark.end, keep=not ended)))
            stack.push_async_callback(lambda: surely_in_thread(partial(self.staging.end, keep=not ended)))
            seconds = CLEAN_UP_SECONDS if self.shares == "none" else 2 * CLEAN_UP_SECONDS
            with self.manifest.deadline.cleaning_up(seconds) as scope:
                try:
                    ended = await self._end()
                except Exception as error:
                    self._warn("cleaning up failed: %s", error)
            if scope.cancelled_caught:
                self._warn(
                    "cleaning up took too long and was stopped; run `asyncrec recover` to remove the remaining files"
                )

    def _warn(self, words: str, *args: object) -> None:
        _path_log.warning(join(self.store.root, self.header.name), words, *args, writer=self.header.writer)

    async def _end(self) -> bool:
        """Delete what the job has left behind. Return whether no object remains that needs a mark."""
        if self.shares == "end elsewhere" or await is_lost(self.staging_folder):
            return False  # this is up to the process that ends the job, or has taken it over
        committed, fates, marked = self.committed, self.fates, bool(self.header.life)
        if self.flush_log is not None and committed:
            await self.flush_log.end()
        if not (committed or self.manifest.unsettled or self._is_promised()):
            await self.publisher.take_back("drop", "published")
        unsure = not committed and bool(await in_thread(fates.those, "sent", "doubtful"))
        return await end_own_job(
            self.store,
            self.staging,
            Exit(
                committed=committed,
                unsettled=self.manifest.unsettled,
                # With a spool, a shard in doubt is complete in the spool, and `recover` uploads it.
                left=bool(await in_thread(fates.those, "published"))
                or (unsure and self.spool is not None)
                or (self.flush_log is not None and self.flush_log.ledger.is_needed),
                doubtful=marked and unsure,
                # In a store, an abandoned request may still create its object.
                lingers=marked and self._claim is not None and fates.asked and not committed,
                placed=self.removed is not None,
                shared=self.shares != "none",
                replaced=(self.removed or ()) if committed and not self.header.joins else (),
                claim=None if self._claim is None else self._claim.number,
            ),
            bury=lambda listed: self.publisher.take_back("bury", "sent", "doubtful", besides=listed),
        )
