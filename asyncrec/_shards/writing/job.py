"""`Job`: shards are made for one data set, from the mark before the first object to the one object that ends the job.

Every writer and every tool that makes shards does it as a job, and so each rule stands here once:

1. Before anything is made there is a mark that says whose it is, and a lock that dies with the process.
2. Who wants the data set's name for itself claims it, and is told at once when somebody else has it.
3. Shards, indexes and keys are made under names that nobody else makes.
4. The closing segment is created exclusively, and by it everything is committed that was not before. Whoever gives a
   dead job up takes that name first, for a tombstone; so exactly one of both happens.
5. What replaces takes a place in the log of removals before, and deletes what it replaced after.
6. What is left, and by whom it may be taken away, can be read from the mark, which goes last.

    async with open_job(folder, header, path=path) as job:
        async with job.publisher.open_shard(job.shard_name(0)) as shard: ...
        await job.commit([job.publisher.entry_of(shard, begun, ended)])
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from functools import partial
from typing import Any, Literal

from asyncrec._concurrency.tasks import in_thread, surely_in_thread
from asyncrec._path_log import PathLog
from asyncrec._records.writing.memory_budget import ByteBudget
from asyncrec._shards.commit.closing import entomb
from asyncrec._shards.commit.fates import Fates
from asyncrec._shards.commit.manifest_writer import ManifestWriter, OnCommit
from asyncrec._shards.commit.shard_publisher import ShardPublisher, is_lost
from asyncrec._shards.journal.header import JobHeader
from asyncrec._shards.journal.job_files import has_leftovers
from asyncrec._shards.journal.journal import Journal
from asyncrec._shards.manifest.manifest import Manifest
from asyncrec._shards.manifest.names import claim_key
from asyncrec._shards.manifest.segment import ShardEntry
from asyncrec._shards.manifest.snapshot import load_manifest
from asyncrec._shards.ownership.abandonment import delete_replaced
from asyncrec._shards.ownership.clear_up import remove_leftovers
from asyncrec._shards.ownership.liveness import Life
from asyncrec._shards.ownership.marks import Claim, remove_mark
from asyncrec._shards.ownership.removals import take_place
from asyncrec._shards.spool.folder import SpoolFolder
from asyncrec.errors import ConflictError
from asyncrec.storage._base import Storage
from asyncrec.storage._url import join

Mode = Literal["append", "new", "replace"]

_path_log = PathLog("asyncrec.shards")


class Job:
    """The making of shards for one data set, begun by `open_job`.

    Attributes:
        header: what it makes, and how.
        store: the data set's folder, where it commits.
        staging: where its shards are written and published first: a spool, or else the store itself.
        spool: the staging folder, where it is a spool.
        before: the data set as it was when the job began; `None` where there was none.
        replaces: it makes its shards the whole data set.
        journal: the locked file with its header, where the staging folder is local.
        manifest: writes its segments.
        publisher: publishes its shards.
        fates: what has become of them.
    """

    def __init__(
        self,
        header: JobHeader,
        store: Storage,
        staging: Storage,
        *,
        mode: Mode,
        before: Manifest | None,
        journal: Journal | None,
        claim: Claim | None,
        budget: ByteBudget,
        on_commit: OnCommit | None,
    ) -> None:
        self.header = header
        self.store = store
        self.staging = staging
        self.spool = staging if isinstance(staging, SpoolFolder) else None
        self.before = before
        self.journal = journal
        self.fates = Fates()
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
        )
        self.deadline = self.manifest.deadline
        self.publisher = ShardPublisher(
            store,
            header,
            budget=budget,
            clock=self.manifest.clock,
            deadline=self.deadline,
            fates=self.fates,
            staging=staging,
        )
        self._claim = claim
        self.replaces = mode == "replace"
        self._placed = False

    @property
    def committed(self) -> bool:
        """Whether the job has ended well: its closing segment is there."""
        return self.manifest.closed

    def shard_name(self, number: int) -> str:
        """Name the shard of this number."""
        return self.header.shard_name(number, plain=self._claim is not None and self._claim.plain)

    async def commit(self, entries: Sequence[ShardEntry] = (), *, metadata: Mapping[str, Any] | None = None) -> None:
        """End the job well: these entries become part of the data set, and what it replaces no longer is. Once.

        ``metadata`` is what only the end tells; it is added to the header's.

        Raises:
            ConflictError: it was abandoned, or the data set was replaced, by somebody else; nothing of this is in it.
            StorageError: it is not committed; or nobody knows, and a note on the error says so.
        """
        removed: tuple[str, ...] = ()
        place = None
        if self.replaces:
            removed = await in_thread(tuple, self.before.shards.paths()) if self.before is not None else ()
            self._placed = True
            place = await take_place(
                self.store,
                self.header.name,
                self.header.writer,
                since=self.before.removals if self.before else 0,
                deadline=self.deadline,
            )
            now = await load_manifest(self.store, self.header.name, path=self.header.name)
            there = () if now is None else now.shards.paths()
            if missing := await in_thread(set(removed).difference, there):
                raise ConflictError(
                    f"{self.store.root}/{self.header.name}: {min(missing)} was to be replaced, and was removed "
                    "meanwhile; nothing of this writer is in the data set"
                )
        await self.manifest.close(
            sorted(entries, key=lambda entry: entry.path), remove=removed, removal=place, metadata=metadata
        )

    def _is_promised(self) -> bool:
        """Whether `asyncrec.recover` would finish the job, or what is left of it."""
        if self.header.kind == "rolling":
            return True
        return self.header.kind == "fixed" and self.journal is not None and self.journal.acknowledged

    async def end(self, life: Life | None, *, marked: bool) -> None:
        """Take away what marks the job, unless something is left that needs it. Shielded and limited in time."""
        ended = False
        async with AsyncExitStack() as stack:
            if life is not None:
                stack.push_async_callback(lambda: surely_in_thread(partial(life.end, keep=not ended)))
            if (journal := self.journal) is not None:
                stack.push_async_callback(lambda: surely_in_thread(partial(journal.end, keep=not ended)))
            with self.deadline.cleaning_up() as scope:
                try:
                    ended = await self._clean_up(marked=marked)
                except Exception as error:
                    self._warn("cleaning up failed: %s", error)
            if scope.cancelled_caught:
                self._warn("cleaning up took too long and was given up: `recover` takes away what is left of the job")

    def _warn(self, words: str, *args: object) -> None:
        _path_log.warning(join(self.store.root, self.header.name), words, *args, writer=self.header.writer)

    async def _clean_up(self, *, marked: bool) -> bool:
        """Take away what is left of the job; returns whether nothing is left that needs a mark."""
        name, fates = self.header.name, self.fates
        if await is_lost(self.staging):
            return False  # to the process that has taken it
        if self.committed and self.replaces and self.before is not None:
            # The new manifest holds already: what stays is merely not listed.
            await delete_replaced(self.store, name, await in_thread(set, self.before.shards.paths()))
        if self.manifest.unsettled:
            return False  # what a manifest may name by now is nobody's to delete
        if not self.committed and not self._is_promised():
            await self.publisher.take_back("drop", "published")
        left = await in_thread(fates.those, "published", "shared")
        unsure = await in_thread(fates.those, "sent", "doubtful")
        # With a spool, what is in doubt is whole there, and `recover` uploads it.
        if left or (unsure and self.spool is not None):
            return False
        doubtful = lingers = False
        if not self.committed:
            if self.journal is not None:
                begun = await in_thread(has_leftovers, self.journal.folder, self.header)
                if begun and self.header.kind == "fixed" and not self.journal.acknowledged:
                    await in_thread(remove_leftovers, self.journal)  # of a flush that failed: its caller got an error
                    begun = False
                if begun or self.journal.acknowledged:
                    return False  # for `recover`
            # What comes late is not committed, and who recovers finds it by the mark.
            doubtful = marked and bool(unsure)
            # Elsewhere than on a disk, a request that was given up may still create what it asked for.
            lingers = marked and self._claim is not None and fates.asked
            if self._placed or lingers or doubtful:
                closing = await entomb(self.store, name, self.header.writer, by="itself")
                if doubtful and closing.abandoned:
                    await self.publisher.take_back("bury", "sent", "doubtful")
        if self._claim is not None and not lingers:
            # Its own alone: one of an earlier job, which may live elsewhere, keeps the plain names from being used.
            await self.store.delete(claim_key(name, self._claim.number))
        if marked and not doubtful:
            await remove_mark(self.store, name, self.header.writer)
        return not doubtful
