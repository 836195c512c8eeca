"""How large a record is, when it counts as large, and how it becomes bytes that nobody else can change."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from asyncrec._concurrency.tasks import in_thread
from asyncrec._framing.frames import FRAME_OVERHEAD
from asyncrec.errors import ArgumentTypeError
from asyncrec.storage._base import Buffer

__all__ = ["LARGE_EXAMPLE", "LARGE_RECORD", "as_record", "buffer_size", "framed_size"]

# Above this a checksum or a copy takes long enough to be a worker thread's work (the design's 1 MiB).
LARGE_RECORD = 1 << 20

# Above this decoding is a worker thread's work: so many bytes of integers take one or two milliseconds.
LARGE_EXAMPLE = 64 << 10


def framed_size(lengths: Sequence[int]) -> int:
    """The bytes that records of these lengths take in an uncompressed file."""
    return sum(lengths) + FRAME_OVERHEAD * len(lengths)


async def as_record(record: Buffer | Mapping[str, Any]) -> bytes:
    """The record as bytes of our own: what the caller may still change is copied, large ones in a worker thread.

    Raises:
        TypeError: it is neither bytes, bytearray nor memoryview.
    """
    size = buffer_size(record)
    assert not isinstance(record, Mapping), "it has a size"
    if size <= LARGE_RECORD:
        return bytes(record)
    return bytes(record) if isinstance(record, bytes) else await in_thread(bytes, record)


def buffer_size(record: Buffer | Mapping[str, Any]) -> int:
    """The number of bytes in a record.

    Raises:
        TypeError: it is neither bytes, bytearray nor memoryview.
    """
    if isinstance(record, (bytes, bytearray)):
        return len(record)
    if isinstance(record, memoryview):
        return record.nbytes
    hint = "; encode it first, e.g. with .encode()" if isinstance(record, str) else ""
    if isinstance(record, Mapping):
        hint = "; a writer with a schema= takes it, or encode it with encode_example"
    raise ArgumentTypeError(f"a record is bytes, bytearray or memoryview, not {type(record).__name__}{hint}")
