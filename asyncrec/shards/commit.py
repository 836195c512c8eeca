"""Publishing shards and making them part of the data set, in the order that never leaves a lie behind.

Index and keys first, then the shard, then the segment that names all three. A crash in between leaves objects that no
manifest names: readers of the data set do not see them, ``verify`` names them.
"""

from __future__ import annotations

import inspect
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import anyio

from asyncrec.errors import IntegrityError, ObjectExistsError, ObjectNotFoundError, StorageError
from asyncrec.framing.compression import CompressionOptions
from asyncrec.records.budget import ByteBudget
from asyncrec.records.output import ObjectOutput
from asyncrec.shards.manifest import Manifest
from asyncrec.shards.naming import closing_segment_key, index_key, keys_key, segment_key
from asyncrec.shards.segment import Segment, ShardEntry, format_time, parse_time
from asyncrec.storage.base import ObjectInfo, Storage
from asyncrec.storage.chunks import ChunkWriter

__all__ = ["Committer", "OnCommit"]

OnCommit = Callable[[ShardEntry], Awaitable[None] | None]

_log = logging.getLogger("asyncrec.shards")

# Taking back what was published before a failure: some deletions, each retried by the backend; then we give up.
_CLEAN_UP_SECONDS = 30
# Creating one small object, with the backend's retries.
_COMMIT_SECONDS = 60


