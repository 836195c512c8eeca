"""`ShardInputs` opens the shards of a stream, which may be in different places. A `ShardReader` reads one shard.

`ShardInputs` also reads records again, given their sources, and collects the damaged ranges that were skipped.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from os import PathLike, fspath
from typing import Any, Literal, NamedTuple

from asyncrec._concurrency.map import concurrently
from asyncrec._framing.compression import parse_reading_compression
from asyncrec._framing.frames import MAX_RECORD_BYTES
from asyncrec._records.position import Position, RecordBatch
from asyncrec._records.reading.reader import OnCorrupt, RecordReader, open_reader_at
from asyncrec._sampling.damage import DamageByShard, ShardDamage
from asyncrec._sampling.interleave.provenance import RecordSource, TracedRecords
from asyncrec._sampling.shard_versions import check_versions, is_version, packed_version
from asyncrec.errors import ArgumentValueError, DatasetError
from asyncrec.storage._base import ObjectInfo, Storage
from asyncrec.storage._cached import through
from asyncrec.storage._disk_cache import DiskCache
from asyncrec.storage._registry import located
from asyncrec.storage._url import redact, scheme_of, split_path

__all__ = ["Compression", "ShardInput", "ShardInputs", "ShardReader", "inputs_at", "parse_reading_compression"]

Compression = Literal["auto", "", "GZIP", "ZLIB"]


# The number of shards looked up at once, enough to hide a store's latency.
_LOOKED_AT = 16


class ShardInput(NamedTuple):
    """The storage that contains a shard, and the shard's key there. ``path`` is for messages."""

    path: str
    storage: Storage
    key: str


class ShardInputs:
    """The numbered shards of a stream, opened as they are needed."""

    def __init__(
        self,
        inputs: Sequence[ShardInput],
        compression: Compression,
        on_corrupt: OnCorrupt,
        max_record_bytes: int = MAX_RECORD_BYTES,
    ) -> None:
        if on_corrupt not in ("raise", "skip", "stop"):
            raise ArgumentValueError(f'on_corrupt={on_corrupt!r}: must be "raise", "skip" or "stop"')
        self._inputs = inputs
        self._compression = compression
        self._on_corrupt = on_corrupt
        self._max_record_bytes = max_record_bytes
        self._damage = DamageByShard()
        self._open: set[RecordReader] = set()
        self._known: dict[int, ObjectInfo] = {}  # the metadata of shards that were opened, listed or looked up

    def __len__(self) -> int:
        return len(self._inputs)

    @property
    def reads_cost_waiting(self) -> bool:
        return any(each.storage.read_ahead > 0 for each in self._inputs)

    def path(self, shard: int) -> str:
        return self._inputs[shard].path

    def know(self, shard: int, info: ObjectInfo) -> None:
        """Keep the metadata that the store returned for a shard."""
        self._known[shard] = info

    def versions(self, shards: Iterable[int] | None = None) -> list[list[Any]]:
        """Return the known versions of these shards (by default, of all shards), for a state."""
        wanted = sorted(self._known if shards is None else self._known.keys() & set(shards))
        return [[shard, *packed_version(self._known[shard])] for shard in wanted]

    def check_known(self, versions: Sequence[Sequence[Any]]) -> None:
        """Raise DatasetError if the version of a known shard differs from its version in ``versions``."""

        def now(shard: int) -> list[Any] | None:
            info = self._known.get(shard)
            return None if info is None else packed_version(info)

        check_versions(versions, now, self.path)

    def difference(self, versions: Sequence[Sequence[Any]]) -> str:
        """Describe, for a message, how these shards differ from ``versions``. `know` must have been called for all."""
        counts = f"; there were {len(versions):,} shards, and now there are {len(self):,}"
        for shard, *version in versions:
            info = self._known.get(shard)
            if info is None:
                break
            if not is_version(version, info):
                return f"{counts}; the first shard that differs is {self.path(shard)}"
        if len(self) > len(versions):
            return f"{counts}; the first new shard is {self.path(len(versions))}"
        return counts

    async def check(self, versions: Sequence[Sequence[Any]]) -> None:
        """Like `check_known`, but request the current version of each shard from the store.

        Raises:
            DatasetError: the version of a shard differs.
            ObjectNotFoundError: a shard no longer exists.
        """

        async def look(version: Sequence[Any]) -> None:
            shard = version[0]
            _, storage, key = self._inputs[shard]
            self.know(shard, await storage.head(key))

        await concurrently(look, versions, tasks=_LOOKED_AT)
        self.check_known(versions)

    def reader(self, shard: int, position: Position, *, chunk_size: int, inflate_bytes: int, park: bool) -> ShardReader:
        """Return a reader for a shard, starting at ``position``. The reader opens the shard on first use."""
        return ShardReader(self, shard, position, (chunk_size, inflate_bytes), park=park)

    @property
    def damage(self) -> list[ShardDamage]:
        """The damaged ranges skipped so far, including those in data that was read ahead."""
        for reader in self._open:
            self._damage.add(reader.path, reader.damage)
        return self._damage.listed()

    async def open(self, shard: int, position: Position, *, chunk_size: int, inflate_bytes: int) -> RecordReader:
        """Open a shard without a read-ahead task, because the stream controls reading ahead.

        Raises:
            ObjectChangedError: the shard has changed since it was first listed, looked up or opened.
        """
        path, storage, key = self._inputs[shard]
        known = self._known.get(shard)
        reader = await open_reader_at(
            storage,
            key,
            position,
            path=path,
            info=known,
            compression=self._compression,
            on_corrupt=self._on_corrupt,
            max_record_bytes=self._max_record_bytes,
            chunk_size=chunk_size,
            inflate_bytes=inflate_bytes,
            read_ahead=0,
        )
        self._open.add(reader)
        if known is None:
            self.know(shard, reader.info)
        return reader

    async def close(self, reader: RecordReader) -> None:
        self._open.discard(reader)
        self._damage.add(reader.path, reader.damage)
        await reader.aclose()

    async def read_traced(self, sources: list[RecordSource]) -> TracedRecords:
        """Reread the records with these sources, which come from a state.

        Raises:
            DatasetError: as for `read_again`.
        """
        return TracedRecords(await self.read_again(sources), known=sources)

    async def read_again(self, sources: Sequence[RecordSource]) -> list[bytes]:
        """Read the records with these sources again, and return them in the same order.

        Raises:
            DatasetError: a shard ends before one of the records, so it was replaced since the first read.
        """
        wanted: dict[int, dict[int, Position]] = {}
        for shard, position in sources:
            wanted.setdefault(shard, {})[position.record] = position
        found: dict[tuple[int, int], bytes] = {}

        async def read(item: tuple[int, dict[int, Position]]) -> None:
            shard, positions = item
            await self._read_positions(shard, sorted(positions.values(), key=lambda each: each.record), found)

        await concurrently(read, wanted.items(), tasks=_LOOKED_AT if self.reads_cost_waiting else 1)
        return [found[shard, position.record] for shard, position in sources]

    async def _read_positions(self, shard: int, positions: list[Position], found: dict[tuple[int, int], bytes]) -> None:
        far = self._inputs[shard].storage.read_ahead > 0
        size = _AGAIN_FAR if far else _AGAIN_BYTES
        reader: RecordReader | None = None
        batch: RecordBatch | None = None
        try:
            for position in positions:
                number = position.record
                # With a store, reading up to a nearby record takes less time than sending another request.
                while reader is not None and batch is not None and batch.first + len(batch.records) <= number:
                    if not far or position.offset - batch.position(len(batch.records)).offset > _NEAR:
                        batch = None
                        break
                    batch = await reader.next_batch()
                if batch is None or number < batch.first:
                    if reader is not None:
                        closing, reader = reader, None
                        await self.close(closing)
                    reader = await self.open(shard, position, chunk_size=size, inflate_bytes=size)
                    batch = await reader.next_batch()
                if batch is None:
                    raise DatasetError(
                        f"{self.path(shard)} has no record {number}: it is shorter than when the state was taken; "
                        "restore the shard, or start again without the state"
                    )
                found[shard, number] = batch.records[number - batch.first]
        finally:
            if reader is not None:
                await self.close(reader)


