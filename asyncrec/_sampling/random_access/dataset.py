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
from anyio.lowlevel import checkpoint
from numpy.typing import NDArray

from asyncrec._arguments import Size, byte_count, record_limit
from asyncrec._concurrency.map import concurrently
from asyncrec._concurrency.tasks import in_thread
from asyncrec._framing.frames import MAX_RECORD_BYTES
from asyncrec._records.reading.examples import Examples
from asyncrec._sampling.damage import DamageByShard
from asyncrec._sampling.epochs.epoch_order import Mode
from asyncrec._sampling.epochs.shuffled_order import BUFFER_BYTES, BUFFER_SIZE, ShufflePlan
from asyncrec._sampling.epochs.shuffled_stream import ShuffledStream
from asyncrec._sampling.random_access.in_order import RecordsInOrder, step_of
from asyncrec._sampling.random_access.indexes import Indexes
from asyncrec._sampling.random_access.key_index import KeyIndex
from asyncrec._sampling.random_access.lookup import RecordLookup
from asyncrec._sampling.random_access.range_read import RangeRead
from asyncrec._sampling.random_access.record_numbers import numbers_of, record_blocks
from asyncrec._sampling.random_access.scan_manifest import snapshot_in
from asyncrec._sampling.random_access.shard_files import ShardFiles
from asyncrec._sampling.shard_versions import FileVersions
from asyncrec._shards.manifest.manifest import Manifest
from asyncrec._shards.manifest.names import split_checkpoint_path
from asyncrec._shards.manifest.snapshot import dataset_at, load_checkpoint
from asyncrec.example._schema import Schema
from asyncrec.storage._base import Storage
from asyncrec.storage._cached import CACHE_BYTES, CachedStorage, cache_at, through
from asyncrec.storage._url import redact

T = TypeVar("T")

