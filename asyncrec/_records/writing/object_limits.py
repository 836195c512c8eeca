"""The limits at which an object is full: a number of records, a number of stored bytes, and an age."""

from __future__ import annotations

import math
from dataclasses import dataclass

# The default size of a shard: large enough that a store's cost per object is negligible, small enough to read, move or
# lose a shard as a whole.
MAX_SHARD_BYTES = 256 << 20


@dataclass(frozen=True, slots=True)
class ObjectLimits:
    """The limits at which an object is full. `None` means no limit. The first limit that is reached applies.

    ``bytes`` is a hard limit for uncompressed files, unless one record is larger. With compression, the size is known
    only after writing, so an object ends with the batch that reaches the limit. ``seconds`` is measured from the
    object's first record, even if no records follow.
    """

    bytes: int | None = None
    records: int | None = None
    seconds: float | None = None


class ObjectQuota:
    """A count of the records and bytes that producers have added to the current object, checked against its limits.

    Attributes:
        limits: the limits of each object.
        counted: whether a limit must be checked for each record. Otherwise, nothing is counted.
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
        """Return whether this many additional bytes and records are within the limits."""
        return self._records + records <= self._most_records and self._bytes + size <= self._most_bytes

    def take(self, size: int, records: int) -> bool:
        """Add bytes and records to the object's counts. Return false, adding nothing, if the object must end first.

        An empty object accepts any record, so a record larger than the limit gets an object of its own.
        """
        total_records = self._records + records
        total_bytes = self._bytes + size
        if self._records and (total_records > self._most_records or total_bytes > self._most_bytes):
            return False
        self._records = total_records
        self._bytes = total_bytes
        return True

    def restart(self, size: int = 0, records: int = 0) -> None:
        """Start counting for a new object, which already has these bytes and records."""
        self._records = records
        self._bytes = size

    def is_reached(self, stored: int) -> bool:
        """Return whether a compressed object of this many stored bytes is full."""
        return self._compressed and self.limits.bytes is not None and stored >= self.limits.bytes

    def deadline(self, begun: float, now: float) -> float:
        """Return the deadline of an object opened at ``now``, whose first record was accepted at ``begun``."""
        seconds = self.limits.seconds
        if seconds is None:
            return math.inf
        # Records may have waited longer than this for the previous object to end. In that case, the time starts again;
        # otherwise, there would be many objects of a few records each.
        return begun + seconds if begun + seconds > now else now + seconds
