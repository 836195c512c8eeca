"""Limits at which an object is full: of its records, of its stored bytes, and of its age."""

from __future__ import annotations

import math
from dataclasses import dataclass

# A shard's default: large enough that a store's cost per object does not count, small enough to be lost, moved or read
# whole.
MAX_SHARD_BYTES = 256 << 20


@dataclass(frozen=True, slots=True)
class ObjectLimits:
    """The limits at which an object is full. `None` is no limit; several combine, the first reached counts.

    ``bytes`` is a hard cap for uncompressed files (unless one record is larger); with compression, whose output is
    known only afterwards, an object ends with the batch that reaches it. ``seconds`` count from its first record on,
    idle or not.
    """

    bytes: int | None = None
    records: int | None = None
    seconds: float | None = None


class ObjectQuota:
    """Counts what producers have put into the current object, against the limits of one.

    Attributes:
        limits: the limits of each object.
        counted: whether any limit is reached record by record; without one, nothing need be counted.
    """

    __slots__ = ("_bytes", "_compressed", "_most_bytes", "_most_records", "_records", "counted", "limits")

    def __init__(self, limits: ObjectLimits, *, compressed: bool) -> None:
        self.limits = limits
        self._compressed = compressed
        self._most_records: float = math.inf if limits.records is None else limits.records
        self._most_bytes: float = math.inf if limits.bytes is None or compressed else limits.bytes
        self.counted = self._most_records < math.inf or self._most_bytes < math.inf
        self._records = 0
        self._bytes = 0

    def fits(self, size: int, records: int) -> bool:
        """Return whether this many more bytes and records stay within the limits."""
        return self._records + records <= self._most_records and self._bytes + size <= self._most_bytes

    def take(self, size: int, records: int) -> bool:
        """Count these to the object. Return false, and count nothing, if the object has to end before them.

        An empty object takes any record: one that is larger than the limit is an object by itself.
        """
        total_records = self._records + records
        total_bytes = self._bytes + size
        if self._records and (total_records > self._most_records or total_bytes > self._most_bytes):
            return False
        self._records = total_records
        self._bytes = total_bytes
        return True

    def restart(self, size: int = 0, records: int = 0) -> None:
        """Count for another object, which has these already."""
        self._records = records
        self._bytes = size

    def is_reached(self, stored: int) -> bool:
        """Return whether a compressed object of this many stored bytes is full."""
        return self._compressed and self.limits.bytes is not None and stored >= self.limits.bytes

    def deadline(self, begun: float, now: float) -> float:
        """Return when an object has to end whose first record was taken at ``begun``, and which is opened now."""
        seconds = self.limits.seconds
        if seconds is None:
            return math.inf
        # Records may have waited longer than that for the object before theirs: they get the whole time again, or there
        # would be many objects of a few records each.
        return begun + seconds if begun + seconds > now else now + seconds
