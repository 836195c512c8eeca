"""`Doubt`: whether what was found by search is a record, or the contents of a record that is lost.

In the second case, something that is not a frame follows: at least the rest of the lost record. So if damage comes
twice within the size of a record, what was found between is reported as ambiguous; it is returned all the same, because
as often it is a record. The intact header of a record that is cut or longer than allowed says how far the contents
reach: to the stream's end, if that comes before.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from asyncrec._framing.damage import Damage, DamageReason
from asyncrec._framing.encoding import FRAME_OVERHEAD


class Found(NamedTuple):
    """The place that was found by the last search.

    Attributes:
        place: where the record there begins.
        records: how many were returned before it.
        reach: how far the lost data before it may reach; more damage up to there makes the place ambiguous.
        claim: where the lost record ends by its own header, which holds; 0 if there is no such header. A stream that
            ends before makes the place ambiguous, too.
    """

    place: int
    records: int
    reach: int
    claim: int


class Doubt:
    """What was found by the last search, until it is certain whether it is ambiguous.

    Attributes:
        found: that; `None` if nothing is in doubt.
    """

    def __init__(self, report: Callable[[Damage], None], max_record_bytes: int, found: Found | None) -> None:
        self.found = found
        self._report = report
        self._max_record_bytes = max_record_bytes

    def damaged(self, began: int, end: int, reason: DamageReason, records: int, claim: int) -> None:
        """Note damage from ``began`` on, which ends by search at ``end``, or there the stream does.

        Args:
            records: how many were returned before.
            claim: where the damaged record ends by its header, or 0.
        """
        found = self.found
        if found is not None and end > found.reach:
            found = None  # no record reaches so far
        if found is not None:
            self._report(Damage(found.place, began - found.place, "ambiguous", found.records))
        if end > began:
            self._report(Damage(began, end - began, reason, records))
        if reason == "compression":
            self.found = None  # behind an interruption the compressed stream vouches for what is found
            return
        reach, claimed = (0, 0) if found is None else (found.reach, found.claim)
        if end != claim:  # else it stands where the header says
            reach = max(reach, claim, began + self._max_record_bytes + FRAME_OVERHEAD)
            claimed = max(claimed, claim)
        self.found = Found(end, records, reach, claimed)

    def whole_up_to(self, end: int) -> None:
        """Note that the stream ends, or is interrupted, behind whole frames: their record may reach beyond that."""
        found, self.found = self.found, None
        if found is not None and found.place < end < found.claim:
            self._report(Damage(found.place, end - found.place, "ambiguous", found.records))
