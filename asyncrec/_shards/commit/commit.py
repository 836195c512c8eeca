"""Publishing shards and making them part of the data set, in the order that never leaves a lie behind.

Index and keys first, then the shard, then the segment that names all three with their sizes and checksums. A crash in
between leaves objects that no manifest names, under names that hold their maker's: readers of the data set do not see
them, and whoever ends the job takes them away.
"""

from __future__ import annotations

import inspect
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager, AsyncExitStack, asynccontextmanager

import anyio

from asyncrec._concurrency.tasks import in_thread
from asyncrec._records.writing.memory_budget import ByteBudget
from asyncrec._records.writing.object_output import ObjectOutput
from asyncrec._shards.commit.closing import abandoned_error, entomb, fence, load_closing
from asyncrec._shards.commit.deadline import Deadline
from asyncrec._shards.commit.exclusive import create
from asyncrec._shards.journal.header import JobHeader
from asyncrec._shards.manifest.manifest import Manifest
from asyncrec._shards.manifest.names import (
    closing_segment_key,
    index_key,
    keys_key,
    segment_key,
    sequence_of,
    with_maker,
)
from asyncrec._shards.manifest.segment import Segment, ShardEntry, Sidecar, format_time, parse_time
from asyncrec.errors import (
    ConflictError,
    IntegrityError,
    ObjectExistsError,
    StorageError,
    TransientStorageError,
    UnsettledError,
)
from asyncrec.storage._base import ByteSink, ObjectInfo, Storage
from asyncrec.storage._chunk_writer import ChunkWriter
from asyncrec.storage._local.sink import LocalSink
from asyncrec.storage._local.storage import LocalStorage
from asyncrec.storage._sent import check_sent
from asyncrec.storage._url import join

__all__ = ["Committer", "OnCommit", "Shard"]

OnCommit = Callable[[ShardEntry], Awaitable[None] | None]

_log = logging.getLogger("asyncrec._shards")

# Taking back what was published before a failure: some deletions, each retried by the backend; then we give up.
_CLEAN_UP_SECONDS = 30
# At an exit that has to end: what does not answer now is left to `recover`.
_LATE_SECONDS = 2


