"""`open_dataset` opens a `Dataset`, which reads any record of a data set by its number or its key.

Records are numbered through the shards in the order of their names, as the manifest counts them. Opening reads the
manifest and nothing else; indexes and keys are read when they are first needed.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from os import PathLike
from typing import Any, Literal, NamedTuple, SupportsIndex, TypeVar

import numpy as np
from numpy.typing import NDArray

from asyncrec._arguments import Size, byte_count
from asyncrec._concurrency.map import concurrently
from asyncrec._concurrency.tasks import in_thread
from asyncrec._records.reading.examples import Examples
from asyncrec._sampling.damage import DamageByShard
from asyncrec._sampling.epochs.epoch_order import Mode
from asyncrec._sampling.epochs.shuffled_order import BUFFER_BYTES, BUFFER_SIZE, ShufflePlan
from asyncrec._sampling.epochs.shuffled_stream import ShuffledStream
from asyncrec._sampling.random_access.disk_cache import ShardCache
from asyncrec._sampling.random_access.in_order import RecordsInOrder, step_of
from asyncrec._sampling.random_access.indexes import Indexes
from asyncrec._sampling.random_access.key_index import KeyIndex
from asyncrec._sampling.random_access.range_reader import RangeRead, RangeReader
from asyncrec._sampling.random_access.record_blocks import record_blocks
from asyncrec._sampling.random_access.record_numbers import distinct_numbers, numbers_of
from asyncrec._sampling.random_access.scan_manifest import scan_manifest
from asyncrec._sampling.random_access.shard_files import ShardFiles
from asyncrec._shards.manifest.manifest import Manifest
from asyncrec._shards.manifest.snapshot import dataset_at, load_manifest
from asyncrec.example._schema import Schema
from asyncrec.storage._base import Storage
from asyncrec.storage._patterns import is_pattern
from asyncrec.storage._url import redact

__all__ = ["Dataset", "RecordLocation", "open_dataset"]

T = TypeVar("T")

# Sorting fewer numbers costs less than a hop to a thread.
_FEW = 1000
# At once in one call, of shards and of reads in each; what is really read at once is `RangeReader`'s to bound.
_TASKS = 16
# Of all cached shards: what fits beside other things on the disk of a machine that trains.
_CACHE_BYTES = 64 << 30


class RecordLocation(NamedTuple):
    """Where a record is stored.

    ``offset`` and ``size`` are of its frame, payload plus 16; in a compressed shard the offset counts in what the
    member that begins at the stored byte ``member`` decompresses to. `None` for ``member`` where nothing is compressed.
    """

    path: str
    offset: int
    size: int
    member: int | None


class Dataset:
    """A data set whose records are read by number or by key; made by `open_dataset`.

    Used by any number of tasks at once.

    ``len(dataset)`` is the number of records. Numbers may be negative, as in a list. ``async for record in dataset``
    gives all records in order.

    Attributes:
        manifest: the snapshot it shows. Where the data set has none, one made of what was found.
        cache: where shards are kept, when there is a cache; its ``downloads`` counts.
    """

    def __init__(self, folder: Storage, name: str, manifest: Manifest, cache: ShardCache | None) -> None:
        self.manifest = manifest
        self.cache = cache
        self.folder = folder
        self.name = name
        counts = np.fromiter((shard.records for shard in manifest.shards), np.int64, len(manifest.shards))
        # The number of each shard's first record, and at last the number of records.
        self._starts = np.concatenate([np.zeros(1, np.int64), np.cumsum(counts)])
        self._files = ShardFiles(folder, manifest.shards, cache)
        self._indexes = Indexes(folder, self._files)
        self._reader = RangeReader(self._files)
        self._keys = KeyIndex(folder, manifest.shards, self._starts)
        self._blocks: dict[tuple[int, int], NDArray[np.int64]] = {}

    def __len__(self) -> int:
        return int(self._starts[-1])

    def __repr__(self) -> str:
        return f"<Dataset {self.manifest.path}: {len(self):,} records in {len(self.manifest.shards):,} shards>"

    @property
    def schema(self) -> Schema | None:
        """What the manifest says of the features; `None` when no writer said."""
        return None if self.manifest.schema is None else Schema.from_json(self.manifest.schema)

    def __aiter__(self) -> RecordsInOrder:
        compressed = any(shard.compression for shard in self.manifest.shards)
        step = step_of(len(self), self.manifest.bytes, compressed=compressed)
        return RecordsInOrder(len(self), step, self.get_many)

    def batches(self) -> AsyncIterator[list[bytes]]:
        """All records in order, in lists as they are read, the fast way. No list is empty."""
        return aiter(self).batches()

    def examples(self, schema: Schema | None = None) -> AsyncIterator[dict[str, Any]]:
        """All records in order, each decoded: by ``schema``, else the manifest's, else as `decode_example` does.

        Raises DecodeError or SchemaError for a record that does not decode, and goes on behind it.
        """
        return Examples(self.manifest.path, aiter(self), self.schema if schema is None else schema)

    async def get(self, index: SupportsIndex) -> bytes:
        """One record.

        Raises:
            IndexError: there is no such record.
            FormatError: it is damaged; path, record in the shard and offset are said.
            ObjectNotFoundError, ObjectChangedError: its shard is gone, or another one by now.
        """
        (record,) = await self.get_many([index])
        return record

    async def get_many(self, indices: Iterable[SupportsIndex] | NDArray[np.integer[Any]]) -> list[bytes]:
        """Records, in the order asked for; a number that comes twice gives its record twice.

        They are read in the order in which they stand, nearby ones together, several reads at once. All of them are
        in memory in the end: ask for as many as fit.

        Raises:
            IndexError: there is no such record; nothing was read.
            Others: as `get`; the first error ends it.
        """
        return await self._many(indices, self._reader.records)

    async def get_whole(
        self, indices: Iterable[SupportsIndex] | NDArray[np.integer[Any]], damage: DamageByShard
    ) -> list[bytes | None]:
        """As `get_many`, but `None` for each that is damaged, which is then listed in ``damage``.

        Raises:
            CorruptRecordError: a shard does not agree with its index.
        """

        async def whole(part: RangeRead) -> list[bytes | None]:
            records, lost = await self._reader.whole(part)
            damage.add(self._files.display_path(part.shard), lost)
            return records

        return await self._many(indices, whole)

    async def _many(
        self,
        indices: Iterable[SupportsIndex] | NDArray[np.integer[Any]],
        records_of: Callable[[RangeRead], Awaitable[list[T]]],
    ) -> list[T]:
        wanted = numbers_of(indices, len(self), path=self.manifest.path)
        if not len(wanted):
            return []
        few = len(wanted) <= _FEW
        distinct, inverse = distinct_numbers(wanted) if few else await in_thread(distinct_numbers, wanted)
        found: list[Any] = [None] * len(distinct)
        shards = np.searchsorted(self._starts, distinct, side="right") - 1
        used, firsts = np.unique(shards, return_index=True)
        lasts = [*firsts[1:].tolist(), len(distinct)]

        async def read_shard(part: tuple[int, int, int]) -> None:
            shard, first, last = part
            index = await self._indexes.get(shard)
            reads = self._reader.reads(shard, index, distinct[first:last] - self._starts[shard])

            async def read(part: RangeRead) -> None:
                records = await records_of(part)
                found[first + part.first : first + part.first + len(records)] = records

            await concurrently(read, reads, tasks=_TASKS)

        await concurrently(read_shard, zip(used.tolist(), firsts.tolist(), lasts, strict=True), tasks=_TASKS)
        return found if inverse is None else list(map(found.__getitem__, inverse.tolist()))

    async def get_by_key(self, key: str | bytes) -> bytes:
        """The record that was written with this ``key``; of several, the one that stands first.

        The first call reads the keys of all shards, 16 bytes a record, and keeps them sorted in memory: 24 bytes.

        Raises:
            KeyError: no record has this key, or the shards were written without keys.
        """
        return await self.get(await self.find(key))

    async def find(self, key: str | bytes) -> int:
        """The number of the record that was written with this ``key``. As `get_by_key`, without reading the record."""
        return await self._keys.find(key)

    async def locate(self, index: SupportsIndex) -> RecordLocation:
        """Where a record stands: shard, offset, size and member.

        Raises:
            IndexError: there is no such record.
        """
        number = int(numbers_of([index], len(self), path=self.manifest.path)[0])
        shard = int(np.searchsorted(self._starts, number, side="right")) - 1
        local = number - int(self._starts[shard])
        found = await self._indexes.get(shard)
        return RecordLocation(
            path=self._files.display_path(shard),
            offset=int(found.offsets[local]),
            size=int(found.sizes[local]),
            member=None if found.members is None else int(found.members[local]),
        )

    def shuffled(
        self,
        *,
        seed: int = 0,
        epoch: int = 0,
        num_repeat: int = 1,
        mode: Mode = "block",
        buffer_size: int = BUFFER_SIZE,
        buffer_bytes: Size = BUFFER_BYTES,
        block_records: int | None = None,
        cycle_length: int = 16,
        block_length: int = 16,
        worker: tuple[int, int] = (0, 1),
        uneven: Literal["drop", "pad"] = "drop",
        on_corrupt: Literal["raise", "skip"] = "raise",
    ) -> ShuffledStream:
        """All records in an order that depends on the snapshot, the seed and the epoch, and on nothing else.

        ::

            async with dataset.shuffled(seed=1) as stream:
                async for records in stream.batches(256):  # lists of bytes; or: async for record in stream
                    ...

        Args:
            seed: any int.
            epoch: the first one; each has an order of its own.
            num_repeat: how many epochs; -1 for ever.
            mode: ``"block"``: runs of neighbouring records (of GZIP whole members) permuted over the whole set, then
                shuffled in windows of ``buffer_size``; it reads in large pieces. ``"buffer"``: shards in a seeded
                order, interleaved, then shuffled in windows: for many shards that are each in no order.
                ``"global"``: any record anywhere, each order as likely as another; the most reads.
            buffer_size: records shuffled together, and held; up to twice as many are in memory, for those that come
                next are read ahead.
            buffer_bytes: lowers ``buffer_size`` where records are so large, on average, that this would be exceeded.
            block_records: of a run, in ``"block"``; by default what has about 256 KiB, but at most a 128th of the
                buffer, so that neighbours in a batch seldom come from one run.
            cycle_length, block_length: in ``"buffer"``, as for `asyncrec.interleave`.
            worker: ``(i, n)``: of n workers that take the batches in turn this is number i. All must use the same batch
                size. Together they give every record once (with ``uneven="drop"`` all but the last few batches).
            uneven: when the last batches are not one for each worker: ``"drop"`` leaves them out, ``"pad"`` gives
                batches from the beginning of the same epoch again. Every worker gets equally many either way.

            on_corrupt: a damaged record is an error, or left out: its batch is shorter by it, empty if it was the only
                one, and `ShuffledStream.damage` lists it. Which batches come, and what a state says, stays the same.

        Raises:
            ValueError: an argument out of its range.
        """
        held = byte_count(buffer_bytes, "buffer_bytes")
        plan = ShufflePlan(seed, mode, buffer_size, held, block_records, cycle_length, block_length)
        return ShuffledStream(
            self, plan, epoch=epoch, num_repeat=num_repeat, worker=worker, uneven=uneven, on_corrupt=on_corrupt
        )

    async def runs(self, block_records: int, most: int) -> NDArray[np.int64]:
        """Where runs of about ``block_records`` neighbours begin, and at last the number of records; int64.

        None spans two shards. In GZIP shards they are whole members, for those are what is decompressed: small ones
        joined, and only those of more than ``most`` records cut. That needs the indexes of such shards, once.
        """
        found = self._blocks.get((block_records, most))
        if found is None:
            zipped = [number for number, shard in enumerate(self.manifest.shards) if shard.compression == "GZIP"]
            members: dict[int, NDArray[np.int64]] = {}

            async def look(shard: int) -> None:
                index = await self._indexes.get(shard)
                assert index.members is not None, "a GZIP shard"
                members[shard] = np.flatnonzero(np.diff(index.members, prepend=-1))

            await concurrently(look, zipped, tasks=_TASKS)
            found = await in_thread(record_blocks, self._starts, members, block_records, most)
            self._blocks[block_records, most] = found
        return found

    @property
    def starts(self) -> NDArray[np.int64]:
        """int64 (shards + 1,): the number of each shard's first record, and at last the number of records."""
        return self._starts


