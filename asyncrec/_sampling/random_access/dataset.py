"""`Dataset` reads any record of a data set by its number or its key. `open_dataset` opens a data set.

Records are numbered consecutively across the shards, in the manifest's order and with its record counts. Opening a data
set reads only its manifest. Indexes and keys are read when they are first needed.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from typing import Any, Literal, NamedTuple, SupportsIndex, TypeVar

import numpy as np
from anyio.lowlevel import checkpoint
from numpy.typing import NDArray

from asyncrec._arguments import Size, byte_count
from asyncrec._concurrency.map import concurrently
from asyncrec._concurrency.tasks import in_thread
from asyncrec._records.reading.examples import Examples
from asyncrec._sampling.damage import DamageByShard
from asyncrec._sampling.epochs.epoch_order import Mode
from asyncrec._sampling.epochs.shuffled_order import BUFFER_BYTES, BUFFER_SIZE, ShufflePlan
from asyncrec._sampling.epochs.shuffled_stream import ShuffledStream
from asyncrec._sampling.random_access.in_order import RecordsInOrder, step_of
from asyncrec._sampling.random_access.indexes import Indexes
from asyncrec._sampling.random_access.key_index import KeyIndex
from asyncrec._sampling.random_access.lookup import RecordLookup
from asyncrec._sampling.random_access.newest import NewestVersions, no_keys
from asyncrec._sampling.random_access.range_read import RangeRead
from asyncrec._sampling.random_access.record_numbers import numbers_of, record_blocks
from asyncrec._sampling.random_access.shard_files import ShardFiles
from asyncrec._sampling.record_set import RecordSet
from asyncrec._sampling.shard_versions import FileVersions
from asyncrec._shards.manifest.manifest import Manifest
from asyncrec.example._age import Age
from asyncrec.example._schema import Schema
from asyncrec.storage._base import Storage
from asyncrec.storage._cached import CachedStorage

T = TypeVar("T")

# The number of indexes read at once.
_TASKS = 32


class RecordLocation(NamedTuple):
    """The location of a stored record.

    ``offset`` and ``size`` describe the record's frame, which is 16 bytes larger than the record. In a compressed
    shard, ``member`` is the stored position at which the record's member begins, and ``offset`` counts the decompressed
    bytes of that member. In an uncompressed shard, ``member`` is `None`.
    """

    path: str
    offset: int
    size: int
    member: int | None


class Dataset:
    """A data set, opened by `open_dataset`, whose records can be read by number or by key.

    Any number of tasks may use a data set inside its context. After exit, reading raises `anyio.ClosedResourceError`.

    ``len(dataset)`` is the number of records. Numbers may be negative, like list indices. ``async for record in
    dataset`` yields all records in order.

    If the data set was opened with ``newest=``, look-ups by key, iterations, `shuffled` and samplers return the newest
    version of each key. Record numbers stay the same: ``len``, `get`, `get_many` and `locate` still count all records.

    Attributes:
        manifest: the snapshot being read. For shards without a manifest, it is made from the shards that were found.
        progress: for each source, the last position whose records are committed; see `Manifest.progress`.
        cache: the local cache, or `None`; its ``downloads`` counts the pieces downloaded into the cache.
    """

    def __init__(self, folder: Storage, name: str, manifest: Manifest, *, newest: str | None = None) -> None:
        self.manifest = manifest
        self.progress = manifest.progress
        self.cache = folder.cache if isinstance(folder, CachedStorage) else None
        self.folder = folder
        self.name = name
        # The number of each shard's first record, followed by the number of records.
        self._starts = np.concatenate([np.zeros(1, np.int64), np.cumsum(manifest.shards.counts)])
        self.files = ShardFiles(folder, manifest.shards)
        self._indexes = Indexes(folder, self.files)
        self.lookup = RecordLookup(self.files, self._indexes, self._starts)
        self.keys, self.contents = (
            KeyIndex(folder, name, manifest.shards, self._starts, manifest.path, contents=kind)
            for kind in (False, True)
        )
        self.newest = newest
        self.newest_versions: NewestVersions | None = None
        if newest is not None:
            age = Age(newest, manifest.schema, manifest.path)
            if len(manifest.shards) and manifest.shards[0].committed and not manifest.shards.keyed.any():
                raise no_keys(manifest.path)
            self.newest_versions = NewestVersions(self, self.keys, age)
        self._blocks: dict[tuple[int, int], NDArray[np.int64]] = {}
        self.versions = FileVersions(manifest.shards, self.files.display_path)

    def __len__(self) -> int:
        return int(self._starts[-1])

    def __repr__(self) -> str:
        newest = "" if self.newest is None else f", the newest by {self.newest!r}"
        return f"<Dataset {self.manifest.path}: {len(self):,} records in {len(self.manifest.shards):,} shards{newest}>"

    @property
    def schema(self) -> Schema | None:
        """The schema in the manifest, or `None` if no writer passed a schema or there is no manifest.

        Without a schema, use `decode_example`, or infer a schema from some records with `Schema.infer`.
        """
        return None if self.manifest.schema is None else Schema.from_json(self.manifest.schema)

    def __aiter__(self) -> RecordsInOrder:
        compressed = any(self.manifest.shards.compressions)
        step = step_of(len(self), self.manifest.bytes, compressed=compressed)
        return RecordsInOrder(len(self), step, self._between, self.get_many)

    def batches(self) -> AsyncIterator[list[bytes]]:
        """Iterate over all records in order, in non-empty lists, as they are read. This is the fastest iteration."""
        return aiter(self).batches()

    def examples(self, schema: Schema | None = None) -> AsyncIterator[dict[str, Any]]:
        """Iterate over all records in order, decoded with ``schema``, the manifest's schema or else `decode_example`.

        A record that cannot be decoded raises DecodeError or SchemaError. The next step continues with the next record.
        """
        return Examples(self.manifest.path, aiter(self), self.schema if schema is None else schema)

    async def get(self, index: SupportsIndex) -> bytes:
        """Read one record.

        Raises:
            IndexError: there is no such record.
            FormatError: the record is damaged. The message contains the path, the offset, and the record's number in
                the shard.
            ObjectNotFoundError, ObjectChangedError: the shard no longer exists, or was replaced.
        """
        await checkpoint()
        record = self.lookup.one(index, waits=False)
        if record is None:
            (record,) = await self.get_many([index])
        return record

    async def get_many(self, indices: Iterable[SupportsIndex] | slice | NDArray[np.integer[Any]]) -> list[bytes]:
        """Read records, and return them in the order of ``indices``, in which a number may occur more than once.

        ``indices`` are numbers, or a slice, such as ``slice(-100, None)`` for the last hundred records. The records are
        read in stored order, with several reads at once. All are in memory together, so request only as many as fit.

        Raises:
            IndexError: a record does not exist. Nothing was read.
            Other errors: as for `get`. The first error ends the call.
        """
        return await self._many(indices, self.lookup.reader.records)

    async def get_whole(
        self, indices: Iterable[SupportsIndex] | NDArray[np.integer[Any]], damage: DamageByShard
    ) -> list[bytes | None]:
        """Like `get_many`, but return `None` for each damaged record, and list the damaged records in ``damage``.

        Raises:
            CorruptRecordError: a shard does not match its index.
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

    async def _between(self, first: int, last: int) -> NDArray[np.int64]:
        """Return the numbers of the records in ``[first, last)`` that an iteration returns."""
        chosen = await self.chosen()
        return np.arange(first, last) if chosen is None else chosen.between(first, last)

    async def chosen(self, damage: DamageByShard | None = None) -> RecordSet | None:
        """Return the set of the newest versions of all keys or, without ``newest=``, `None`, which means all records.

        Damaged records are added to ``damage`` and count as the oldest. If ``damage`` is `None`, they raise an error.
        """
        if self.newest_versions is None:
            return None
        self.lookup.check_open()
        return await self.newest_versions.records(damage)

    async def get_by_key(self, key: str | bytes) -> bytes:
        """Read the first committed record with this ``key`` or, with ``newest=``, the newest record with it.

        The first call reads the keys of all shards (16 bytes per record), and keeps them sorted in memory (24 bytes per
        record). If a remote store holds a checkpoint (`asyncrec.tools.compact`), whose keys are sorted, each call
        instead reads a block of keys, until these reads have cost as much as reading all keys would.

        Raises:
            KeyError: no record has this key, or the shards were written without keys.
        """
        number, record = await self._found(key)
        return await self.get(number) if record is None else record

    async def find(self, key: str | bytes) -> int:
        """Return the number of the record that `get_by_key` would read."""
        return (await self._found(key))[0]

    async def _found(self, key: str | bytes) -> tuple[int, bytes | None]:
        self.lookup.check_open()
        versions = await self.keys.versions(key)
        return (int(versions[0]), None) if self.newest_versions is None else await self.newest_versions.of(versions)

    async def history(self, key: str | bytes) -> list[bytes]:
        """Read every version of a key, in the order in which the versions were committed.

        If the data set was opened with ``newest=``, return the versions from the oldest to the newest. All versions are
        held in memory.

        Raises:
            KeyError: no record has this key.
            Other errors: as for `get_by_key`.
        """
        return (await self.numbered_history(key))[1]

    async def numbered_history(self, key: str | bytes) -> tuple[NDArray[np.int64], list[bytes]]:
        """Like `history`, but also return the numbers of the records."""
        self.lookup.check_open()
        versions = await self.keys.versions(key)
        if self.newest_versions is not None:
            return await self.newest_versions.ordered(versions)
        return versions, await self.get_many(versions)

    async def locate(self, index: SupportsIndex) -> RecordLocation:
        """Return the location of a stored record: its shard, offset, size and member.

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
        """Return a stream of all records, or of the newest version of each key, in shuffled order.

        The order depends only on the snapshot, the seed, the epoch, ``newest``, and the parameters of the order.

        ::

            async with dataset.shuffled(seed=1) as stream:
                async for records in stream.batches(256):  # lists of bytes; or: async for record in stream
                    ...

        Args:
            seed: any int. If `None`, the stream chooses a seed and stores it in the state. Several workers must pass
                the same seed, because they share an order.
            epoch: the first epoch; each epoch has its own order. `None` means 0, or the epoch of the loaded state.
            num_repeat: the number of epochs; -1 means forever.
            mode: ``"block"`` permutes blocks of neighbouring records (in GZIP shards, whole members) over the whole
                data set, then shuffles the records in windows of ``buffer_size``; it reads large pieces. ``"buffer"``
                interleaves the shards in a seeded order, then shuffles in windows; it suits many shards whose records
                are in no particular order. ``"global"`` makes every order equally likely, but needs the most reads.
            buffer_size: the number of records shuffled together. Up to twice as many are in memory, because the next
                window is read ahead.
            buffer_bytes: a limit in bytes, which lowers ``buffer_size`` if that many average records would exceed it.
            block_bytes: with ``"block"``, the stored size of a block, which takes one request to a store. The default
                is 4 MiB, but at most 1/16 of the buffer. The default depends on the manifest but not on the store, so
                the order is the same wherever the shards are stored. A batch then contains records of about 16 blocks.
                Smaller blocks, or a larger buffer, mix the records more.
            cycle_length, block_length: for ``"buffer"``, as for `asyncrec.interleave`.
            worker: ``(i, n)`` for worker i of n. The workers receive the batches in turn, and must use the same batch
                size. Together they receive every record once, except for up to n - 1 batches with ``uneven="drop"``.
            uneven: how to handle last batches that are too few for all workers. ``"drop"`` omits these batches;
                ``"pad"`` adds batches from the beginning of the same epoch. Either way, all workers receive the same
                number.
            on_corrupt: ``"raise"`` raises an error for a damaged record. ``"skip"`` omits the record, so its batch is
                shorter or even empty, and lists the record in `ShuffledStream.damage`. All other batches, and the
                state, stay the same. With ``newest=``, a damaged newest version changes the order, so all workers must
                read the same bytes, and earlier states are refused.

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
        """Return the number of each block's first record, followed by the number of records, as int64.

        A block has about ``block_bytes`` stored bytes and at most ``most`` records. No block spans two shards. In GZIP
        shards, a block consists of whole members, unless a member has more records. This requires the indexes of GZIP
        shards, which are read only once.
        """
        found = self._blocks.get((block_bytes, most))
        if found is None:
            shards = self.manifest.shards
            members: dict[int, tuple[NDArray[np.int64], NDArray[np.int64]]] = {}

            async def look(shard: int) -> None:
                index = await self._indexes.get(shard)
                if index.members is not None:  # the shard is not empty
                    firsts = np.flatnonzero(np.diff(index.members, prepend=-1))
                    members[shard] = firsts, index.members[firsts]

            await concurrently(look, shards.compressed_with("GZIP"), tasks=_TASKS)
            found = await in_thread(record_blocks, self._starts, shards.sizes, members, block_bytes, most)
            self._blocks[block_bytes, most] = found
        return found

    @property
    def starts(self) -> NDArray[np.int64]:
        """The number of each shard's first record, followed by the number of records; int64 (shards + 1,)."""
        return self._starts
