"""`Shard`: one shard while it is written and published, with its index and keys."""

from __future__ import annotations

import time
from contextlib import AbstractAsyncContextManager, AsyncExitStack

import anyio

from asyncrec._concurrency.tasks import in_thread
from asyncrec._framing.frames import encode_frames
from asyncrec._records.writing.object_output import ObjectOutput
from asyncrec._records.writing.write_batch import WriteBatch, batched
from asyncrec._shards.manifest.manifest import Manifest
from asyncrec._shards.manifest.names import index_key, keys_key
from asyncrec._shards.manifest.segment import ShardEntry, Sidecar, format_time, noting, parse_time
from asyncrec.storage._base import ByteSink, ObjectInfo, Storage
from asyncrec.storage._checksums import check_sent
from asyncrec.storage._chunk_writer import ChunkWriter
from asyncrec.storage._local.sink import LocalSink
from asyncrec.storage._local.storage import LocalStorage
from asyncrec.storage._url import join


class CommitClock:
    """A wall clock whose times are later than every commit it was made after, and than each other."""

    def __init__(self, after: Manifest | None = None) -> None:
        """``after`` is the data set as the job found it."""
        self._last = max((state.last_commit for state in after.writers.values()), default="") if after else ""
        self._offset = time.time() - anyio.current_time()

    def now(self) -> str:
        """Tell the time: later than any that was given out or read before."""
        now = format_time(time.time())
        if now <= self._last:
            now = format_time(parse_time(self._last) + 1e-6)
        self._last = now
        return now

    def wall_time(self, at: float) -> str:
        """Convert a time of the event loop's clock to one that the manifest can hold."""
        return format_time(at + self._offset)


class Shard:
    """A shard on its way into a store, made by `ShardPublisher.open_shard`.

    Attributes:
        key: its name.
        index: the name of its index, where it has one.
        keys: the name of its keys, once a record has one.
        output: takes the records, once it is opened.
        published: what the store has.
    """

    def __init__(self, staging: Storage, key: str, sidecar_name: str, *, share: int) -> None:
        """``sidecar_name`` is what index and keys are named by; ``share`` what a chunk of each may take."""
        self.key = key
        self.index: str | None = None
        self.keys: str | None = None
        self.output: ObjectOutput
        self.published: ObjectInfo | None = None
        self._staging = staging
        self._sidecar_name = sidecar_name
        self._share = share
        self._index_chunks: ChunkWriter | None = None
        self._keys_chunks: ChunkWriter | None = None
        self._sidecar_sinks: list[ByteSink] = []

    @property
    def has_maker(self) -> bool:
        """Whether its name holds its maker's, so that nobody else makes a shard of this name."""
        return self.key == self._sidecar_name

    async def write(self, records: list[bytes], keys: list[bytes] | None = None) -> None:
        """Take these records, with the digest of each one's key where they have keys."""
        await self.output.write(await in_thread(_framed, records, keys))

    def entry(self, compression: str, first: float, last: float, clock: CommitClock) -> ShardEntry:
        """Describe the shard for the manifest, once it is published; the times are of the event loop's clock."""
        assert self.published is not None, "only what was published is committed"
        return ShardEntry(
            path=self.key,
            records=self.output.records,
            bytes=self.published.size,
            crc32c=self.output.crc32c,
            end_crc32c=self.output.end_crc32c,
            compression=compression,
            index=_sidecar(self.index, self._index_chunks),
            keys=_sidecar(self.keys, self._keys_chunks),
            first=clock.wall_time(first),
            last=clock.wall_time(last),
            committed=clock.now(),
            extra=noting(self.output.largest),
        )

    # -- for the publisher --------------------------------------------------------------------------------------------

    async def open_index(self, stack: AsyncExitStack) -> ChunkWriter:
        """Open the index; it is published where the stack is left cleanly."""
        self.index = index_key(self._sidecar_name)
        self._index_chunks = ChunkWriter(await self._open_sidecar(stack, self._staging.open_sink(self.index)))
        return self._index_chunks

    async def open_keys(self, stack: AsyncExitStack, sink: ByteSink, zeros: int) -> ChunkWriter:
        """Open the keys, as `open_index`, with so many bytes of zeros for records that have none."""
        self.keys = keys_key(self._sidecar_name)
        if isinstance(self._staging, LocalStorage) and isinstance(sink, LocalSink):
            # No crash leaves a record without its key, nor takes along those before the first that has one.
            keys_sink = self._staging.open_sink_of_zeros(self.keys, zeros)
            self._keys_chunks = ChunkWriter(await self._open_sidecar(stack, keys_sink))
            sink.write_behind(keys_sink, self._keys_chunks.tail)
        else:
            self._keys_chunks = ChunkWriter(await self._open_sidecar(stack, self._staging.open_sink(self.keys)))
        await self._keys_chunks.write([bytes(zeros)])
        return self._keys_chunks

    def check_sidecars(self) -> None:
        """Compare what the store has of index and keys with what was sent.

        Raises:
            IntegrityError: it is something else.
        """
        chunks = [each for each in (self._index_chunks, self._keys_chunks) if each is not None]
        for sent, sink in zip(chunks, self._sidecar_sinks, strict=True):
            path = join(self._staging.root, sink.published.key if sink.published is not None else self._sidecar_name)
            then = f"the shard {self.key} was not published"
            check_sent(path, sink.published, size=sent.size, crc32c=sent.crc32c, then=then)

    def check(self) -> None:
        """Compare what the store has of the shard with what was sent.

        Raises:
            IntegrityError: it is something else.
        """
        path, sent = join(self._staging.root, self.key), self.output
        check_sent(path, self.published, size=sent.size, crc32c=sent.crc32c, then="it was removed")

    async def _open_sidecar(self, stack: AsyncExitStack, opening: AbstractAsyncContextManager[ByteSink]) -> ByteSink:
        sink = await stack.enter_async_context(opening)
        sink.hold_at_most(self._share)
        self._sidecar_sinks.append(sink)
        return sink


def _sidecar(path: str | None, chunks: ChunkWriter | None) -> Sidecar | None:
    if path is None or chunks is None:
        return None
    return Sidecar(path=path, bytes=chunks.size, crc32c=chunks.crc32c)


def _framed(records: list[bytes], keys: list[bytes] | None) -> list[WriteBatch]:
    """Frame the records, in batches of bounded size. Blocks."""
    batches = []
    at = 0
    for item in batched(records):
        count = len(item[0]) if isinstance(item, tuple) else 1
        some_keys = None if keys is None else keys[at : at + count]
        if isinstance(item, tuple):
            batches.append(WriteBatch.of_records(*item, some_keys))
        else:
            key = None if some_keys is None else some_keys[0]
            record = bytes(item)
            batches.append(WriteBatch.of_large(record, encode_frames([record]), ticket=0, time=0.0, digest=key))
        at += count
    return batches
