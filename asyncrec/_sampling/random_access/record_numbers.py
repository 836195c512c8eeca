"""Check the record numbers that a caller passed, replace negative ones, and remove duplicates, without any I/O.

`record_blocks` divides all records into blocks of neighbouring records, which stay together when blocks are permuted.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable
from typing import Any, SupportsIndex

import numpy as np
from numpy.typing import NDArray

from asyncrec.errors import ArgumentTypeError, RecordIndexError

# A number larger than that of any record, but within int64.
_FAR = 1 << 62


def numbers_of(
    indices: Iterable[SupportsIndex] | slice | NDArray[np.integer[Any]], count: int, *, path: str
) -> NDArray[np.int64]:
    """Return the numbers of the records at ``indices``. A negative index counts from the end of the ``count`` records.

    A slice selects the same records as a slice of a list, so it never raises IndexError.

    Raises:
        IndexError: there is no such record. The message contains ``path``.
        TypeError: an index is not a whole number.
    """
    if isinstance(indices, slice):
        return np.arange(*indices.indices(count), dtype=np.int64)
    if isinstance(indices, np.ndarray):
        if indices.dtype.kind not in "iu" or indices.ndim != 1:
            raise ArgumentTypeError(
                f"indices must be a one-dimensional array of integers, not an array of {indices.dtype} with the shape "
                f"{indices.shape}"
            )
        given: Any = indices
        # Limit unsigned numbers first, because a number beyond int64 would become negative, and might then be valid.
        wanted = np.minimum(indices, np.uint64(_FAR)) if indices.dtype == np.uint64 else indices
    else:
        numbers = given = list(map(number_of, indices))
        try:
            wanted = np.array(numbers, np.int64)
        except OverflowError:  # a number beyond int64 is certainly outside the data set
            wanted = np.array([max(-_FAR, min(_FAR, number)) for number in numbers], np.int64)
    wanted = wanted.astype(np.int64)
    outside = (wanted < -count) | (wanted >= count)
    if outside.any():
        raise RecordIndexError(
            f"{path}: there is no record {given[outside.argmax()]}; the data set has {count:,} records"
        )
    return np.where(wanted < 0, wanted + count, wanted)


def number_of(index: SupportsIndex) -> int:
    """Return the number of a record as an int.

    Raises:
        TypeError: ``index`` is not a whole number.
    """
    try:
        return operator.index(index)
    except TypeError:
        kind = type(index).__name__
        raise ArgumentTypeError(
            f"the number of a record must be an int, not {kind}; to look up a key, use get_by_key"
        ) from None


def are_ascending(wanted: NDArray[np.int64]) -> bool:
    """Return whether each number is larger than the previous number."""
    return len(wanted) < 2 or bool((np.diff(wanted) > 0).all())


def distinct_numbers(wanted: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64] | None]:
    """Return the distinct numbers in ascending order, and the place of each wanted number among them.

    If the wanted numbers are already ascending and distinct, return `None` instead of the places.
    """
    if are_ascending(wanted):
        return wanted, None
    return np.unique(wanted, return_inverse=True)


def record_blocks(
    starts: NDArray[np.int64],
    stored_bytes: NDArray[np.int64],
    members: dict[int, tuple[NDArray[np.int64], NDArray[np.int64]]],
    block_bytes: int,
    most: int,
) -> NDArray[np.int64]:
    """Return the number of each block's first record, followed by the number of records, as ascending int64.

    No block spans two shards.

    Args:
        starts: int64 (shards + 1,): the number of each shard's first record, followed by the number of records.
        stored_bytes: int64 (shards,): the size of each shard.
        members: for each GZIP shard, the number in the shard of each member's first record, and the stored byte at
            which each member begins. Both are int64 and begin with 0.
        block_bytes: the approximate stored size of a block; members are joined up to this size.
        most: the maximum number of records in a block; a member with more records is divided.
    """
    parts = []
    bounds = zip(starts[:-1].tolist(), starts[1:].tolist(), stored_bytes.tolist(), strict=True)
    for shard, (first, last, size) in enumerate(bounds):
        if first == last:
            continue
        if shard not in members:
            pieces = min(last - first, max(round(size / block_bytes), -(-(last - first) // most)))
            pieces = max(1, pieces)
            parts.append(first + np.arange(pieces) * (last - first) // pieces)
            continue
        # Join small members, and divide large members.
        records, offsets = members[shard]
        ends = zip([*records.tolist()[1:], last - first], [*offsets.tolist()[1:], size], strict=True)
        chosen = [0]
        begin = behind = offset = behind_offset = 0
        for end, end_offset in ends:
            if behind > begin and (end_offset - offset > block_bytes or end - begin > most):
                chosen.append(behind)
                begin, offset = behind, behind_offset
            pieces = -(-(end - begin) // most)
            chosen += [begin + piece * (end - begin) // pieces for piece in range(1, pieces)]
            behind, behind_offset = end, end_offset
        parts.append(first + np.array(chosen, np.int64))
    return np.concatenate([*parts, starts[-1:]]).astype(np.int64)
