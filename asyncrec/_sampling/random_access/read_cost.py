"""`ReadCost` learns what a read of a far store costs, so as to say which neighbours are worth one read.

A read takes a time before its first byte, and a time for each byte. What comes in the time before the first byte may as
well be read for nothing: that many bytes between two records, and they share a read.

`ReadCost` also says once what reads cost that ask a store often for little.
"""

from __future__ import annotations

from asyncrec._path_log import PathLog

_path_log = PathLog("asyncrec.sampling")

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


# What reading costs is said after so many requests, where one gives less than so much on average, or less than half of
# what came was wanted.
_SAID_AFTER = 500
_CHEAP_BYTES = 256 << 10


class ReadCost:
    """What reads have cost lately. ``path`` is of what is read, for the log."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._requests = self._records = self._came = self._wanted = 0
        self._latency = _LATENCY
        self._bytes_per_second = _BYTES_PER_SECOND

    @property
    def gap(self) -> int:
        """Bytes between two records up to which they are better read together."""
        return int(max(_LEAST_GAP, min(_MOST_GAP, self._latency * self._bytes_per_second)))

    def took(self, size: int, seconds: float, *, records: int, wanted: int) -> None:
        """Note a read that gave so many bytes after so long, of which so many were those of the records wanted.

        Of what reads cost that give little, it is logged once.
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
