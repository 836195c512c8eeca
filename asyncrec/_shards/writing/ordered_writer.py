"""Write records in a known order to one shard after another, and commit all shards together, in bounded memory.

Only one shard is open at a time, so memory and open files do not grow with the number of shards. No object is
overwritten, and the new shards are deleted after a failure. The data set does not change until the job's closing
segment is created.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import accumulate, takewhile
from typing import TYPE_CHECKING, Any, TypeAlias

import anyio

from asyncrec._concurrency.tasks import in_thread
from asyncrec._framing.compression import CompressionOptions
from asyncrec._framing.frames import FRAME_OVERHEAD
from asyncrec._numpy import np
from asyncrec._records.writing.write_batch import WriteBatch
from asyncrec._shards.commit.shard import Shard
from asyncrec._shards.commit.shard_publisher import ShardPublisher
from asyncrec._shards.journal.header import MOST_SHARDS
from asyncrec._shards.manifest.names import new_writer_id
from asyncrec._shards.manifest.segment import ShardEntry
from asyncrec._shards.writing.job import Job, Mode
from asyncrec._shards.writing.open_job import open_job, whole_job_header
from asyncrec.errors import ArgumentValueError, DatasetError
from asyncrec.storage._base import Storage

if TYPE_CHECKING:
    from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class FramedBatch:
    """A batch of records as complete frames with valid checksums.

    Attributes:
        frames: the concatenated frames.
        lengths: the length of each record.
        keys: the concatenated digests of the keys, if the records have keys.
    """

    frames: memoryview
    lengths: NDArray[np.int64]
    keys: bytes | None = None

    def __len__(self) -> int:
        return len(self.lengths)

    def fitting(self, size: int) -> int:
        """Return how many of the first records fit in ``size`` bytes as frames."""
        return int(np.searchsorted(self._ends(), size, side="right"))

    def split(self, count: int) -> tuple[FramedBatch, FramedBatch]:
        """Split the batch after the first ``count`` records."""
        at = int(self._ends()[count - 1]) if count else 0
        cut = len(self.keys or b"") // len(self) * count
        keys = (None, None) if self.keys is None else (self.keys[:cut], self.keys[cut:])
        return (
            FramedBatch(self.frames[:at], self.lengths[:count], keys[0]),
            FramedBatch(self.frames[at:], self.lengths[count:], keys[1]),
        )

    def without(self, positions: NDArray[np.int64]) -> FramedBatch:
        """Return a batch without the records at these positions, which must be in ascending order."""
        ends = self._ends()
        begins = [0, *ends[positions].tolist()]
        stops = [*(ends - self.lengths - FRAME_OVERHEAD)[positions].tolist(), len(self.frames)]
        kept = [self.frames[begin:stop] for begin, stop in zip(begins, stops, strict=True)]
        keys = None
        if self.keys is not None:
            digests = np.frombuffer(self.keys, np.uint8).reshape(len(self), -1)
            keys = np.delete(digests, positions, axis=0).tobytes()
        return FramedBatch(memoryview(b"".join(kept)), np.delete(self.lengths, positions), keys)

    def sealed(self) -> WriteBatch:
        """Return the frames as a write batch."""
        return WriteBatch.of_frames(self.frames, count=len(self), lengths=self.lengths.tobytes(), digests=self.keys)

    def _ends(self) -> NDArray[np.int64]:
        ends: NDArray[np.int64] = np.cumsum(self.lengths + FRAME_OVERHEAD)
        return ends


_EXACT = 1 << 53  # a float can represent every integer up to this exactly


@dataclass(frozen=True, slots=True)
class KeyedBatch:
    """A batch of records. If they have keys, there is a digest of each key, and perhaps of each record's content."""

    records: list[bytes]
    keys: list[bytes] | None = None

    def __len__(self) -> int:
        return len(self.records)

    def fitting(self, size: int) -> int:
        """Return how many of the first records fit in ``size`` bytes as frames."""
        ends = accumulate(len(record) + FRAME_OVERHEAD for record in self.records)
        return sum(1 for _ in takewhile(size.__ge__, ends))

    def split(self, count: int) -> tuple[KeyedBatch, KeyedBatch]:
        """Split the batch after the first ``count`` records."""
        keys = (None, None) if self.keys is None else (self.keys[:count], self.keys[count:])
        return KeyedBatch(self.records[:count], keys[0]), KeyedBatch(self.records[count:], keys[1])

    def without(self, positions: NDArray[np.int64]) -> KeyedBatch:
        """Return a batch without the records at these positions, which must be in ascending order."""
        kept = np.delete(np.arange(len(self)), positions).tolist()
        return KeyedBatch(
            [self.records[at] for at in kept], None if self.keys is None else [self.keys[at] for at in kept]
        )


Batch: TypeAlias = "KeyedBatch | FramedBatch"


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """The limits at which a shard is full.

    Attributes:
        num_shards: the exact number of shards; if it is set, ``records`` must be the exact number of records.
        max_bytes: the maximum size of a shard's file, which is exceeded if a single record is larger; with compression,
            the file may also exceed it by the data in the compressor.
        max_records: the maximum number of records in a shard.
    """

    num_shards: int | None = None
    records: int = 0
    max_bytes: int | None = None
    max_records: int | None = None


def check_num_shards(num_shards: int) -> None:
    """Raise ValueError unless this is a valid number of shards for a fixed data set."""
    if num_shards < 1:
        raise ArgumentValueError(f"num_shards={num_shards}: must be at least 1")
    if num_shards > MOST_SHARDS:
        raise ArgumentValueError(f"num_shards={num_shards:,}: must be at most {MOST_SHARDS:,}")


