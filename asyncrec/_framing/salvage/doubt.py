"""`Doubt` decides whether a place found by search is a record, or part of the contents of a lost record.

In the second case, the next bytes after the contents are not a frame: at least the rest of the lost record is there. So
if damage occurs twice within the size of a record, the records found between the two are reported as ambiguous. They
are returned all the same, because just as often they are real records. If a record is cut, or longer than allowed, its
intact header says how far its contents reach: to the end it states, or to the stream's end if that comes first.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from asyncrec._framing.damage import Damage, DamageReason
from asyncrec._framing.encoding import FRAME_OVERHEAD


class Found(NamedTuple):
    """The place that was found by the last search.

    Attributes:
        place: the position of the record there.
        records: the number of records returned before it.
        reach: the farthest end of the lost data before the place. More damage up to there makes the place ambiguous.
        claim: the end of the lost record by its own intact header, or 0 if there is no such header. A stream that ends
            before this position also makes the place ambiguous.
    """

    place: int
    records: int
    reach: int
    claim: int


class Doubt:
    """The last place found by search, until it is certain whether the place is ambiguous.

    Attributes:
        found: the place; `None` if nothing is in doubt.
    """

    def __init__(self, report: Callable[[Damage], None], max_record_bytes: int, found: Found | None) -> None:
        self.found = found
        self._report = report
        self._max_record_bytes = max_record_bytes

    def damaged(self, began: int, end: int, reason: DamageReason, records: int, claim: int) -> None:
        """Record damage from ``began`` to ``end``, at which a search found a frame, or the stream ends.

        Args:
            records: the number of records returned before the damage.
            claim: the end of the damaged record by its header, or 0.
        """
        found = self.found
        if found is not None and end > found.reach:
            found = None  # no record reaches so far
        if found is not None:
            self._report(Damage(found.place, began - found.place, "ambiguous", found.records))
        if end > began:
            self._report(Damage(began, end - began, reason, records))
        if reason == "compression":
            self.found = None  # after an interruption, the compressed stream vouches for the frames found
            return
        reach, claimed = (0, 0) if found is None else (found.reach, found.claim)
        if end != claim:  # otherwise the frame stands at the end that the header states
            reach = max(reach, claim, began + self._max_record_bytes + FRAME_OVERHEAD)
            claimed = max(claimed, claim)
        self.found = Found(end, records, reach, claimed)

    def whole_up_to(self, end: int) -> None:
        """Record that the stream ends, or is interrupted, after whole frames. A lost record may reach farther."""
        found, self.found = self.found, None
        if found is not None and found.place < end < found.claim:
            self._report(Damage(found.place, end - found.place, "ambiguous", found.records))
