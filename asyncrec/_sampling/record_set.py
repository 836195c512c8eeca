"""`RecordSet` is a subset of the records of a data set, stored as one bit per record. It does no I/O.

A stream over a subset identifies the records by their positions in the subset. `ranks` and `numbers` convert record
numbers to positions and back. Because a count is stored for every 512 records, each conversion only has to read 64
bytes of the bitmap. The set takes 1.4 MB for a data set of ten million records.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import Any

import numpy as np
from numpy.typing import NDArray

Numbers = NDArray[np.int64]

_GROUP_BYTES = 64
_GROUP_BITS = 8 * _GROUP_BYTES
# The maximum number of records converted at once. Each conversion takes a few hundred bytes of memory.
_STEP = 8192

_BITS = np.unpackbits(np.arange(256, dtype=np.uint8)[:, None], axis=1, bitorder="little")
_COUNTS = _BITS.sum(axis=1, dtype=np.uint8)
# For each byte, the positions of its set bits in ascending order, followed by the positions of its other bits.
_PLACES = np.argsort(1 - _BITS, axis=1, kind="stable")


class RecordSet:
    """A subset of the ``size`` records of a data set.

    Args:
        size: the number of records in the data set.
        bits: uint8, one bit for each record, least significant bit first.
    """

    def __init__(self, size: int, bits: NDArray[np.uint8]) -> None:
        self.size = size
        padded = np.zeros((size // _GROUP_BITS + 1) * _GROUP_BYTES, np.uint8)
        padded[: len(bits)] = bits
        if size % 8:
            padded[size // 8] &= (1 << size % 8) - 1
        self._bits = padded.reshape(-1, _GROUP_BYTES)
        counts = _COUNTS[self._bits].sum(axis=1, dtype=np.int64)
        self._before = np.concatenate([np.zeros(1, np.int64), np.cumsum(counts)])

    def __len__(self) -> int:
        return int(self._before[-1])

    def digest(self) -> str:
        """Return a digest of the set, as 16 bytes of blake2b in hexadecimal. Blocks."""
        return blake2b(self._bits.data, digest_size=16).hexdigest()

    def has(self, numbers: Numbers) -> NDArray[np.bool_]:
        """Return whether each of these records is in the set."""
        found: NDArray[np.bool_] = (self._bits.ravel()[numbers >> 3] >> (numbers & 7).astype(np.uint8)) & 1 == 1
        return found

    def between(self, first: int, last: int) -> Numbers:
        """Return the numbers in ``[first, last)`` that are in the set, in ascending order."""
        begin = first >> 3
        bits = np.unpackbits(self._bits.ravel()[begin : (last + 7) >> 3], bitorder="little")
        numbers = np.flatnonzero(bits) + 8 * begin
        return numbers[(numbers >= first) & (numbers < last)]

    def ranks(self, numbers: Numbers) -> Numbers:
        """Return, for each of these numbers (from 0 to ``size``), how many records before it are in the set."""
        return _in_steps(self._ranks, numbers)

    def numbers(self, ranks: Numbers) -> Numbers:
        """Return the numbers of the records at these positions in the set, each from 0 to ``len(self) - 1``."""
        return _in_steps(self._numbers, ranks)

    def _ranks(self, numbers: Numbers) -> Numbers:
        group, byte = numbers // _GROUP_BITS, (numbers >> 3) % _GROUP_BYTES
        rows = self._bits[group]
        counts = _COUNTS[rows]
        counts[np.arange(_GROUP_BYTES) >= byte[:, None]] = 0
        last = rows[np.arange(len(rows)), byte] & ((1 << (numbers & 7)) - 1).astype(np.uint8)
        ranks: Numbers = self._before[group] + counts.sum(axis=1, dtype=np.int64) + _COUNTS[last]
        return ranks

    def _numbers(self, ranks: Numbers) -> Numbers:
        group = np.searchsorted(self._before, ranks, side="right") - 1
        within = (ranks - self._before[group])[:, None]
        rows = self._bits[group]
        upto = np.cumsum(_COUNTS[rows], axis=1, dtype=np.int16)
        byte = (upto <= within).sum(axis=1)
        each = np.arange(len(rows))
        value = rows[each, byte]
        bit = _PLACES[value, within[:, 0] - upto[each, byte] + _COUNTS[value]]
        numbers: Numbers = group * _GROUP_BITS + byte * 8 + bit
        return numbers


def all_bits(size: int) -> NDArray[np.uint8]:
    """Return the bits of a set of all ``size`` records. Use `clear` to remove records."""
    return np.full(-(-size // 8), 255, np.uint8)


def clear(bits: NDArray[np.uint8], numbers: Numbers) -> None:
    """Clear the bits of these records in place."""
    np.bitwise_and.at(bits, numbers >> 3, np.invert(np.left_shift(1, numbers & 7)).astype(np.uint8))


def _in_steps(function: Any, given: Numbers) -> Numbers:
    steps = range(0, len(given), _STEP)
    return np.concatenate([np.empty(0, np.int64), *(function(given[at : at + _STEP]) for at in steps)])