class ShardReader:
    """A reader of one shard from a given position, for one task at a time. It reads in the calling task.

    The shard is open from the first call of `next_batches` until `aclose` or, with ``park``, only during each call.
    """

    ready = True

    def __init__(
        self, inputs: ShardInputs, shard: int, position: Position, sizes: tuple[int, int], *, park: bool
    ) -> None:
        self._inputs = inputs
        self._shard = shard
        self._position = position
        self._sizes = sizes
        self._park = park
        self._reader: RecordReader | None = None
        self._batch: RecordBatch | None = None  # read but not yet returned, in case parking is cancelled

    async def next_batches(self) -> Sequence[RecordBatch]:
        """Return the next records in one batch, or an empty sequence at the end. Cancelling loses no records."""
        if self._reader is None:
            chunk_size, inflate_bytes = self._sizes
            self._reader = await self._inputs.open(
                self._shard, self._position, chunk_size=chunk_size, inflate_bytes=inflate_bytes
            )
        if self._batch is None:
            self._batch = await self._reader.next_batch()
        if self._batch is not None and self._park:
            await self._reader.park()
        batch, self._batch = self._batch, None
        return () if batch is None else (batch,)

    async def aclose(self) -> None:
        if self._reader is not None:
            reader, self._reader = self._reader, None
            await self._inputs.close(reader)


# The number of bytes read, from a disk and from a store, to read one record again. Its neighbours are often needed too.
# A request to a store takes as long as reading a few hundred KiB, so up to `_NEAR` bytes are read to reach the next
# record.
_AGAIN_BYTES, _AGAIN_FAR = 64 << 10, 256 << 10
_NEAR = 1 << 20


@asynccontextmanager
async def inputs_at(
    paths: Sequence[str | PathLike[str]],
    *,
    compression: Compression,
    on_corrupt: OnCorrupt,
    max_record_bytes: int,
    cache: DiskCache | None,
    storage: Storage | None,
    storage_options: Mapping[str, Any] | None,
) -> AsyncIterator[ShardInputs]:
    """Open the shards at ``paths``. Each bucket or folder is opened once, and each shard when it is read."""
    given = None if storage is None else through(storage, cache)
    async with AsyncExitStack() as stack:
        opened: dict[str, Storage] = {}
        inputs: list[ShardInput] = []
        for path in paths:
            display_path = redact(fspath(path))
            if given is not None and storage_options is None:
                inputs.append(ShardInput(display_path, given, fspath(path)))
                continue
            root, key = split_path(path)
            # A scheme's factory may split paths in its own way, so two paths share a storage object only if they
            # certainly have the same root.
            shared = "://" in root or not scheme_of(path)
            if shared and root in opened:
                inputs.append(ShardInput(display_path, opened[root], key))
                continue
            place = located(path, storage=storage, storage_options=storage_options)
            found, its_key = await stack.enter_async_context(place)
            store = through(found, cache)
            inputs.append(ShardInput(display_path, store, its_key))
            if shared and its_key == key:
                opened[root] = store
        yield ShardInputs(inputs, compression, on_corrupt, max_record_bytes)