def shard_boundaries(records: int, num_shards: int) -> list[int]:
    """Return ``num_shards + 1`` positions: shard i has the records ``[boundaries[i], boundaries[i + 1])``.

    Position i is ``round(records * (i / num_shards))``, computed with floats and rounding halves to even, as in datum
    and TFDS. If there are too many records for floats to be exact, integers are used instead.
    """
    check_num_shards(num_shards)
    if records < _EXACT:
        return [round(records * (i / num_shards)) for i in range(num_shards + 1)]
    return [(2 * records * i + num_shards) // (2 * num_shards) for i in range(num_shards + 1)]


class BlockingBatches:
    """The batches of an iterator that blocks. Each batch is fetched in a worker thread."""

    def __init__(self, batches: Iterator[list[bytes]]) -> None:
        self._batches = batches

    def __aiter__(self) -> BlockingBatches:
        return self

    async def __anext__(self) -> KeyedBatch:
        batch = await in_thread(next, self._batches, None)
        if batch is None:
            raise StopAsyncIteration
        return KeyedBatch(batch)


async def write_ordered(
    folder: Storage,
    name: str,
    batches: AsyncIterator[Batch],
    *,
    limits: Limits,
    compression: CompressionOptions,
    schema: Mapping[str, Any] | None,
    metadata: Mapping[str, Any],
    contents: bool = False,
    mode: Mode = "new",
    writer: str | None = None,
    found: Callable[[], Mapping[str, Any]] = dict,
    carried: Mapping[str, Any] | None = None,
) -> list[ShardEntry]:
    """Write all of ``batches`` to the data set ``name``, according to ``mode``. Return the shards in order.

    With ``contents``, the batches may include digests of contents. ``writer`` is the id of the commit, by which a
    second run can find it. ``found`` is called after the last batch, and returns the metadata that is not known before
    then. ``carried`` is passed to `ManifestWriter.close`.

    Raises:
        ObjectExistsError: a data set with this name already exists, or a file with the name of one of its shards.
        ConflictError: another job is making the data set, or has replaced it in the meantime.
        DatasetError: with ``num_shards``, there are more or fewer than ``records`` records.

    If an exception is raised, the data set is unchanged.
    """
    header = whole_job_header(
        folder,
        name,
        writer=writer or new_writer_id(),
        num_shards=limits.num_shards,
        compression=compression,
        schema=schema,
        metadata=metadata,
        contents=contents,
    )
    supply = Supply(batches)
    async with open_job(folder, header, path=header.url, mode=mode) as job:
        if limits.num_shards:
            entries = await _write_fixed(job, supply, limits.num_shards, limits.records)
        else:
            entries = []
            while await supply.any():
                entries.append(await _write_shard(job, len(entries), supply, limits))
        await job.commit(entries, metadata=found(), carried=carried)
    return sorted(entries, key=lambda entry: entry.path)


async def _write_fixed(job: Job, supply: Supply, num_shards: int, records: int) -> list[ShardEntry]:
    ends = shard_boundaries(records, num_shards)
    entries = []
    for number in range(num_shards):
        limits = Limits(max_records=ends[number + 1] - ends[number])
        entries.append(await _write_shard(job, number, supply, limits))
    written = sum(entry.records for entry in entries)
    if written < records or await supply.any():
        more = "more" if written == records else f"only {written:,}"
        raise DatasetError(
            f"{job.header.url}: {records:,} records were announced, but {more} were written; run the job again"
        )
    return entries


async def _write_shard(job: Job, number: int, supply: Supply, limits: Limits) -> ShardEntry:
    compressed = bool(job.header.compression.type)
    return await write_shard(job.publisher, job.shard_name(number), supply, limits, compressed=compressed)


async def write_shard(
    publisher: ShardPublisher, key: str, supply: Supply, limits: Limits, *, compressed: bool
) -> ShardEntry:
    """Write the next records to a new shard, until it is full or no records are left, and publish it.

    Return the shard's entry.
    """
    begun = anyio.current_time()
    async with publisher.open_shard(key) as shard:
        await _fill(shard, supply, limits, compressed=compressed)
        await shard.output.finish()
    return publisher.entry_of(shard, begun, anyio.current_time())


async def _fill(shard: Shard, supply: Supply, limits: Limits, *, compressed: bool) -> None:
    records = 0
    while True:
        room = None if limits.max_bytes is None else limits.max_bytes - shard.output.size
        left = None if limits.max_records is None else limits.max_records - records
        if left == 0 or (room is not None and room <= 0) or not await supply.any():
            return
        batch = supply.take(left, None if compressed else room, at_least_one=not records)
        if not len(batch):
            return
        records += len(batch)
        if isinstance(batch, FramedBatch):
            await shard.output.write([batch.sealed()])
        else:
            await shard.write(batch.records, batch.keys)


class Supply:
    """The records that have not been written yet. Batches are split where a shard is full."""

    def __init__(self, batches: AsyncIterator[Batch]) -> None:
        self._batches = batches
        self._rest: Batch = KeyedBatch([])

    async def any(self) -> bool:
        """Return whether any records are left."""
        while not len(self._rest):
            batch = await anext(self._batches, None)
            if batch is None:
                return False
            self._rest = batch
        return True

    def take(self, records: int | None, size: int | None, *, at_least_one: bool) -> Batch:
        """Remove and return up to ``records`` records, with at most ``size`` bytes of frames. Call `any` first."""
        rest = self._rest
        count = len(rest) if records is None else min(records, len(rest))
        if size is not None:
            count = max(int(at_least_one), min(count, rest.fitting(size)))
        part, self._rest = rest.split(count)
        return part