class Committer:
    """What one job publishes and commits.

    Attributes:
        entries: everything it committed.
        pending: shards that are published, and of which no commit is known.
        deadline: of everything it still does; an exit that failed brings it forward.
        publishing: a shard was, or is being, published.
        doubtful: no answer came of something that was to be published: it may be there, or come.
        unanswered: the objects that may be there, or come, for that reason: to be deleted behind a tombstone.
        closed: its closing segment is there.
        unsettled: a commit was answered by an error, and whether it took effect could not be found out.
    """

    def __init__(
        self,
        storage: Storage,
        header: JobHeader,
        *,
        budget: ByteBudget,
        after: Manifest | None,
        on_commit: OnCommit | None = None,
        promised: Callable[[], bool] = lambda: True,
        keep_beside: bool = False,
        home: Storage | None = None,
    ) -> None:
        """``promised``: whether `asyncrec.recover` is to finish what this could not.
        ``keep_beside``: the index and keys of a shard that could not be published stay, for the next attempt.
        ``home``: where shards are written, if not in the store itself.
        """
        self._storage = storage
        self._header = header
        self._home = home or storage
        self._keep_beside = keep_beside
        self._on_commit = on_commit
        self._promised = promised
        self._budget = budget
        # Later than everything that was read, whatever this machine's clock says.
        self._last_time = max((state.last_commit for state in after.writers.values()), default="") if after else ""
        self._clock_offset = time.time() - anyio.current_time()
        self.entries: list[ShardEntry] = []
        self.pending: set[str] = set()
        self.publishing = False
        self.doubtful = False
        self.unanswered: list[str] = []
        self.deadline = Deadline()
        self.closed = False
        self.unsettled = False

    @asynccontextmanager
    async def open_shard(self, key: str) -> AsyncIterator[Shard]:
        """One shard with its index and keys. Leaving cleanly publishes all of it; otherwise nothing of it stays.

        Raises:
            ObjectExistsError: there is a shard of this name.
        """
        shard = Shard(key, with_maker(self._header.name, key, self._header.writer))
        reserved = 0
        try:
            async with self._home.open_sink(key, exclusive=True) as sink:
                sink.hold_at_most(self._budget.share)
                self._budget.reserve(sink.chunk_size)
                reserved = sink.chunk_size
                async with AsyncExitStack() as beside:

                    async def publish_beside(opening: AbstractAsyncContextManager[ByteSink]) -> ByteSink:
                        beside_sink = await beside.enter_async_context(opening)
                        beside_sink.hold_at_most(self._budget.share)
                        shard.beside_sinks.append(beside_sink)
                        return beside_sink

                    async def open_keys(zeros: int) -> ChunkWriter:
                        shard.keys = keys_key(shard.beside)
                        if isinstance(self._home, LocalStorage) and isinstance(sink, LocalSink):
                            # No crash leaves a record without its key, nor takes along those before the first that
                            # has one.
                            keys_sink = self._home.open_sink_of_zeros(shard.keys, zeros)
                            shard.keys_chunks = ChunkWriter(await publish_beside(keys_sink))
                            sink.write_behind(keys_sink, shard.keys_chunks.tail)
                        else:
                            shard.keys_chunks = ChunkWriter(await publish_beside(self._home.open_sink(shard.keys)))
                        await shard.keys_chunks.write([bytes(zeros)])
                        return shard.keys_chunks

                    if self._header.index:
                        shard.index = index_key(shard.beside)
                        shard.index_chunks = ChunkWriter(await publish_beside(self._home.open_sink(shard.index)))
                    shard.output = ObjectOutput(
                        ChunkWriter(sink),
                        compression=self._header.compression,
                        index=shard.index_chunks,
                        open_keys=open_keys,
                    )
                    shard.opened = True
                    yield shard
                    shard.publishes_beside = True
                self._verify_beside(shard)
                self.publishing = True
            shard.published = sink.published
            await self._verify(shard)
            self.pending.add(key)
        except BaseException as error:
            unanswered = isinstance(error, (TransientStorageError, anyio.get_cancelled_exc_class()))
            self.doubtful = self.doubtful or (shard.publishes_beside and unanswered)
            promised = self._keep_beside or self._is_acknowledged(shard)
            if shard.publishes_beside and not promised:
                taken = isinstance(error, ObjectExistsError)
                # Elsewhere than on a disk a shard that was not answered may be there, or come, and `recover` commits it
                # with its index and keys: nothing of it is deleted but behind a tombstone (`Job`).
                left = [each for each in (None if taken else key, shard.index, shard.keys) if each]
                if isinstance(self._home, LocalStorage) or not unanswered:
                    await self._delete(self._home, [left])
                else:
                    self.unanswered += left
                if taken and key == shard.beside:
                    self.pending.add(key)  # our own, perhaps, and its answer lost: who ends the job finds out
            raise
        finally:
            self._budget.unreserve(reserved)

    async def commit(self, sequence: int, entry: ShardEntry) -> None:
        """Make a published shard part of the data set.

        Raises:
            ConflictError: somebody else decided what becomes of this shard: another recovery committed it, or the job
                was abandoned.
            StorageError: it is not committed; or nobody knows, and then `unsettled` is set.
        """
        segment = self._segment((entry,), time=entry.committed)
        await self._put(segment_key(self._header.name, self._header.writer, sequence), segment)
        await self._committed(entry)

    async def close(self, new: list[ShardEntry], *, remove: tuple[str, ...] = (), removal: int | None = None) -> None:
        """Write the last segment: all that was committed, and what is new with it, in one step.

        Raises:
            ConflictError: the job was abandoned, or another of this id ended.
            StorageError: nothing new is committed; or nobody knows, and then `unsettled` is set.
        """
        segment = self._segment((*self.entries, *new), time=self.now(), closed=True, remove=remove, removal=removal)
        try:
            await self._put(closing_segment_key(self._header.name, self._header.writer), segment)
        except UnsettledError as error:
            await self._settle(error)
        except BaseException as error:
            if self.unsettled:  # asyncio's own cancellation, which goes through every shield
                await self._settle(error)
                self.closed = True
            raise
        self.closed = True
        for entry in new:
            await self._committed(entry)

    def entry_of(self, shard: Shard, first: float, last: float) -> ShardEntry:
        """What the manifest says of a published shard; ``first`` and ``last`` by the event loop's clock."""
        assert shard.published is not None, "only what was published is committed"
        return ShardEntry(
            path=shard.key,
            records=shard.output.records,
            bytes=shard.published.size,
            crc32c=shard.output.crc32c,
            compression=self._header.compression.type,
            index=_sidecar(shard.index, shard.index_chunks),
            keys=_sidecar(shard.keys, shard.keys_chunks),
            first=format_time(first + self._clock_offset),
            last=format_time(last + self._clock_offset),
            committed=self.now(),
        )

    def now(self) -> str:
        """The time, and later than any time given out or read before."""
        now = format_time(time.time())
        if now <= self._last_time:
            now = format_time(parse_time(self._last_time) + 1e-6)
        self._last_time = now
        return now

    async def take_back(self, entries: Iterable[ShardEntry]) -> None:
        """Delete shards that were published and are not committed. Shielded, limited in time; failures are logged."""
        await self._delete(self._storage, [entry.objects for entry in entries])

    async def _settle(self, error: BaseException) -> None:
        """Whether the job has ended well is not known: take the name for a tombstone, and so find out.

        Not where something was promised: `asyncrec.recover` finds out, and finishes it.

        Raises:
            StorageError: it has not, and will not; or still nobody knows.
        """
        if self._promised():
            raise error
        with self.deadline.within(_CLEAN_UP_SECONDS):
            try:
                closing = await entomb(self._storage, self._header.name, self._header.writer, by="itself")
            except Exception as second:
                raise error from second
            except BaseException:  # cancelled once more
                raise error from None
            self.unsettled = False
            if closing.abandoned:
                failure = error.__cause__ if isinstance(error.__cause__, StorageError) else error
                failure.add_note(
                    f"{self._storage.root}/{self._header.name}: nothing of {self._header.writer} is committed"
                )
                raise failure
            return
        raise error

    def cleaning_up(self) -> AbstractContextManager[anyio.CancelScope]:
        """For what has to be taken away whatever happens: shielded, and limited in time."""
        return self.deadline.within(_CLEAN_UP_SECONDS, late=_LATE_SECONDS)

    def _segment(self, add: tuple[ShardEntry, ...], **members: object) -> Segment:
        header = self._header
        return Segment(writer=header.writer, add=add, schema=header.schema, metadata=header.metadata, **members)  # type: ignore[arg-type]  # as named above

    async def _delete(self, storage: Storage, shards: Iterable[Sequence[str]]) -> None:
        """Delete each one's objects, the shard first: what stays of it keeps its index and keys, or is nothing.

        Whoever recovers would else commit a shard without its keys.
        """
        key = ""
        with self.cleaning_up() as scope:
            for keys in shards:
                for key in keys:
                    try:
                        await storage.delete(key)
                    except Exception as error:
                        self.pending.add(key)
                        _log.warning("%s/%s could not be removed and is in no manifest: %s", storage.root, key, error)
                        break
                    self.pending.discard(key)
        if scope.cancelled_caught:
            self.pending.add(key)
            _log.warning("%s/%s could not be removed in time and is in no manifest", storage.root, key)

    async def _put(self, key: str, segment: Segment) -> None:
        """Create a segment: the moment of the commit."""
        content = await in_thread(segment.encode)  # some microseconds for each shard, and a closing one has them all
        try:
            await create(self._storage, key, content, deadline=self.deadline)
        except UnsettledError:
            self.unsettled = True
            raise
        except anyio.get_cancelled_exc_class():
            self.unsettled = True  # the request is on its way, and no answer of it will be heard
            raise
        except ObjectExistsError as error:
            name, writer = self._header.name, self._header.writer
            closing = await load_closing(self._storage, name, writer)
            if closing is not None and closing.abandoned:
                raise abandoned_error(self._storage, name, closing) from error
            raise ConflictError(
                f"{self._storage.root}/{key}: {writer} has committed already, by another process; an id is used once"
            ) from error

    def _is_acknowledged(self, shard: Shard) -> bool:
        """Whether a flush has promised records of a shard to survive; one that held none, or could not, did not."""
        if not shard.opened or self._home.flush_level != "spooled":
            return False
        return shard.output.flushed and shard.output.records > 0

    def _verify_beside(self, shard: Shard) -> None:
        chunks = [each for each in (shard.index_chunks, shard.keys_chunks) if each is not None]
        for sent, sink in zip(chunks, shard.beside_sinks, strict=True):
            path = join(self._home.root, sink.published.key if sink.published is not None else shard.beside)
            then = f"the shard {shard.key} was not published"
            check_sent(path, sink.published, size=sent.size, crc32c=sent.crc32c, then=then)

    async def _verify(self, shard: Shard) -> None:
        path, sent = join(self._home.root, shard.key), shard.output
        try:
            check_sent(path, shard.published, size=sent.size, crc32c=sent.crc32c, then="it was removed")
        except IntegrityError:
            await self._delete_published(shard)
            raise

    async def _delete_published(self, shard: Shard) -> None:
        """A deletion may come late: nobody may commit the shard meanwhile."""
        fenced = self._header.kind != "rolling" or isinstance(self._home, LocalStorage)
        if not fenced:
            with self.cleaning_up():
                try:
                    fenced = await fence(self._storage, self._header, sequence_of(shard.key), by="itself")
                except Exception as error:
                    _log.warning("%s/%s is damaged, and cannot be removed: %s", self._home.root, shard.key, error)
        if fenced:
            await self._delete(self._home, [[shard.key]])
        else:
            self.pending.add(shard.key)

    async def _committed(self, entry: ShardEntry) -> None:
        self.entries.append(entry)
        self.pending.discard(entry.path)
        _log.info("%s/%s: committed %d records, %d bytes", self._storage.root, entry.path, entry.records, entry.bytes)
        if self._on_commit is not None:
            result = self._on_commit(entry)
            if inspect.isawaitable(result):
                await result


class Shard:
    """A shard on its way: its names, what goes into it, and what became of it.

    Attributes:
        beside: what its index and keys are named by.
    """

    def __init__(self, key: str, beside: str) -> None:
        self.key = key
        self.beside = beside
        self.index: str | None = None
        self.keys: str | None = None
        self.index_chunks: ChunkWriter | None = None
        self.keys_chunks: ChunkWriter | None = None
        self.beside_sinks: list[ByteSink] = []
        self.opened = False
        self.output: ObjectOutput
        self.published: ObjectInfo | None = None
        self.publishes_beside = False


def _sidecar(path: str | None, chunks: ChunkWriter | None) -> Sidecar | None:
    if path is None or chunks is None:
        return None
    return Sidecar(path=path, bytes=chunks.size, crc32c=chunks.crc32c)
