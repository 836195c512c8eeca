"""`CommitClock`: the times of commits, which only grow, whatever the machine's clock says."""

from __future__ import annotations

import time

import anyio

from asyncrec._shards.manifest.manifest import Manifest
from asyncrec._shards.manifest.segment import format_time, parse_time


class CommitClock:
    """A wall clock whose times are later than every commit it was made after, and than each other."""

    def __init__(self, after: Manifest | None = None) -> None:
        """``after`` is the data set as the job found it."""
        self._last = max((state.last_commit for state in after.writers.values()), default="") if after else ""
        self._offset = time.time() - anyio.current_time()

    def now(self) -> str:
        """Tell the time: later than any that was given out or read before."""
        now = format_time(time.time())
        if now <= self._last:
            now = format_time(parse_time(self._last) + 1e-6)
        self._last = now
        return now

    def wall_time(self, at: float) -> str:
        """Convert a time of the event loop's clock to one that the manifest can hold."""
        return format_time(at + self._offset)