@asynccontextmanager
async def open_dataset(
    path: str | PathLike[str] | Manifest,
    *,
    cache: str | PathLike[str] | None = None,
    cache_bytes: Size = _CACHE_BYTES,
    storage: Storage | None = None,
    storage_options: dict[str, Any] | None = None,
) -> AsyncIterator[Dataset]:
    """Read any record of a data set: ``async with open_dataset("s3://crawl/2026/pages") as dataset: ...``.

    Args:
        path: the data set's folder and name; or a `Manifest`, for a snapshot that is not the last; or, where there is
            no manifest, what the shards' names begin with, or a pattern. Without a manifest shards are counted on
            opening: by their indexes, and those that have none by reading them through.
        cache: a local folder in which whole shards are kept once something of them was read, verified, for all
            processes of this machine: for a store that is far away, and read more than once.
        cache_bytes: of all shards in it; 64 GiB. The ones not used for longest make room.
        storage: an open `Storage`, used and not closed.
        storage_options: for the backend, when it is opened here.

    Raises:
        ObjectNotFoundError: there is neither a manifest nor a shard.
        ManifestError: the manifest cannot be read.
        FormatError: without a manifest, when a shard that has no index is damaged.
    """
    given = path if isinstance(path, Manifest) else None
    where = path.path if isinstance(path, Manifest) else path
    shard_cache = None if cache is None else ShardCache(cache, byte_count(cache_bytes, "cache_bytes"))
    if shard_cache is not None:
        await shard_cache.trim()
    opening = dataset_at(where, storage=storage, storage_options=storage_options, allow_pattern=True)
    async with opening as (folder, name):
        display_path = redact(str(where))
        manifest = given
        if manifest is None and name and not is_pattern(name):
            manifest = await load_manifest(folder, name, path=display_path)
        if manifest is None:
            manifest = await scan_manifest(folder, name, path=display_path)
        yield Dataset(folder, name, manifest, shard_cache)
