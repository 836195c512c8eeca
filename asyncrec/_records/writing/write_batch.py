"""A `WriteBatch` is the records that move together from the producers to the store.

Producers add records one by one, without waiting. A batch that is full is sealed, which means framed and checksummed,
on the producer's side, while the store is busy with the one before. Its bounds keep that step far below a millisecond.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import accumulate, islice
from typing import Any, cast

from asyncrec._framing.frames import FRAME_OVERHEAD, encode_frames
from asyncrec._records.record_size import LARGE_RECORD, buffer_size, framed_size
from asyncrec.errors import ArgumentTypeError
from asyncrec.storage._base import Buffer

__all__ = ["BATCH_BYTES", "BATCH_RECORDS", "KEY_BYTES", "WriteBatch", "batched"]

# 1,024 records of 128 bytes take about 0.2 ms to frame, 512 KiB of larger ones less.
BATCH_RECORDS = 1024
BATCH_BYTES = 512 << 10

# One digest per record in a ``.keys`` file.
KEY_BYTES = 16


class WriteBatch:
    """A number of neighbouring records on their way into one object.

    Attributes:
        first: the ticket of the first record.
        last: the ticket of the last record.
        time: when the first record was taken, by the event loop's clock.
        size: how many bytes the frames of the records take.
        records: the records, until the batch is sealed; then empty.
        keys: one digest per record, or `None` when none has a key.
        frames: what `seal` made of the records; together ``size`` bytes.
        lengths: how long each record is, in order, once the batch is sealed.
    """

    __slots__ = ("first", "frames", "keys", "last", "lengths", "records", "size", "time")

    def __init__(self, first: int, time: float) -> None:
        self.first = first
        self.last = first
        self.time = time
        self.size = 0
        self.records: list[bytes] = []
        self.keys: list[bytes] | None = None
        self.frames: Sequence[Buffer] = ()
        self.lengths: Sequence[int] = ()

    @classmethod
    def of_records(cls, records: list[bytes], size: int, keys: list[bytes] | None = None) -> WriteBatch:
        """Make a sealed batch of records that nobody waits for; ``size`` is that of their frames."""
        batch = cls(0, 0.0)
        batch.records = records
        batch.size = size
        batch.keys = keys
        batch.seal()
        return batch

    @classmethod
    def of_large(
        cls, record: bytes, frames: Sequence[Buffer], *, ticket: int, time: float, key: bytes | None = None
    ) -> WriteBatch:
        """Make a sealed batch of one record whose frame was made in a worker thread."""
        batch = cls(ticket, time)
        batch.size = len(record) + FRAME_OVERHEAD
        batch.keys = None if key is None else [key]
        batch.frames = frames
        batch.lengths = (len(record),)
        return batch

    @property
    def full(self) -> bool:
        """Whether the batch has reached one of its bounds."""
        return self.size >= BATCH_BYTES or len(self.records) >= BATCH_RECORDS

    def seal(self) -> None:
        """Frame the records: at most BATCH_RECORDS of them, and BATCH_BYTES and one record of LARGE_RECORD."""
        self.lengths = list(map(len, self.records))
        self.frames = encode_frames(self.records)
        self.records = []


def batched(records: Iterable[Buffer | Mapping[str, Any]]) -> Iterator[tuple[list[bytes], int] | Buffer]:
    """Cut records into lists that fit into a `WriteBatch`, with the bytes of their frames; a large one comes as it is.

    Raises:
        TypeError: one of them is not a buffer, after those before it were given out; or ``records`` is itself one.
    """
    if isinstance(records, (bytes, bytearray, memoryview, str)):
        raise ArgumentTypeError(f"records are many, and a {type(records).__name__} is one: use write, or give a list")
    source = iter(records)
    while batch := list(islice(source, BATCH_RECORDS)):
        if set(map(type, batch)) == {bytes}:
            lengths = list(map(len, batch))
            size = framed_size(lengths)
            if size <= BATCH_BYTES:
                yield cast("list[bytes]", batch), size
                continue
            if max(lengths) <= LARGE_RECORD:
                yield from _cut_bytes(cast("list[bytes]", batch), lengths)
                continue
        yield from _cut_any(cast("list[Buffer]", batch))  # what is none is refused there


def _cut_bytes(batch: list[bytes], lengths: list[int]) -> Iterator[tuple[list[bytes], int]]:
    """Cut records that are all bytes, without a step per record."""
    ends = list(accumulate(lengths))
    start = before = 0
    while start < len(batch):
        # At least one record, whatever its size.
        stop = max(start + 1, bisect_right(ends, before + BATCH_BYTES, start))
        yield batch[start:stop], ends[stop - 1] - before + FRAME_OVERHEAD * (stop - start)
        start, before = stop, ends[stop - 1]


def _cut_any(batch: list[Buffer]) -> Iterator[tuple[list[bytes], int] | Buffer]:
    """Cut records of any kind, one by one."""
    part: list[bytes] = []
    size = 0
    for record in batch:
        try:
            length = buffer_size(record)
        except TypeError:
            if part:
                yield part, size
            raise
        if part and (size + length > BATCH_BYTES or length > LARGE_RECORD):
            yield part, size
            part, size = [], 0
        if length > LARGE_RECORD:
            yield record
            continue
        part.append(record if type(record) is bytes else bytes(record))
        size += length + FRAME_OVERHEAD
    if part:
        yield part, size
