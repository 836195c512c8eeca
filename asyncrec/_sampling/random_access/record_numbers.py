"""The numbers that were asked for are checked here, counted from the beginning, and made distinct. Pure.

`record_blocks` cuts all of them into runs of neighbours, which stay together when they are permuted by blocks.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable
from typing import Any, SupportsIndex

import numpy as np
from numpy.typing import NDArray

from asyncrec.errors import ArgumentTypeError, RecordIndexError

# Beyond any data set, and within int64.
_FAR = 1 << 62


def numbers_of(
    indices: Iterable[SupportsIndex] | slice | NDArray[np.integer[Any]], count: int, *, path: str
) -> NDArray[np.int64]:
    """The numbers of these of ``count`` records; negative ones are counted from the end, as in a list.

    A slice gives what it would of a list: nothing is outside.

    Raises:
        IndexError: there is no such record; ``path`` is for the message.
        TypeError: something else than whole numbers.
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
        # Before it is cast: of unsigned numbers, those beyond int64 would become negative ones, which are records.
        wanted = np.minimum(indices, np.uint64(_FAR)) if indices.dtype == np.uint64 else indices
    else:
        numbers = given = list(map(number_of, indices))
        try:
            wanted = np.array(numbers, np.int64)
        except OverflowError:  # what int64 does not hold is outside, too
            wanted = np.array([max(-_FAR, min(_FAR, number)) for number in numbers], np.int64)
    wanted = wanted.astype(np.int64)
    outside = (wanted < -count) | (wanted >= count)
    if outside.any():
        raise RecordIndexError(
            f"{path}: there is no record {given[outside.argmax()]}; the data set has {count:,} records"
        )
    return np.where(wanted < 0, wanted + count, wanted)


def number_of(index: SupportsIndex) -> int:
    """One number as it was given.

    Raises:
        TypeError: it is no whole number.
    """
    try:
        return operator.index(index)
    except TypeError:
        kind = type(index).__name__
        raise ArgumentTypeError(
            f"the number of a record must be an int, not {kind}; to look up a key, use get_by_key"
        ) from None


def are_ascending(wanted: NDArray[np.int64]) -> bool:
    """Whether each number is larger than the one before it."""
    return len(wanted) < 2 or bool((np.diff(wanted) > 0).all())


def distinct_numbers(wanted: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64] | None]:
    """The numbers, ascending, each once; and where each of those wanted is among them, unless it is where it was."""
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
    """Where blocks begin, and at last the number of records; int64, ascending. None spans two shards.

    Args:
        starts: int64 (shards + 1,): the number of each shard's first record, and at last the number of records.
        stored_bytes: int64 (shards,): the size of each shard.
        members: for GZIP shards, which of its records are the first of a member, and at which stored byte each member
            begins; int64, both begin with 0.
        block_bytes: a block has about so many stored bytes; members are joined up to that.
        most: a block has at most so many records; a member of more is cut.
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
        # Members are joined while they are small, and cut when they are large.
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
