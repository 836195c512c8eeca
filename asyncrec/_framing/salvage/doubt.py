"""`Doubt` decides whether a place found by search is a record, or part of the contents of a lost record.

What looks like a record inside the contents of a lost record is eventually followed by the rest of the lost record,
which is not a frame, and looks like more damage. Therefore, if damage occurs twice within the size of a record, the
records found in between are reported as ambiguous. They are still returned, because they are just as likely to be real
records. If a record is truncated, or longer than allowed, its intact header determines how far its contents may extend:
to the end that the header states, or to the end of the stream if that comes first.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from asyncrec._framing.damage import Damage, DamageReason
from asyncrec._framing.encoding import FRAME_OVERHEAD


class Found(NamedTuple):
    """The place found by the last search.

    Attributes:
        place: the position of the record that was found.
        records: the number of records returned before this record.
        reach: the furthest position at which the lost record before the place may end. The place is ambiguous if there
            is more damage before this position.
        claim: the end of the lost record according to its intact header, or 0 if its header is not intact. The place is
            also ambiguous if the stream ends before this position.
    """

    place: int
    records: int
    reach: int
    claim: int


class Doubt:
    """The last place found by search, until it is certain whether the place is ambiguous.

    Attributes:
        found: the place; `None` if no place is in doubt.
    """

    def __init__(self, report: Callable[[Damage], None], max_record_bytes: int, found: Found | None) -> None:
        self.found = found
        self._report = report
        self._max_record_bytes = max_record_bytes

    def damaged(self, began: int, end: int, reason: DamageReason, records: int, claim: int) -> None:
        """Record damage from ``began`` to ``end``, which is where a search found a frame, or the end of the stream.

        Args:
            records: the number of records returned before the damage.
            claim: the end of the damaged record according to its header, or 0 if its header is not intact.
        """
        found = self.found
        if found is not None and end > found.reach:
            found = None  # no record reaches this far
        if found is not None:
            self._report(Damage(found.place, began - found.place, "ambiguous", found.records))
        if end > began:
            self._report(Damage(began, end - began, reason, records))
        if reason == "compression":
            self.found = None  # the compressed data after the gap was intact, so the frames found in it are real
            return
        reach, claimed = (0, 0) if found is None else (found.reach, found.claim)
        if end != claim:  # if they are equal, the header confirms that a frame begins there
            reach = max(reach, claim, began + self._max_record_bytes + FRAME_OVERHEAD)
            claimed = max(claimed, claim)
        self.found = Found(end, records, reach, claimed)

    def whole_up_to(self, end: int) -> None:
        """Record that the stream ends, or is interrupted, at ``end``, after a complete frame.

        If a lost record extends beyond ``end`` according to its header, report the frames found as ambiguous.
        """
        found, self.found = self.found, None
        if found is not None and found.place < end < found.claim:
            self._report(Damage(found.place, end - found.place, "ambiguous", found.records))
