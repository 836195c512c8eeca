"""The size of a record, the limit for large records, and the conversion of a record to immutable bytes."""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate, takewhile
from typing import Any

from asyncrec._concurrency.tasks import in_thread
from asyncrec._framing.frames import FRAME_OVERHEAD
from asyncrec._native import native
from asyncrec.errors import ArgumentTypeError, ArgumentValueError
from asyncrec.storage._base import Buffer

# Checksumming or copying more bytes than this takes too long for the event loop, so it is done in a worker thread.
LARGE_RECORD = 1 << 20

# Larger examples are decoded in a worker thread. Decoding this many bytes of integers takes one or two milliseconds.
LARGE_EXAMPLE = 64 << 10


def framed_size(lengths: Sequence[int]) -> int:
    """Return the number of bytes that records of these lengths use in an uncompressed file."""
    return sum(lengths) + FRAME_OVERHEAD * len(lengths)


def check_size(size: int, most: int, path: str) -> None:
    """Check that a record's ``size`` is at most ``most`` bytes. ``path`` is the object being written.

    Raises:
        ValueError: the record is longer.
    """
    if size > most:
        raise ArgumentValueError(
            f"{path}: the record has {size:,} bytes, more than this writer's limit of {most:,}; if such records are "
            "intended, pass a larger max_record_bytes to the writer, and to functions that read its files one by "
            "one"
        )


def pack_lengths(lengths: Iterable[int]) -> bytes:
    """Return the lengths as 8 bytes each, in the machine's byte order."""
    return array("q", lengths).tobytes()


def lengths_of_in_python(records: list[bytes]) -> bytes:
    """Return the same as `lengths_of`, computed in Python."""
    return pack_lengths(map(len, records))


def fitting_in_python(records: list[Any], begin: int, most_bytes: int, longest: int) -> tuple[int, int]:
    """Return the same as `fitting`, computed in Python."""
    part = records[begin:] if begin else records
    if set(map(type, part)) != {bytes}:
        part = list(takewhile(lambda record: type(record) is bytes, part))
    lengths = list(map(len, part))
    if lengths and max(lengths) > longest:
        lengths = list(takewhile(longest.__ge__, lengths))
    if not lengths:
        return begin, 0
    ends = list(accumulate(map(FRAME_OVERHEAD.__add__, lengths)))
    count = max(1, bisect_right(ends, most_bytes))
    return begin + count, ends[count - 1]


lengths_of = lengths_of_in_python if native is None else native.lengths_of
"""``lengths_of(records) -> bytes``: the length of each record of a list, in the format of `pack_lengths`."""

fitting = fitting_in_python if native is None else native.fitting
"""``fitting(records, begin, most_bytes, longest) -> (end, size)``: the records of a list that fit into a batch.

These are ``records[begin:end]``, whose frames have ``size`` bytes. ``size`` is at most ``most_bytes``, unless there is
only one record. The range ends before the first record that is longer than ``longest``, or is not exactly `bytes`.
"""


async def as_record(record: Buffer | Mapping[str, Any]) -> bytes:
    """Return the record as bytes. A bytearray or memoryview is copied, in a worker thread if it is large.

    Raises:
        TypeError: the record is neither bytes, bytearray nor memoryview.
    """
    size = buffer_size(record)
    assert not isinstance(record, Mapping), "buffer_size rejects mappings"
    if size <= LARGE_RECORD:
        return bytes(record)
    return bytes(record) if isinstance(record, bytes) else await in_thread(bytes, record)


def buffer_size(record: Buffer | Mapping[str, Any]) -> int:
    """Return the number of bytes in a record.

    Raises:
        TypeError: the record is neither bytes, bytearray nor memoryview.
    """
    if isinstance(record, (bytes, bytearray)):
        return len(record)
    if isinstance(record, memoryview):
        return record.nbytes
    hint = (
        "; encode it first, e.g. with .encode(), or pass a dict to a writer with schema="
        if isinstance(record, str)
        else ""
    )
    if isinstance(record, Mapping):
        hint = "; encode it with encode_example, or pass schema= to the writer"
    raise ArgumentTypeError(f"a record must be bytes, bytearray or memoryview, not {type(record).__name__}{hint}")
