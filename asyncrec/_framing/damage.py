"""The damaged ranges of a file: `Damage`, and the `DamageLog` to which salvage adds them.

Adjacent ranges are merged. The list is limited but the counts are not, so a badly damaged file does not fill the
memory.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import Literal

DamageReason = Literal["length", "data", "too_large", "truncated", "compression", "ambiguous"]

# The remedy in errors about damage, in Python and in a shell.
READ_ON = (
    "to skip damaged records, pass on_corrupt='skip'; to write the intact ones to a new file, run `asyncrec repair`"
)
REPAIR = "'asyncrec repair' writes the intact records to a new file"

# The maximum number of ranges listed, about 100 KiB. A file with more must be restored from another copy anyway.
_LISTED = 1000


@dataclass(frozen=True, slots=True)
class Damage:
    """A range of a file that was lost, or is ambiguous.

    Attributes:
        offset: the offset of the range in the file or, with ``member_offset``, in the decompressed output of that
            member.
        length: the number of bytes in the range, counted in the same way.
        reason: why reading could not continue at ``offset``. Adjacent damage is part of the range, whatever its reason.

            - ``"length"``: the length and its checksum disagree. The range has 12 bytes if the record after that header
              was intact; that record was returned.
            - ``"data"``: the data and its checksum disagree.
            - ``"too_large"``: a record longer than ``max_record_bytes``.
            - ``"truncated"``: the file, or the compressed stream, ends too soon.
            - ``"compression"``: a GZIP member, or the rest of a ZLIB stream, cannot be decompressed. The range counts
              compressed bytes, from the beginning of the member. Records in the member that match their own checksums
              were returned.
            - ``"ambiguous"``: not lost. These records were found by searching between two damaged places. They match
              their checksums, and were returned, but they may be the contents of one large record that was lost.
        records_before: the number of records returned before the range.
        member_offset: for damage inside a compressed stream, the offset in the file at which its member begins.
    """

    offset: int
    length: int
    reason: DamageReason
    records_before: int
    member_offset: int | None = None

    @property
    def is_at_the_beginning(self) -> bool:
        """Whether the file has no valid length where its first record should begin, so it may not be a TFRecord
        file."""
        return self.offset == 0 and self.reason == "length" and self.records_before == 0 and not self.member_offset

    def to_json(self) -> dict[str, int | str | None]:
        """Return the attributes by name, as JSON values."""
        return asdict(self)


class DamageLog:
    """A log of the damage in one file, in order.

    Attributes:
        listed: the first 1,000 ranges.
        lost_ranges, lost_bytes: the total number of lost ranges and bytes, without ambiguous ranges.
        ambiguous_ranges: the number of ambiguous ranges.
    """

    def __init__(self) -> None:
        self.listed: list[Damage] = []
        self.lost_ranges = 0
        self.lost_bytes = 0
        self.ambiguous_ranges = 0
        self._last: Damage | None = None  # the last lost range, listed or not

    def add(self, damage: Damage) -> None:
        """Log one range, or merge it into the last lost range if they are adjacent."""
        if damage.reason == "ambiguous":
            self.ambiguous_ranges += 1
            self._list(damage)
            return
        self.lost_bytes += damage.length
        last = self._last
        if (
            last is not None
            and last.offset + last.length == damage.offset
            and last.member_offset == damage.member_offset
            and last.records_before == damage.records_before
        ):
            self._last = replace(last, length=last.length + damage.length)
            if self.listed and self.listed[-1] is last:
                self.listed[-1] = self._last
            return
        self.lost_ranges += 1
        self._last = damage
        self._list(damage)

    def _list(self, damage: Damage) -> None:
        if len(self.listed) >= _LISTED:
            return
        # An ambiguous range is reported only once it has ended, so lost ranges inside it may already be listed.
        at = len(self.listed)
        while at and _is_before(damage, self.listed[at - 1]):
            at -= 1
        self.listed.insert(at, damage)


def _is_before(damage: Damage, other: Damage) -> bool:
    return damage.member_offset == other.member_offset and damage.offset < other.offset