class Committer:
    """What one writer publishes and commits.

    Attributes:
        entries: everything it committed.
        pending: shards that are published, and of which no commit is known.
        unsettled: a commit was answered by an error, and whether it took effect could not be found out.
    """

    def __init__(
        self,
        storage: Storage,
        name: str,
        writer: str,
        *,
        compression: CompressionOptions,
        with_index: bool,
        schema: Mapping[str, Any] | None,
        metadata: Mapping[str, Any] | None,
        on_commit: OnCommit | None,
        budget: ByteBudget,
        after: Manifest | None,
        keep_beside: bool = False,
        home: Storage | None = None,
        pending: set[str] | None = None,
    ) -> None:
        """``keep_beside``: the index and keys of a shard that could not be published stay, for the next attempt.
        ``home``: where shards are written, if not in the store itself.
        """
        self._storage = storage
        self._home = home or storage
        self._keep_beside = keep_beside
        self._name = name
        self._writer = writer
        self._compression = compression
        self._with_index = with_index
        self._schema = schema
        self._metadata = dict(metadata or {})
        self._on_commit = on_commit
        self._budget = budget
        # Later than everything that was read, whatever this machine's clock says.
        self._last_time = max((state.last_commit for state in after.writers.values()), default="") if after else ""
        self._clock_offset = time.time() - anyio.current_time()
        self.entries: list[ShardEntry] = []
        self.pending: set[str] = set() if pending is None else pending
        self.unsettled = False

    @asynccontextmanager
    async def open_shard(self, key: str, *, exclusive: bool) -> AsyncIterator[Shard]:
        """One shard with its index and keys. Leaving cleanly publishes all of it; otherwise nothing of it stays."""
        shard = Shard(key)
        reserved = 0
        try:
            async with self._home.open_sink(key, exclusive=exclusive) as sink:
                sink.hold_at_most(self._budget.share)
                self._budget.reserve(sink.chunk_size)
                reserved = sink.chunk_size
                async with AsyncExitStack() as beside:

                    async def open_beside(beside_key: str) -> ChunkWriter:
                        beside_sink = await beside.enter_async_context(self._home.open_sink(beside_key))
                        beside_sink.hold_at_most(self._budget.share)
                        return ChunkWriter(beside_sink)

                    async def open_keys() -> ChunkWriter:
                        shard.keys = keys_key(key)
                        return await open_beside(shard.keys)

                    if self._with_index:
                        shard.index = index_key(key)
                    shard.output = ObjectOutput(
                        ChunkWriter(sink),
                        compression=self._compression,
                        index=await open_beside(shard.index) if shard.index else None,
                        open_keys=open_keys,
                    )
                    shard.opened = True
                    yield shard
                shard.beside_published = True
            shard.published = sink.published
            await self._verify(shard)
            self.pending.add(key)
        except BaseException as error:
            promised = self._keep_beside or (shard.opened and shard.output.flushed)
            if shard.beside_published and not promised and not isinstance(error, ObjectExistsError):
                await self._delete(self._home, [key for key in (shard.index, shard.keys) if key])
            raise
        finally:
            self._budget.unreserve(reserved)

    async def commit(self, sequence: int, entry: ShardEntry) -> None:
        """Make a published shard part of the data set."""
        segment = Segment(
            writer=self._writer,
            time=entry.committed,
            add=(entry,),
            schema=self._schema,
            metadata=self._metadata,
        )
        await self._put(segment_key(self._name, self._writer, sequence), segment)
        await self._committed(entry)

    async def close(self, new: list[ShardEntry], *, remove: tuple[str, ...] = ()) -> None:
        """Write the last segment: all that was committed, and what is new with it, in one step."""
        segment = Segment(
            writer=self._writer,
            time=self.now(),
            add=(*self.entries, *new),
            remove=remove,
            schema=self._schema,
            metadata=self._metadata,
            closed=True,
        )
        await self._put(closing_segment_key(self._name, self._writer), segment)
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
            compression=self._compression.type,
            index=shard.index,
            keys=shard.keys,
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

    async def take_back(self, keys: list[str]) -> None:
        """Delete what a failed publication left; shielded and limited in time, failures are logged by name."""
        await self._delete(self._storage, keys)

    async def _delete(self, storage: Storage, keys: list[str]) -> None:
        with anyio.CancelScope(shield=True, deadline=anyio.current_time() + _CLEAN_UP_SECONDS):
            for key in keys:
                try:
                    await storage.delete(key)
                    self.pending.discard(key)
                except Exception as error:
                    _log.warning("%s/%s could not be removed and is in no manifest: %s", storage.root, key, error)

    async def _put(self, key: str, segment: Segment) -> None:
        """Create a segment: the moment of the commit. Shielded, limited in time, and settled by what is there.

        Raises:
            StorageError: it is not there; or nobody knows, and then `unsettled` is set: nothing may be taken back.
        """
        content = segment.encode()
        failure: Exception | None = None
        with anyio.CancelScope(shield=True, deadline=anyio.current_time() + _COMMIT_SECONDS):
            try:
                await self._storage.put(key, content, exclusive=True)
                return
            except Exception as error:
                failure = error
        self.unsettled = True
        with anyio.CancelScope(shield=True, deadline=anyio.current_time() + _COMMIT_SECONDS):
            try:
                stored = await self._storage.get(key)
            except ObjectNotFoundError:
                self.unsettled = False
            except Exception as error:
                _log.warning("%s/%s: cannot be read back: %s", self._storage.root, key, error)
            else:
                self.unsettled = False
                if stored == content:
                    return
        failure = failure or StorageError(f"{self._storage.root}/{key}: not created within {_COMMIT_SECONDS} s")
        if self.unsettled:
            failure.add_note(f"whether {key} was created is not known: the commit may have taken effect")
        raise failure

    async def _verify(self, shard: Shard) -> None:
        published = shard.published
        assert published is not None, "a sink that exits cleanly has published"
        sent = (shard.output.size, shard.output.crc32c)
        stored = (published.size, sent[1] if published.crc32c is None else published.crc32c)
        if stored != sent:
            await self._delete(self._home, [shard.key])
            raise IntegrityError(
                f"{self._home.root}/{shard.key}: sent {sent[0]:,} bytes (crc32c {sent[1]:08x}), the store has "
                f"{stored[0]:,} ({stored[1]:08x}); it was removed"
            )

    async def _committed(self, entry: ShardEntry) -> None:
        self.entries.append(entry)
        self.pending.discard(entry.path)
        _log.info("%s/%s: committed %d records, %d bytes", self._storage.root, entry.path, entry.records, entry.bytes)
        if self._on_commit is not None:
            result = self._on_commit(entry)
            if inspect.isawaitable(result):
                await result


class Shard:
    """A shard on its way: its names, what goes into it, and what became of it."""

    def __init__(self, key: str) -> None:
        self.key = key
        self.index: str | None = None
        self.keys: str | None = None
        self.opened = False
        self.output: ObjectOutput
        self.published: ObjectInfo | None = None
        self.beside_published = False