# Indexes read at once.
_TASKS = 32


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
    """A data set whose records are read by number or by key, opened by `open_dataset`. Any number of tasks may use it,
    inside its context; after that, reading raises `anyio.ClosedResourceError`.

    ``len(dataset)`` is the number of records. Numbers may be negative, as in a list. ``async for record in dataset``
    gives all records in order.

    Attributes:
        manifest: the snapshot that is read. If the data set has no manifest, one made from the shards that were found.
        progress: of each source the last position whose records are committed; see `Manifest.progress`.
        cache: the local cache, if there is one; its ``downloads`` counts the pieces that were brought there.
    """

    def __init__(self, folder: Storage, name: str, manifest: Manifest) -> None:
        self.manifest = manifest
        self.progress = manifest.progress
        self.cache = folder.cache if isinstance(folder, CachedStorage) else None
        self.folder = folder
        self.name = name
        # The number of each shard's first record, and at last the number of records.
        self._starts = np.concatenate([np.zeros(1, np.int64), np.cumsum(manifest.shards.counts)])
        self.files = ShardFiles(folder, manifest.shards)
        self._indexes = Indexes(folder, self.files)
        self.lookup = RecordLookup(self.files, self._indexes, self._starts)
        self.keys = KeyIndex(folder, name, manifest.shards, self._starts, manifest.path)
        self._blocks: dict[tuple[int, int], NDArray[np.int64]] = {}
        self.versions = FileVersions(manifest.shards, self.files.display_path)

    def __len__(self) -> int:
        return int(self._starts[-1])

    def __repr__(self) -> str:
        return f"<Dataset {self.manifest.path}: {len(self):,} records in {len(self.manifest.shards):,} shards>"

    @property
    def schema(self) -> Schema | None:
        """The schema in the manifest; `None` if no writer passed one, or there is no manifest.

        Without a schema, use `decode_example`, or `Schema.infer`, which makes a schema from some records.
        """
        return None if self.manifest.schema is None else Schema.from_json(self.manifest.schema)

    def __aiter__(self) -> RecordsInOrder:
        compressed = any(self.manifest.shards.compressions)
        step = step_of(len(self), self.manifest.bytes, compressed=compressed)
        return RecordsInOrder(len(self), step, self.get_many)

    def batches(self) -> AsyncIterator[list[bytes]]:
        """Iterate over all records in order, in non-empty lists as they are read, which is the fast way."""
        return aiter(self).batches()

    def examples(self, schema: Schema | None = None) -> AsyncIterator[dict[str, Any]]:
        """Iterate over all records in order, decoded by ``schema``, the manifest's, or else as `decode_example` does.

        Raises DecodeError or SchemaError for a record that cannot be decoded; the next step continues with the next
        record.
        """
        return Examples(self.manifest.path, aiter(self), self.schema if schema is None else schema)

    async def get(self, index: SupportsIndex) -> bytes:
        """Read one record.

        Raises:
            IndexError: there is no such record.
            FormatError: it is damaged; the message has the path, the record in the shard, and the offset.
            ObjectNotFoundError, ObjectChangedError: its shard is gone, or was replaced.
        """
        await checkpoint()
        record = self.lookup.one(index, waits=False)
        if record is None:
            (record,) = await self.get_many([index])
        return record

    async def get_many(self, indices: Iterable[SupportsIndex] | slice | NDArray[np.integer[Any]]) -> list[bytes]:
        """Read records, and return them in the order asked for; a number may come more than once.

        ``indices`` are numbers, or a slice: ``slice(-100, None)`` for the last hundred.
        They are read in stored order, several reads at once. All of them are held in memory: request as many as fit.

        Raises:
            IndexError: there is no such record; nothing was read.
            Other errors: as `get`; the first one ends it.
        """
        return await self._many(indices, self.lookup.reader.records)

    async def get_whole(
        self, indices: Iterable[SupportsIndex] | NDArray[np.integer[Any]], damage: DamageByShard
    ) -> list[bytes | None]:
        """Like `get_many`, but with `None` for each damaged record, which is then listed in ``damage``.

        Raises:
            CorruptRecordError: a shard does not agree with its index.
        """

        async def whole(part: RangeRead) -> list[bytes | None]:
            records, lost = await self.lookup.reader.whole(part)
            damage.add(self.files.display_path(part.shard), lost)
            return records

        return await self._many(indices, whole)

    async def _many(
        self,
        indices: Iterable[SupportsIndex] | slice | NDArray[np.integer[Any]],
        records_of: Callable[[RangeRead], Awaitable[list[T]]],
    ) -> list[T]:
        wanted = numbers_of(indices, len(self), path=self.manifest.path)
        await checkpoint()
        return await self.lookup.many(wanted, records_of)

    async def get_by_key(self, key: str | bytes) -> bytes:
        """Read the record that was written with this ``key``; if there are several, the one that was committed first.

        `asyncrec.tools.dedupe` makes a data set of the last or the newest of each key.

        The first call reads the keys of all shards, 16 bytes per record, and keeps them sorted in memory, in 24 bytes.
        In a far store a checkpoint (`asyncrec.tools.compact`) has them sorted: then a call reads a block of them, until
        reading all would have cost as much.

        Raises:
            KeyError: no record has this key, or the shards were written without keys.
        """
        return await self.get(await self.find(key))

    async def find(self, key: str | bytes) -> int:
        """Return the number of the record with this ``key``. Like `get_by_key`, but it does not read the record."""
        self.lookup.check_open()
        return int((await self.keys.versions(key))[0])

    async def locate(self, index: SupportsIndex) -> RecordLocation:
        """Return where a record is stored: its shard, offset, size and member.

        Raises:
            IndexError: there is no such record.
        """
        self.lookup.check_open()
        number = int(numbers_of([index], len(self), path=self.manifest.path)[0])
        shard = int(np.searchsorted(self._starts, number, side="right")) - 1
        local = number - int(self._starts[shard])
        found = await self._indexes.get(shard)
        return RecordLocation(
            path=self.files.display_path(shard),
            offset=int(found.offsets[local]),
            size=int(found.sizes[local]),
            member=None if found.members is None else int(found.members[local]),
        )

    def shuffled(
        self,
        *,
        seed: int | None = 0,
        epoch: int | None = None,
        num_repeat: int = 1,
        mode: Mode = "block",
        buffer_size: int = BUFFER_SIZE,
        buffer_bytes: Size = BUFFER_BYTES,
        block_bytes: Size | None = None,
        cycle_length: int = 16,
        block_length: int = 16,
        worker: tuple[int, int] = (0, 1),
        uneven: Literal["drop", "pad"] = "drop",
        on_corrupt: Literal["raise", "skip"] = "raise",
    ) -> ShuffledStream:
        """All records in an order that depends only on the snapshot, the seed and the epoch.

        ::

            async with dataset.shuffled(seed=1) as stream:
                async for records in stream.batches(256):  # lists of bytes; or: async for record in stream
                    ...

        Args:
            seed: any int. `None` chooses one, which the state holds; not of several workers, which share an order.
            epoch: the first epoch; each epoch has its own order. `None` means 0, or the epoch of the loaded state.
            num_repeat: how many epochs; -1 means forever.
            mode: ``"block"`` permutes runs of neighboring records (in GZIP shards, whole members) over the whole data
                set, then shuffles them in windows of ``buffer_size``; it reads large pieces. ``"buffer"`` interleaves
                the shards in a seeded order, then shuffles in windows; for many shards, each in no particular order.
                ``"global"`` makes every order equally likely, and reads the most.
            buffer_size: how many records are shuffled together. Up to twice as many are in memory, because the next
                ones are read ahead.
            buffer_bytes: lowers ``buffer_size`` if records are so large, on average, that they would exceed it.
            block_bytes: the size of a block of neighbors in ``"block"``, as stored; one request of a store. By default
                4 MiB, but at most 1/16 of the buffer, worked out from the manifest alone: the order is the same
                wherever the shards lie. So a batch comes from some 16; smaller ones, or a larger buffer, mix more.
            cycle_length, block_length: for ``"buffer"``, as in `asyncrec.interleave`.
            worker: ``(i, n)``: this is number i of n workers, which take the batches in turn. All must use the same
                batch size. Together they get every record once, but for up to n - 1 batches with ``uneven="drop"``.
            uneven: what happens if the last batches are not enough for all workers: ``"drop"`` leaves them out,
                ``"pad"`` adds batches from the beginning of the same epoch. Every worker gets equally many either way.
            on_corrupt: ``"raise"`` raises an error for a damaged record; ``"skip"`` leaves it out, so its batch is
                shorter or even empty, and `ShuffledStream.damage` lists it. The batches and the state stay the same
                otherwise.

        Raises:
            ValueError: an argument is out of range.
        """
        held = byte_count(buffer_bytes, "buffer_bytes")
        block = None if block_bytes is None else byte_count(block_bytes, "block_bytes")
        plan = ShufflePlan(seed, mode, buffer_size, held, block, cycle_length, block_length)
        return ShuffledStream(
            self, plan, epoch=epoch, num_repeat=num_repeat, worker=worker, uneven=uneven, on_corrupt=on_corrupt
        )

    async def runs(self, block_bytes: int, most: int) -> NDArray[np.int64]:
        """Where blocks of neighbors begin, and at last the number of records; int64. None spans two shards.

        A block has about ``block_bytes`` as stored, and at most ``most`` records; in GZIP shards it is whole members,
        if they have no more, which needs the indexes of such shards, once.
        """
        found = self._blocks.get((block_bytes, most))
        if found is None:
            shards = self.manifest.shards
            members: dict[int, tuple[NDArray[np.int64], NDArray[np.int64]]] = {}

            async def look(shard: int) -> None:
                index = await self._indexes.get(shard)
                if index.members is not None:  # it is not empty
                    firsts = np.flatnonzero(np.diff(index.members, prepend=-1))
                    members[shard] = firsts, index.members[firsts]

            await concurrently(look, shards.compressed_with("GZIP"), tasks=_TASKS)
            found = await in_thread(record_blocks, self._starts, shards.sizes, members, block_bytes, most)
            self._blocks[block_bytes, most] = found
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
    cache_bytes: Size = CACHE_BYTES,
    max_record_bytes: Size = MAX_RECORD_BYTES,
    storage: Storage | None = None,
    storage_options: dict[str, Any] | None = None,
) -> AsyncIterator[Dataset]:
    """Read any record of a data set: ``async with open_dataset("s3://crawl/2026/pages") as dataset: ...``.

    Args:
        path: the data set's folder and name; or a `Manifest`, to read an earlier snapshot; or a checkpoint
            (`asyncrec.tools.compact`), for a store that cannot list; or a folder that holds one data set, or shards
            without a manifest. If there is none of these: the beginning of the shards' names, or a pattern. The records
            are then counted on opening, from the indexes of the shards, or by reading a shard that has none. A folder
            with a slash at its end means all shards in it. If these belong to several data sets, they are read
            together, and a warning is logged. A pattern matches names of shards: ``"crawl/pages-2026-11-*"``.
        cache: a local folder that keeps what was read, the manifest and the indexes too, for all processes of this
            machine: each asks the store only for a listing, and for what none of them has read. For a remote store that
            is read more than once, or by several processes.
        cache_bytes: how many bytes all cached files may take; 64 GiB. The least recently used ones are removed.
        max_record_bytes: a longer record is an error where there is no manifest and no index; see `open_reader`.
        storage: an open `Storage`; it is used, and not closed.
        storage_options: options for the backend, if this call opens the storage.

    Raises:
        ObjectNotFoundError: there is neither a manifest nor a shard; or it is a folder of several data sets.
        ManifestError: the manifest cannot be read.
        FormatError: there is no manifest, and a shard without an index is damaged.
    """
    longest = record_limit(max_record_bytes)
    given = path if isinstance(path, Manifest) else None
    where: str | PathLike[str] = path.path if isinstance(path, Manifest) else path
    where, checkpoint = (None if given else split_checkpoint_path(str(where))) or (where, None)
    disk_cache = await cache_at(cache, cache_bytes)
    opening = dataset_at(where, storage=storage, storage_options=storage_options, allow_pattern=True)
    async with opening as (store, name):
        folder, manifest = through(store, disk_cache), given
        display_path = redact(str(where))
        if checkpoint is not None:
            manifest = await load_checkpoint(folder, name, checkpoint, path=display_path)
        if manifest is None:
            folder, name, manifest = await snapshot_in(
                store,
                name,
                path=display_path,
                cached=lambda found: through(found, disk_cache),
                max_record_bytes=longest,
            )
        dataset = Dataset(folder, name, manifest)
        try:
            yield dataset
        finally:
            await dataset.lookup.close()
