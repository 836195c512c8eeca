"""`Shard` is one shard while it is being written and published, along with its index and keys."""

from __future__ import annotations

import time
from contextlib import AbstractAsyncContextManager, AsyncExitStack

import anyio

from asyncrec._concurrency.tasks import in_thread
from asyncrec._records.writing.object_output import KeptPositions, ObjectOutput
from asyncrec._records.writing.write_batch import framed
from asyncrec._shards.journal.positions_file import PositionsKeeper, positions_line
from asyncrec._shards.manifest.manifest import Manifest
from asyncrec._shards.manifest.names import index_key, keys_key, progress_key
from asyncrec._shards.manifest.segment import ShardEntry, Sidecar, format_time, noting, parse_time
from asyncrec.storage._base import ByteSink, ObjectInfo, Storage
from asyncrec.storage._checksums import check_sent
from asyncrec.storage._chunk_writer import ChunkWriter
from asyncrec.storage._local.sink import LocalSink
from asyncrec.storage._local.storage import LocalStorage
from asyncrec.storage._url import join


class CommitClock:
    """A wall clock that always advances, and is ahead of every commit that the job found when it began."""

    def __init__(self, after: Manifest | None = None) -> None:
        """``after`` is the manifest that the job found when it began."""
        self._last = max((state.last_commit for state in after.writers.values()), default="") if after else ""
        self._offset = time.time() - anyio.current_time()

    def now(self) -> str:
        """Return the current time, or a slightly later time if necessary.

        The result is later than all times that were returned before, and than all commits that the job found.
        """
        now = format_time(time.time())
        if now <= self._last:
            now = format_time(parse_time(self._last) + 1e-6)
        self._last = now
        return now

    def wall_time(self, at: float) -> str:
        """Convert a time of the event loop's clock to a time for the manifest."""
        return format_time(at + self._offset)


class Shard:
    """A shard that is being written to a store, created by `ShardPublisher.open_shard`.

    Attributes:
        key: the name of the shard.
        output: the output to which records are written; it is set when the shard is open.
        published: the description of the object in the store; `None` until the shard is published.
    """

    def __init__(self, staging: Storage, key: str, sidecar_name: str, *, share: int) -> None:
        """``sidecar_name`` is the name from which the names of the index and the keys file are derived.

        ``share`` limits the memory that one chunk of either file may use.
        """
        self.key = key
        self.output: ObjectOutput
        self.published: ObjectInfo | None = None
        self._staging = staging
        self._sidecar_name = sidecar_name
        self._share = share
        self._opened: dict[str, tuple[ChunkWriter, ByteSink]] = {}  # sidecars, by their names
        self._keeper = PositionsKeeper(staging, sidecar_name) if isinstance(staging, LocalStorage) else None
        self._has_object = False

    @property
    def sidecars(self) -> tuple[str, ...]:
        """The names of the index, the keys file and the object with the sources' positions, if these exist."""
        return (*self._opened, *((self._positions_key,) if self._has_object else ()))

    @property
    def has_maker(self) -> bool:
        """Whether the shard's name contains its writer's id, so that no other process uses this name."""
        return self.key == self._sidecar_name

    async def write(self, records: list[bytes], keys: list[bytes] | None = None) -> None:
        """Write records and, if they have keys, the digests of the keys."""
        await self.output.write(await in_thread(framed, records, keys))

    def entry(self, compression: str, first: float, last: float, clock: CommitClock) -> ShardEntry:
        """Return the entry of the published shard, like `ShardPublisher.entry_of`."""
        assert self.published is not None, "only published shards are committed"
        return ShardEntry(
            path=self.key,
            records=self.output.records,
            bytes=self.published.size,
            crc32c=self.output.crc32c,
            end_crc32c=self.output.end_crc32c,
            compression=compression,
            index=self._sidecar(index_key(self._sidecar_name)),
            keys=self._sidecar(keys_key(self._sidecar_name)),
            first=clock.wall_time(first),
            last=clock.wall_time(last),
            committed=clock.now(),
            extra=noting(self.output.largest),
        )

    # -- called by the publisher ---------------------------------------------------------------------------------------

    async def open_index(self, stack: AsyncExitStack) -> ChunkWriter:
        """Open the index. It is published when the exit stack unwinds without an error."""
        key = index_key(self._sidecar_name)
        return await self._open_sidecar(stack, key, self._staging.open_sink(key))

    async def open_keys(self, stack: AsyncExitStack, sink: ByteSink, zeros: int) -> ChunkWriter:
        """Open the keys file, in the same way as `open_index` opens the index.

        The file begins with ``zeros`` zero bytes, for the records before the first one with a key.
        """
        key = keys_key(self._sidecar_name)
        if isinstance(self._staging, LocalStorage) and isinstance(sink, LocalSink):
            # This way, a crash leaves no record without its key, and does not lose the records before the first one
            # with a key.
            keys_sink = self._staging.open_sink_of_zeros(key, zeros)
            chunks = await self._open_sidecar(stack, key, keys_sink)
            sink.write_behind(keys_sink, chunks.tail)
        else:
            chunks = await self._open_sidecar(stack, key, self._staging.open_sink(key))
        await chunks.write([bytes(zeros)])
        return chunks

    @property
    def kept_positions(self) -> KeptPositions | None:
        """The positions file, if positions are kept on a disk."""
        return self._keeper

    async def publish_positions(self) -> None:
        """Store the sources' positions, unless they are on a disk, so that another process can commit the shard."""
        if self._keeper is None:
            self._has_object = True
            line = positions_line(self.output.records, self.output.sources.positions)
            await self._staging.put(self._positions_key, line)

    async def forget_positions(self) -> None:
        """Remove the stored positions. The shard must be committed, or all of its objects must be deleted."""
        if self._keeper is not None:
            await self._keeper.remove()
        elif self._has_object:
            await self._staging.delete(self._positions_key)

    async def close_positions(self) -> None:
        """Close the positions file but do not remove it, because a process that recovers the shard needs it."""
        if self._keeper is not None:
            await self._keeper.close()

    @property
    def _positions_key(self) -> str:
        return progress_key(self._sidecar_name)

    def check_sidecars(self) -> None:
        """Compare the index and keys in the store with the bytes that were sent.

        Raises:
            IntegrityError: one of them differs from what was sent.
        """
        for key, (sent, sink) in self._opened.items():
            path, then = join(self._staging.root, key), f"the shard {self.key} was not published"
            check_sent(path, sink.published, size=sent.size, crc32c=sent.crc32c, then=then)

    def check(self) -> None:
        """Compare the shard in the store with the bytes that were sent.

        Raises:
            IntegrityError: the shard differs from what was sent.
        """
        path, sent = join(self._staging.root, self.key), self.output
        check_sent(path, self.published, size=sent.size, crc32c=sent.crc32c, then="it was removed")

    async def _open_sidecar(
        self, stack: AsyncExitStack, key: str, opening: AbstractAsyncContextManager[ByteSink]
    ) -> ChunkWriter:
        sink = await stack.enter_async_context(opening)
        sink.hold_at_most(self._share)
        chunks = ChunkWriter(sink)
        self._opened[key] = (chunks, sink)
        return chunks

    def _sidecar(self, key: str) -> Sidecar | None:
        if key not in self._opened:
            return None
        chunks, _ = self._opened[key]
        return Sidecar(path=key, bytes=chunks.size, crc32c=chunks.crc32c)
