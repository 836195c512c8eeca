"""`ShardPublisher`: shards are published in an order in which no crash leaves a manifest that names what is not there.

Index and keys come first, then the shard, and then (`asyncrec._shards.commit.manifest_writer`) the segment that names
all three with their sizes and checksums. A crash in between leaves objects that no manifest names, under names that
hold their maker's: readers of the data set do not see them, and whoever ends the job takes them away.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from functools import partial

import anyio

from asyncrec._concurrency.deadline import Deadline
from asyncrec._concurrency.tasks import in_thread
from asyncrec._records.writing.memory_budget import ByteBudget
from asyncrec._records.writing.object_output import ObjectOutput
from asyncrec._shards.commit.closing import fence
from asyncrec._shards.commit.shard import CommitClock, Shard
from asyncrec._shards.journal.header import JobHeader
from asyncrec._shards.manifest.names import sequence_of, with_maker
from asyncrec._shards.manifest.segment import ShardEntry
from asyncrec.errors import IntegrityError, ObjectExistsError, StorageError, TransientStorageError
from asyncrec.storage._base import ByteSink, Storage
from asyncrec.storage._chunk_writer import ChunkWriter
from asyncrec.storage._local.storage import LocalStorage
from asyncrec.storage._url import join

_log = logging.getLogger("asyncrec.shards")


class ShardPublisher:
    """The shards that one job publishes, in a store or in its staging folder.

    Attributes:
        published: the shards that are published, and other objects of the job that could not be removed.
        publishing: whether a shard was, or is being, published.
        doubtful: whether no answer came of something that was to be published: it may be there, or come.
        unanswered: the objects that may be there, or come, for that reason: to be deleted behind a tombstone.
    """

    def __init__(
        self,
        store: Storage,
        header: JobHeader,
        *,
        budget: ByteBudget,
        clock: CommitClock,
        deadline: Deadline,
        staging: Storage | None = None,
        keep_sidecars: bool = False,
    ) -> None:
        """``staging`` is where shards are written, if not in the store itself.

        With ``keep_sidecars``, the index and keys of a shard that could not be published stay, for the next attempt.
        """
        self.published: set[str] = set()
        self.publishing = False
        self.doubtful = False
        self.unanswered: list[str] = []
        self._store = store
        self._staging = staging or store
        self._header = header
        self._budget = budget
        self._clock = clock
        self._deadline = deadline
        self._keep_sidecars = keep_sidecars

    @asynccontextmanager
    async def open_shard(self, key: str) -> AsyncIterator[Shard]:
        """Open a shard with its index and keys. Leaving cleanly publishes all of it; otherwise nothing of it stays.

        Raises:
            ObjectExistsError: there is a shard of this name.
        """
        sidecar_name = with_maker(self._header.name, key, self._header.writer)
        shard = Shard(self._staging, key, sidecar_name, share=self._budget.share)
        reserved = 0
        try:
            async with self._staging.open_sink(key, exclusive=True) as sink:
                sink.hold_at_most(self._budget.share)
                self._budget.reserve(sink.chunk_size)
                reserved = sink.chunk_size
                async with AsyncExitStack() as sidecars:
                    shard.output = await self._output(shard, sink, sidecars)
                    shard.opened = True
                    yield shard
                    shard.publishes_sidecars = True
                shard.check_sidecars()
                self.publishing = True
            shard.published = sink.published
            await self._verify(shard)
            self.published.add(key)
        except BaseException as error:
            await self._failed(shard, error)
            raise
        finally:
            self._budget.unreserve(reserved)

    def entry_of(self, shard: Shard, first: float, last: float) -> ShardEntry:
        """Describe a published shard for the manifest; ``first`` and ``last`` are times of the event loop's clock."""
        return shard.entry(self._header.compression.type, first, last, self._clock)

    async def take_back(self, entries: Iterable[ShardEntry]) -> None:
        """Delete shards that were published and are not committed. Shielded, limited in time; failures are logged."""
        await self._delete(self._store, [entry.objects for entry in entries])

    async def _output(self, shard: Shard, sink: ByteSink, sidecars: AsyncExitStack) -> ObjectOutput:
        return ObjectOutput(
            ChunkWriter(sink),
            compression=self._header.compression,
            index=await shard.open_index(sidecars) if self._header.index else None,
            open_keys=partial(shard.open_keys, sidecars, sink),
        )

    async def _failed(self, shard: Shard, error: BaseException) -> None:
        """Take away what was published of a shard that failed, unless it was promised, or may come yet."""
        if not shard.publishes_sidecars:
            return
        unanswered = isinstance(error, (TransientStorageError, anyio.get_cancelled_exc_class()))
        self.doubtful = self.doubtful or unanswered
        if shard.key in self.published:
            return  # a damaged one that is committed by now, or could not be removed: it keeps its index and keys
        if self._keep_sidecars or self._is_acknowledged(shard):
            return
        if await self._is_left(shard):
            self.published.update(key for key in (shard.index, shard.keys) if key)
            return
        if await is_lost(self._staging):
            return
        taken = isinstance(error, ObjectExistsError)
        # Elsewhere than on a disk a shard that was not answered may be there, or come, and `recover` commits it with
        # its index and keys: nothing of it is deleted but behind a tombstone (`Job`).
        left = [each for each in (None if taken else shard.key, shard.index, shard.keys) if each]
        if isinstance(self._staging, LocalStorage) or not unanswered:
            await self._delete(self._staging, [left])
        else:
            self.unanswered += left
        if taken and shard.has_maker:
            self.published.add(shard.key)  # our own, perhaps, and its answer lost: who ends the job finds out

    async def _is_left(self, shard: Shard) -> bool:
        """Whether a disk that failed has kept the unfinished file: `recover` makes a shard of it, with its keys."""
        if not isinstance(self._staging, LocalStorage):
            return False
        with self._deadline.cleaning_up(), suppress(OSError):
            return await in_thread(self._staging.partial_of(shard.key).exists)
        return True

    def _is_acknowledged(self, shard: Shard) -> bool:
        """Whether a flush has promised records of a shard to survive; one that held none, or could not, did not."""
        if not shard.opened or self._staging.flush_level != "spooled":
            return False
        return shard.output.flushed and shard.output.records > 0

    async def _verify(self, shard: Shard) -> None:
        try:
            shard.check()
        except IntegrityError:
            await self._delete_damaged(shard)
            raise

    async def _delete_damaged(self, shard: Shard) -> None:
        """Delete a published shard, after seeing that nobody can commit it: a deletion may come late."""
        fenced = self._header.kind != "rolling" or isinstance(self._staging, LocalStorage)
        if not fenced:
            with self._deadline.cleaning_up():
                try:
                    fenced = await fence(
                        self._store, self._header.name, self._header.writer, sequence_of(shard.key), by="itself"
                    )
                except Exception as error:
                    _log.warning(
                        "%s/%s is damaged, and cannot be removed: %s",
                        self._staging.root,
                        shard.key,
                        error,
                        extra=self._fields(shard.key),
                    )
        if fenced:
            await self._delete(self._staging, [[shard.key]])
        else:
            self.published.add(shard.key)

    async def _delete(self, storage: Storage, shards: Iterable[Sequence[str]]) -> None:
        """Delete the objects of each shard, the shard first, so that one that stays keeps its index and keys.

        Otherwise, whoever recovers would commit a shard without its keys.
        """
        key = ""
        with self._deadline.cleaning_up() as scope:
            for keys in shards:
                for key in keys:
                    try:
                        await storage.delete(key)
                    except Exception as error:
                        self.published.add(key)
                        _log.warning(
                            "%s/%s could not be removed and is in no manifest: %s",
                            storage.root,
                            key,
                            error,
                            extra=self._fields(key),
                        )
                        break
                    self.published.discard(key)
        if scope.cancelled_caught:
            self.published.add(key)
            _log.warning(
                "%s/%s could not be removed in time and is in no manifest", storage.root, key, extra=self._fields(key)
            )

    def _fields(self, key: str) -> dict[str, str]:
        """What a line that is logged of an object has for machines."""
        header = self._header
        return {"path": join(self._store.root, header.name), "writer": header.writer, "shard": key}


async def is_lost(staging: Storage) -> bool:
    """Whether a job has lost its header there, or its lock: then nothing under its names is certainly its own."""
    if isinstance(staging, LocalStorage) and staging.check is not None:
        with anyio.CancelScope(shield=True):
            try:
                await in_thread(staging.check)
            except StorageError:
                return True
    return False
