"""A slab: the records that move together from the callers to the store.

Callers add records one by one, without waiting; a slab that is full is sealed: framed and checksummed at once, on the
caller's side, while the store is busy with the one before. Its bounds keep that step far below a millisecond.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate, islice
from typing import cast

from asyncrec._concurrency.tasks import in_thread
from asyncrec._framing.frames import FRAME_OVERHEAD, encode_frames
from asyncrec.errors import ArgumentTypeError
from asyncrec.storage._base import Buffer

__all__ = ["KEY_BYTES", "LARGE_RECORD", "SLAB_BYTES", "SLAB_RECORDS", "Slab", "as_record", "batched", "framed_size"]

# 1,024 records of 128 bytes take about 0.2 ms to frame, 512 KiB of larger ones less.
SLAB_RECORDS = 1024
SLAB_BYTES = 512 << 10

# Above this a checksum or a copy takes long enough to be a worker thread's work (the design's 1 MiB).
LARGE_RECORD = 1 << 20


# One digest per record in a ``.keys`` file.
KEY_BYTES = 16


class Slab:
    """Records on their way.

    Attributes:
        first: the ticket of its first record.
        last: of its last.
        time: when its first record was taken, by the writer's clock.
        size: bytes of its frames.
        records: until it is sealed.
        keys: one digest per record, or `None` when none has a key.
        frames: what `seal` made; together ``size`` bytes.
        lengths: of the records, in order, once sealed.
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
    def of_large(
        cls, record: bytes, frames: Sequence[Buffer], *, ticket: int, time: float, key: bytes | None = None
    ) -> Slab:
        """A sealed slab of one record whose frame was made in a worker thread."""
        slab = cls(ticket, time)
        slab.size = len(record) + FRAME_OVERHEAD
        slab.keys = None if key is None else [key]
        slab.frames = frames
        slab.lengths = (len(record),)
        return slab

    @property
    def full(self) -> bool:
        return self.size >= SLAB_BYTES or len(self.records) >= SLAB_RECORDS

    def seal(self) -> None:
        """Frame the records. At most SLAB_RECORDS of them, SLAB_BYTES and one record of LARGE_RECORD."""
        self.lengths = list(map(len, self.records))
        self.frames = encode_frames(self.records)
        self.records = []


def framed_size(lengths: Sequence[int]) -> int:
    """The bytes that records of these lengths take in a file."""
    return sum(lengths) + FRAME_OVERHEAD * len(lengths)


async def as_record(record: Buffer) -> bytes:
    """The record as bytes of our own: what the caller may still change is copied, large ones in a worker thread.

    Raises:
        TypeError: it is neither bytes, bytearray nor memoryview.
    """
    if buffer_size(record) <= LARGE_RECORD:
        return bytes(record)
    return bytes(record) if isinstance(record, bytes) else await in_thread(bytes, record)


def buffer_size(record: Buffer) -> int:
    """Its bytes.

    Raises:
        TypeError: it is neither bytes, bytearray nor memoryview.
    """
    if isinstance(record, (bytes, bytearray)):
        return len(record)
    if isinstance(record, memoryview):
        return record.nbytes
    hint = "; encode it first, e.g. with .encode()" if isinstance(record, str) else ""
    raise ArgumentTypeError(f"a record is bytes, bytearray or memoryview, not {type(record).__name__}{hint}")


def batched(records: Iterable[Buffer]) -> Iterator[tuple[list[bytes], int] | Buffer]:
    """Cut records into batches of at most a slab, with the bytes of their frames; a large record comes as it is.

    Raises:
        TypeError: one of them is no buffer, after those before it were given out; or ``records`` is itself one.
    """
    if isinstance(records, (bytes, bytearray, memoryview, str)):
        raise ArgumentTypeError(f"records are many, and a {type(records).__name__} is one: use write, or give a list")
    source = iter(records)
    while batch := list(islice(source, SLAB_RECORDS)):
        if set(map(type, batch)) == {bytes}:
            lengths = list(map(len, batch))
            size = framed_size(lengths)
            if size <= SLAB_BYTES:
                yield cast("list[bytes]", batch), size
                continue
            if max(lengths) <= LARGE_RECORD:
                yield from _cut_bytes(cast("list[bytes]", batch), lengths)
                continue
        yield from _cut_any(batch)


def _cut_bytes(batch: list[bytes], lengths: list[int]) -> Iterator[tuple[list[bytes], int]]:
    """The usual case, without a step per record."""
    ends = list(accumulate(lengths))
    start = before = 0
    while start < len(batch):
        # At least one record, whatever its size.
        stop = max(start + 1, bisect_right(ends, before + SLAB_BYTES, start))
        yield batch[start:stop], ends[stop - 1] - before + FRAME_OVERHEAD * (stop - start)
        start, before = stop, ends[stop - 1]


def _cut_any(batch: list[Buffer]) -> Iterator[tuple[list[bytes], int] | Buffer]:
    part: list[bytes] = []
    size = 0
    for record in batch:
        try:
            length = buffer_size(record)
        except TypeError:
            if part:
                yield part, size
            raise
        if part and (size + length > SLAB_BYTES or length > LARGE_RECORD):
            yield part, size
            part, size = [], 0
        if length > LARGE_RECORD:
            yield record
            continue
        part.append(record if type(record) is bytes else bytes(record))
        size += length + FRAME_OVERHEAD
    if part:
        yield part, size
