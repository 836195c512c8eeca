"""`ReadCost` learns what a read of a far store costs, so as to say which neighbours are worth one read. Pure.

A read takes a time before its first byte, and a time for each byte. What comes in the time before the first byte may as
well be read for nothing: that many bytes between two records, and they share a read.
"""

from __future__ import annotations

# Until a store was measured: 20 ms before the first byte, and 26 MB/s.
_LATENCY = 0.020
_BYTES_PER_SECOND = (512 << 10) / _LATENCY
# A read of at most so many bytes tells of the first byte, one of at least so many of each.
_SHORT = 32 << 10
_LONG = 512 << 10
# Of the last measurement against those before it: a burst of slow answers is forgotten after some dozens.
_WEIGHT = 1 / 8
# Whatever was measured: less is never worth a request, more never worth its memory.
_LEAST_GAP = 32 << 10
_MOST_GAP = 4 << 20


class ReadCost:
    """What reads have cost lately."""

    def __init__(self) -> None:
        self._latency = _LATENCY
        self._bytes_per_second = _BYTES_PER_SECOND

    @property
    def gap(self) -> int:
        """Bytes between two records up to which they are better read together."""
        return int(max(_LEAST_GAP, min(_MOST_GAP, self._latency * self._bytes_per_second)))

    def took(self, size: int, seconds: float) -> None:
        """Note a read that gave so many bytes after so long."""
        if size <= _SHORT:
            self._latency += _WEIGHT * (seconds - self._latency)
        elif size >= _LONG and seconds > self._latency:
            self._bytes_per_second += _WEIGHT * (size / (seconds - self._latency) - self._bytes_per_second)
