"""`WriterRecovery`: what one dead job left becomes part of its data set, or is given up.

The rules are in `_shards.recovery.recover`.
"""

from __future__ import annotations

from collections.abc import Sequence

from asyncrec._concurrency.tasks import in_thread
from asyncrec._records.writing.memory_budget import ByteBudget
from asyncrec._shards.commit.closing import load_closing
from asyncrec._shards.commit.manifest_writer import ManifestWriter
from asyncrec._shards.commit.shard_publisher import ShardPublisher
from asyncrec._shards.journal.header import JobHeader
from asyncrec._shards.manifest.history import History
from asyncrec._shards.manifest.loading import load_history
from asyncrec._shards.manifest.segment import Segment, ShardEntry
from asyncrec._shards.manifest.snapshot import merged
from asyncrec._shards.ownership.abandonment import abandon
from asyncrec._shards.ownership.clear_up import clear_up
from asyncrec._shards.ownership.liveness import this_host
from asyncrec._shards.ownership.marks import uses_plain_names
from asyncrec._shards.ownership.unlisted import entry_of_unlisted, published_by
from asyncrec._shards.recovery.report import RecoveredWriter
from asyncrec.errors import ConflictError
from asyncrec.storage._base import Storage

# One shard is written at a time; some stores take chunks of 64 MiB.
_MEMORY_LIMIT = 256 << 20


class WriterRecovery:
    """The recovery of one dead job.

    Attributes:
        done: what became of it, so far.
    """

    def __init__(self, header: JobHeader, target: Storage) -> None:
        """``target`` is the folder of the data set."""
        self._header = header
        self._target = target
        self._manifest: ManifestWriter
        self._publisher: ShardPublisher
        self._history: History
        self._own: set[str]
        self._plain = True
        self.done = RecoveredWriter(target=header.url)

    async def _begin(self) -> Segment | None:
        """Look at the manifest; returns what ended the job, if anything did."""
        header = self._header
        history = await load_history(self._target, header.name)
        committed = await in_thread(history.added_by, header.writer)
        self._own = {entry.path for entry in committed}
        self._history = history
        self._manifest = ManifestWriter(
            self._target,
            header.name,
            header.writer,
            schema=header.schema,
            metadata=header.metadata,
            after=await merged(header.url, history),
            committed=committed,
            recovered_by=this_host(),
        )
        self._publisher = ShardPublisher(
            self._target,
            header,
            budget=ByteBudget(_MEMORY_LIMIT),
            clock=self._manifest.clock,
            deadline=self._manifest.deadline,
            keep_sidecars=True,
        )
        self._plain = await uses_plain_names(self._target, header)
        return await load_closing(self._target, header.name, header.writer)

    def _is_listed(self, shard: str) -> bool:
        """Whether a shard of this name is, or ever was, in a commit."""
        return shard in self._own or self._history.lists(shard)

    async def _any_listed(self, shards: Sequence[str]) -> list[str]:
        """Find those of many shards for which `_is_listed` holds."""
        return await in_thread(lambda: list(filter(self._is_listed, shards)))

    async def _commit_published(self) -> None:
        """Commit the rolling shards that it had published, and no more."""
        for shard in await published_by(self._target, self._header):
            if not self._is_listed(shard):
                await self._commit(
                    await entry_of_unlisted(self._target, shard, self._header, self._manifest.clock.now())
                )

    async def _commit(self, entry: ShardEntry) -> None:
        try:
            await self._manifest.commit(entry)
        except ConflictError:
            # Another recovery was faster, or a late request of the dead writer's; or neither, and then it is an error.
            history = await load_history(self._target, self._header.name)
            if not history.lists(entry.path):
                raise
            own = await in_thread(history.added_by, self._header.writer)
            self._manifest.found([each for each in own if each.path == entry.path])
        else:
            self.done.shards.append(entry)
        self._own.add(entry.path)

    async def _close(self) -> None:
        """End a rolling job, whose shards are all committed."""
        try:
            await self._manifest.close()
        except ConflictError:
            closing = await load_closing(self._target, self._header.name, self._header.writer)
            if closing is None or closing.abandoned:
                raise


class RemoteWriterRecovery(WriterRecovery):
    """The recovery of a job that had no disk: all there can be is what it had published."""

    async def commit_published(self) -> None:
        """Commit what a rolling writer had published; of what is all or nothing, nothing. The job has not ended."""
        if await self._begin() is None and self._header.kind == "rolling":
            await self._commit_published()

    async def run(self) -> None:
        """Commit a rolling writer's published shards, or give up what is all or nothing.

        Raises:
            StorageError, ManifestError.
        """
        closing = await self._begin()
        if closing is None and self._header.kind == "rolling":
            await self._commit_published()
            await self._close()
        elif closing is None and await abandon(self._target, self._header, plain=self._plain):
            self.done.abandoned.append(self._header.writer)
        await clear_up(self._target, self._header, plain=self._plain)
