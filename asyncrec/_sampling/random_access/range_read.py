"""`RangeRead` is a set of records of one shard that are read together. `ReadCost` helps choose these sets."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from asyncrec._path_log import PathLog
from asyncrec._records.index import RecordIndex

# The maximum size of a small record, in bytes. Many small records may be requested from a store at once.
_SMALL = 64 << 10


@dataclass(slots=True)
class RangeRead:
    """The records to get in one read of a shard, or all wanted records of the shard.

    Attributes:
        within: the numbers of the wanted records in the shard, ascending and distinct.
        first: the position of the first of these records among all records that the call wants.
    """

    shard: int
    index: RecordIndex
    within: NDArray[np.int64]
    first: int

    @property
    def are_neighbours(self) -> bool:
        """Whether these are consecutive records of an uncompressed shard."""
        within = self.within
        return self.index.members is None and int(within[-1]) - int(within[0]) + 1 == len(within)

    @property
    def is_single(self) -> bool:
        """Whether this is one small record of an uncompressed shard."""
        small = len(self.within) == 1 and self.index.sizes.item(self.within.item(0)) <= _SMALL
        return small and self.index.members is None


_path_log = PathLog("asyncrec.sampling")

# Until a store has been measured, assume 20 ms before the first byte, and 26 MB/s.
_LATENCY = 0.020
_BYTES_PER_SECOND = (512 << 10) / _LATENCY
# A read of at most `_SHORT` bytes is used to measure the time before the first byte; a read of at least `_LONG` bytes,
# the time per byte.
_SHORT = 32 << 10
_LONG = 512 << 10
# The weight of a new measurement relative to the earlier ones. The effect of a burst of slow reads fades after a few
# dozen reads.
_WEIGHT = 1 / 8
# The limits of the gap, whatever was measured. Skipping fewer bytes is never worth a request, and reading more unwanted
# bytes is never worth the memory.
_LEAST_GAP = 32 << 10
_MOST_GAP = 4 << 20


# After `_SAID_AFTER` requests, the cost of reading is logged if a request returned fewer than `_CHEAP_BYTES` wanted
# bytes on average, or if less than half of the received bytes were wanted.
_SAID_AFTER = 500
_CHEAP_BYTES = 256 << 10


class ReadCost:
    """The cost of recent reads from a remote store. A message is logged once if many requests return little data.

    A read takes some time before its first byte, and some time for each byte. Instead of waiting for the first byte of
    another read, a certain number of unwanted bytes could be received and discarded. Two records with at most that many
    bytes between them are therefore read together. ``path`` is the path of the folder, for the log.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        self._requests = self._records = self._came = self._wanted = 0
        self._latency = _LATENCY
        self._bytes_per_second = _BYTES_PER_SECOND

    @property
    def gap(self) -> int:
        """The maximum number of bytes between two records for which one read is better than two."""
        return int(max(_LEAST_GAP, min(_MOST_GAP, self._latency * self._bytes_per_second)))

    def took(self, size: int, seconds: float, *, records: int, wanted: int) -> None:
        """Record that a read of ``size`` bytes took ``seconds``.

        ``wanted`` bytes of the read belonged to the ``records`` wanted records. If reads return little wanted data, log
        their cost once.
        """
        if size <= _SHORT:
            self._latency += _WEIGHT * (seconds - self._latency)
        elif size >= _LONG and seconds > self._latency:
            self._bytes_per_second += _WEIGHT * (size / (seconds - self._latency) - self._bytes_per_second)
        self._requests += 1
        self._records += records
        self._came += size
        self._wanted += wanted
        if self._requests != _SAID_AFTER:
            return
        if self._wanted < _SAID_AFTER * _CHEAP_BYTES or 2 * self._wanted < self._came:
            _path_log.info(
                self._path,
                "%d requests were made for %d records, and %.1f MiB were read for %.1f MiB of records; to make "
                "fewer requests, shuffle in blocks or pass cache=",
                self._requests,
                self._records,
                self._came / (1 << 20),
                self._wanted / (1 << 20),
                requests=self._requests,
                records=self._records,
                bytes=self._came,
                wanted=self._wanted,
            )
