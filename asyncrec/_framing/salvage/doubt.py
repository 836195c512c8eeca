"""`Doubt` decides whether a place found by search is a record, or part of the contents of a lost record.

In the second case, the contents are not followed by a frame, but at least by the rest of the lost record. Therefore, if
damage occurs twice within the size of a record, the records found in between are reported as ambiguous. They are still
returned, because they are just as likely to be real records. If a record is truncated, or longer than allowed, its
intact header determines how far its contents reach: to the stated end or, if it comes first, to the end of the stream.
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
        reach: the maximum end of the lost data before the place. More damage up to there makes the place ambiguous.
        claim: the end of the lost record according to its intact header, or 0 if there is no such header. If the stream
            ends before this position, the place is also ambiguous.
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
        """Record damage from ``began`` to ``end``, where a search found a frame, or the stream ends.

        Args:
            records: the number of records returned before the damage.
            claim: the end of the damaged record according to its header, or 0.
        """
        found = self.found
        if found is not None and end > found.reach:
            found = None  # no record reaches this far
        if found is not None:
            self._report(Damage(found.place, began - found.place, "ambiguous", found.records))
        if end > began:
            self._report(Damage(began, end - began, reason, records))
        if reason == "compression":
            self.found = None  # after an interruption, the compressed stream confirms the frames found
            return
        reach, claimed = (0, 0) if found is None else (found.reach, found.claim)
        if end != claim:  # otherwise, the frame is at the end stated in the header
            reach = max(reach, claim, began + self._max_record_bytes + FRAME_OVERHEAD)
            claimed = max(claimed, claim)
        self.found = Found(end, records, reach, claimed)

    def whole_up_to(self, end: int) -> None:
        """Record that the stream ends, or is interrupted, after whole frames. A lost record may extend further."""
        found, self.found = self.found, None
        if found is not None and found.place < end < found.claim:
            self._report(Damage(found.place, end - found.place, "ambiguous", found.records))
