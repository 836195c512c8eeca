"""What a file lost, and where: `Damage`, and the `DamageLog` that salvage keeps.

Ranges that touch are one. The list is limited, the counts are not: a file of nothing but damage fills no memory.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import Literal

DamageReason = Literal["length", "data", "too_large", "truncated", "compression", "ambiguous"]

# What to do about damage: the remedy of each such error, and the same in a shell.
READ_ON = (
    "to skip damaged records, pass on_corrupt='skip'; to write the intact ones to a new file, run `asyncrec repair`"
)
REPAIR = "'asyncrec repair' writes the intact records to a new file"

# Damage that is listed at most, some 100 KiB: a file with more has to be restored from elsewhere anyway.
_LISTED = 1000


@dataclass(frozen=True, slots=True)
class Damage:
    """A range of a file that was lost, or is in doubt.

    Attributes:
        offset: its first byte, counted in the file; with ``member_offset``, in the decompressed output of that member.
        length: its length in bytes, counted in the same way.
        reason: why reading could not continue at ``offset``. Adjacent damage is part of the range, whatever its reason.

            - ``"length"``: the length and its checksum disagree. The range has 12 bytes if the record behind that
              header was intact; that record was returned.
            - ``"data"``: the data and its checksum disagree.
            - ``"too_large"``: a record longer than ``max_record_bytes``.
            - ``"truncated"``: the file, or the compressed stream, ends too soon.
            - ``"compression"``: a GZIP member, or the rest of a ZLIB stream, cannot be decompressed. Counted in
              compressed bytes, from the beginning of the member; records in it whose own checksums hold were returned.
            - ``"ambiguous"``: not lost. Records that were found by searching between two damaged places; their
              checksums hold, and they were returned, but they may be the contents of one large record that was lost.
        records_before: how many records were returned before it.
        member_offset: for damage inside a compressed stream, the byte of the file at which its member begins.
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
        """Return the attributes by name, as JSON has them."""
        return asdict(self)


class DamageLog:
    """A log of the damage of one file, in order.

    Attributes:
        listed: the first 1,000 ranges.
        lost_ranges, lost_bytes: how much is lost, listed or not, without ambiguous ranges.
        ambiguous_ranges: how many ranges are ambiguous.
    """

    def __init__(self) -> None:
        self.listed: list[Damage] = []
        self.lost_ranges = 0
        self.lost_bytes = 0
        self.ambiguous_ranges = 0
        self._last: Damage | None = None  # lost, listed or not

    def add(self, damage: Damage) -> None:
        """Log one range; it becomes part of the last one if the two touch."""
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
        # That a range is in doubt turns out behind it, and there may be lost ones within.
        at = len(self.listed)
        while at and _is_before(damage, self.listed[at - 1]):
            at -= 1
        self.listed.insert(at, damage)


def _is_before(damage: Damage, other: Damage) -> bool:
    return damage.member_offset == other.member_offset and damage.offset < other.offset
