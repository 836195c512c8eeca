"""`ShardPublisher` publishes objects in an order that keeps manifests from naming missing objects, even after a crash.

The index and keys are published first, then the shard, and finally the segment that names all three with their sizes
and checksums (`asyncrec._shards.commit.manifest_writer`). A crash in between leaves objects that no manifest names.
Their names contain the writer's id, so readers of the data set ignore them, and the process that ends the job deletes
them.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from functools import partial

import anyio

from asyncrec._concurrency.deadline import Deadline
from asyncrec._concurrency.tasks import in_thread
from asyncrec._path_log import PathLog
from asyncrec._records.writing.memory_budget import ByteBudget
from asyncrec._records.writing.object_output import KeysOutput, ObjectOutput
from asyncrec._shards.commit.fates import Event, Fates, State
from asyncrec._shards.commit.flush_log import FlushLog
from asyncrec._shards.commit.shard import CommitClock, Shard
from asyncrec._shards.journal.header import JobHeader
from asyncrec._shards.manifest.names import index_key, keys_key, progress_key, with_maker
from asyncrec._shards.manifest.segment import ShardEntry
from asyncrec.errors import ObjectExistsError, StorageError, TransientStorageError
from asyncrec.storage._base import ByteSink, Storage
from asyncrec.storage._chunk_writer import ChunkWriter
from asyncrec.storage._local.storage import LocalStorage
from asyncrec.storage._url import join

_path_log = PathLog("asyncrec.shards")


class ShardPublisher:
    """Publishes the shards of one job to the job's store or staging folder.

    Attributes:
        fates: the states of the job's shards in the store.
        say: the method `ManifestWriter.say`, if the job commits one shard at a time.
        flush_log: the log to which records are flushed, if they are not flushed to a disk.
    """

    def __init__(
        self,
        store: Storage,
        header: JobHeader,
        *,
        budget: ByteBudget,
        clock: CommitClock,
        deadline: Deadline,
        fates: Fates | None = None,
        staging: Storage | None = None,
        keep_sidecars: bool = False,
    ) -> None:
        """``staging`` is the folder to which shards are written, if it is not the store itself.

        With ``keep_sidecars``, the index and keys of a shard that could not be published are kept for the next attempt.
        """
        self.fates = fates if fates is not None else Fates()
        self._store = store
        self._staging = staging or store
        # A shard in a spool is uploaded by an `Uploader`, which records the state of the shard in the store.
        self._staged = Fates() if header.spool else self.fates
        self._header = header
        self._budget = budget
        self._clock = clock
        self._deadline = deadline
        self._keep_sidecars = keep_sidecars
        self.say: Callable[..., Awaitable[None]] | None = None
        self.flush_log: FlushLog | None = None
        self._with_positions: set[str] = set()

    @asynccontextmanager
    async def open_shard(self, key: str) -> AsyncIterator[Shard]:
        """Open a shard with its index and keys.

        If the context exits cleanly, they are published. After an error, every object that may be deleted is deleted.

        Raises:
            ObjectExistsError: a shard with this name exists.
        """
        sidecar_name = with_maker(self._header.name, key, self._header.writer)
        shard = Shard(self._staging, key, sidecar_name, share=self._budget.share)
        reserved = 0
        self._staged.move(key, "begin")
        try:
            async with self._staging.open_sink(key, exclusive=True) as sink:
                sink.hold_at_most(self._budget.share)
                self._budget.reserve(sink.chunk_size)
                reserved = sink.chunk_size
                async with AsyncExitStack() as sidecars:
                    shard.output = await self._output(shard, sink, sidecars)
                    yield shard
                    self._staged.move(key, "finish")
                shard.check_sidecars()
                if shard.output.sources.positions:
                    self._with_positions.add(key)
                    await shard.publish_positions()
                self._staged.move(key, "ask")
            shard.published = sink.published
            shard.check()
            self._staged.move(key, "answer")
            await shard.close_positions()
        except BaseException as error:
            await self._failed(shard, error)
            await self._leave_positions(shard)
            raise
        finally:
            self._budget.unreserve(reserved)

    def entry_of(self, shard: Shard, first: float, last: float) -> ShardEntry:
        """Return the entry of a published shard. ``first`` and ``last`` are times of the event loop's clock."""
        return shard.entry(self._header.compression.type, first, last, self._clock)

    async def take_back(self, event: Event, *states: State, besides: Collection[str] = ()) -> None:
        """Delete the shards in these states, except those in ``besides``, and record ``event`` for each deleted shard.

        The deletion is shielded and has a time limit. Failures are logged.
        """
        shards: dict[str, tuple[str, ...]] = {}
        for key in await in_thread(lambda: [each for each in self.fates.those(*states) if each not in besides]):
            sidecar_name = with_maker(self._header.name, key, self._header.writer)
            shards[key] = (key, index_key(sidecar_name), keys_key(sidecar_name))
            if key in self._with_positions:
                shards[key] = (*shards[key], progress_key(sidecar_name))
        await self._delete(self._store, self.fates, event, shards)

    async def _output(self, shard: Shard, sink: ByteSink, sidecars: AsyncExitStack) -> ObjectOutput:
        return ObjectOutput(
            ChunkWriter(sink),
            compression=self._header.compression,
            index=await shard.open_index(sidecars) if self._header.index else None,
            keys=KeysOutput(partial(shard.open_keys, sidecars, sink), self._header.key_bytes),
            kept=None if self.flush_log is None else self.flush_log.shard(shard.key),
            kept_positions=shard.kept_positions,
        )

    async def _failed(self, shard: Shard, error: BaseException) -> None:
        """Record the state of a shard that has failed, and delete its published objects if that is allowed."""
        key, staging = shard.key, self._staging
        if self._staged[key] == "sending":
            self._staged.move(key, "drop")
            return
        taken, damaged = isinstance(error, ObjectExistsError), shard.published is not None
        if (taken and shard.has_maker) or (damaged and not await self._is_void(key)) or await self._is_left(key):
            self._staged.move(key, "keep")
            return
        keeps_sidecars = self._keep_sidecars or self._is_acknowledged(shard)
        if (keeps_sidecars and not damaged) or await is_lost(staging):
            return
        if isinstance(staging, LocalStorage) or not isinstance(
            error, (TransientStorageError, anyio.get_cancelled_exc_class())
        ):
            own = () if taken else (key,)
            await self._delete(staging, self._staged, "drop", {key: own if keeps_sidecars else (*own, *shard.sidecars)})

    async def _leave_positions(self, shard: Shard) -> None:
        """Remove the stored positions of the shard's sources, unless an object of the shard may still exist."""
        with self._deadline.cleaning_up(), suppress(OSError):
            if self._staged[shard.key] != "dropped" or await self._is_left(shard.key):
                await shard.close_positions()
            else:
                await shard.forget_positions()

    async def _is_left(self, key: str) -> bool:
        """Return whether the unfinished file, from which `recover` can make a shard, may still be on a failed disk."""
        if not isinstance(self._staging, LocalStorage):
            return False
        with self._deadline.cleaning_up(), suppress(OSError):
            return await in_thread(self._staging.partial_of(key).exists)
        return True

    def _is_acknowledged(self, shard: Shard) -> bool:
        """Return whether a flush has acknowledged any records of the shard."""
        return self._staging.flush_level == "spooled" and shard.output.flushed and shard.output.records > 0

    async def _is_void(self, key: str) -> bool:
        """Declare a damaged shard void in the log, because its deletion may be delayed. Return whether it is void."""
        if self._header.kind != "rolling" or isinstance(self._staging, LocalStorage) or self.say is None:
            return True
        with self._deadline.cleaning_up():
            try:
                await self.say(remove=(key,))
                return True
            except Exception as error:
                self._warn(self._staging, key, "is damaged and could not be removed: %s", error)
        return False

    async def _delete(self, storage: Storage, fates: Fates, event: Event, shards: Mapping[str, Sequence[str]]) -> None:
        """Delete the objects of each shard, beginning with the shard itself.

        If that fails, keep the index and keys, because otherwise recovery would commit a shard without its keys.
        """
        left, key = dict(shards), ""
        with self._deadline.cleaning_up() as scope:
            for shard, keys in shards.items():
                try:
                    for key in keys:
                        await storage.delete(key)
                except Exception as error:
                    self._warn(storage, key, "is in no manifest and could not be removed: %s", error)
                else:
                    fates.move(shard, event)
                    del left[shard]
        for shard in left:
            fates.move(shard, "keep")
        if scope.cancelled_caught:
            self._warn(storage, key, "is in no manifest and could not be removed in time")

    def _warn(self, storage: Storage, key: str, words: str, *args: object) -> None:
        path, writer = join(self._store.root, self._header.name), self._header.writer
        _path_log.warning(path, f"%s {words}", join(storage.root, key), *args, writer=writer, shard=key)


async def is_lost(staging: Storage) -> bool:
    """Return whether a job has lost its header or lock, so that objects under its names may belong to another job."""
    if isinstance(staging, LocalStorage) and staging.check is not None:
        with anyio.CancelScope(shield=True):
            try:
                await in_thread(staging.check)
            except StorageError:
                return True
    return False
