"""Parts of splits, written as text: ``train``, ``train[:80%]+extra[10:20]``, ``test[-5%:]``.

A bound is a number of records or a percentage. A negative bound counts from the end, and a missing bound stands for the
beginning or end of the split. Percentages are rounded to the closest record, and ties to the even number, as TFDS does
with ``rounding="closest"``, so ``train[:33%]`` and ``train[33%:]`` neither overlap nor leave a gap. `parse_split` works
without any data; `Split.resolve` needs the number of records in each split.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction

from asyncrec.errors import ArgumentValueError

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.\-]*")
_PART = re.compile(r"\s*(?P<name>[^\[\]\s]+)\s*(?:\[(?P<start>[^\[\]:]*):(?P<stop>[^\[\]:]*)\]\s*)?")
_BOUND = re.compile(r"(?P<number>-?[0-9][0-9_]*)(?P<percent>\s*%)?")


@dataclass(frozen=True, slots=True)
class Bound:
    """A position in a split. ``value`` is a number of records or a percentage, counted from the end if negative."""

    value: int
    percent: bool = False

    def __str__(self) -> str:
        return f"{self.value}%" if self.percent else str(self.value)


@dataclass(frozen=True, slots=True)
class SplitPart:
    """A part of one split. A bound of `None` stands for the beginning or end of the split."""

    name: str
    start: Bound | None = None
    stop: Bound | None = None

    def __str__(self) -> str:
        if self.start is None and self.stop is None:
            return self.name
        return f"{self.name}[{'' if self.start is None else self.start}:{'' if self.stop is None else self.stop}]"


@dataclass(frozen=True, slots=True)
class Split:
    """Parts of splits that are read one after the other. ``str`` returns a text for `parse_split`."""

    parts: tuple[SplitPart, ...]

    @property
    def names(self) -> tuple[str, ...]:
        """The distinct names of the splits, in order of first use."""
        return tuple(dict.fromkeys(part.name for part in self.parts))

    def resolve(self, counts: Mapping[str, int]) -> list[tuple[str, int, int]]:
        """Return ``(split, start, stop)`` for each part, where ``0 <= start <= stop <= counts[split]``.

        Raises:
            ValueError: a split is not in ``counts``, a bound is outside its split, or a part ends before it begins.
        """
        return [_resolve(part, counts) for part in self.parts]

    def __str__(self) -> str:
        return "+".join(map(str, self.parts))


def parse_split(text: str) -> Split:
    """Parse a description of parts of splits, such as ``train``, ``train[:80%]+extra[10:20]`` or ``test[-5%:]``.

    Raises:
        ValueError: the text is not such a description. The message names the invalid part and a valid form.
    """
    return Split(tuple(_parse_part(part, text) for part in text.split("+")))


def _parse_part(text: str, whole: str) -> SplitPart:
    match = _PART.fullmatch(text)
    if match is None or not _NAME.fullmatch(match["name"]):
        raise ArgumentValueError(
            f"{text.strip()!r} in {whole!r} is not a valid part of a split; write a name and an optional range: "
            "'train', 'train[:80%]', 'train[100:200]', 'train[-10%:]'"
        )
    return SplitPart(match["name"], _parse_bound(match["start"], whole), _parse_bound(match["stop"], whole))


def _parse_bound(text: str | None, whole: str) -> Bound | None:
    if text is None or not text.strip():
        return None
    match = _BOUND.fullmatch(text.strip())
    if match is None or match["number"].endswith("_") or "__" in match["number"]:
        raise ArgumentValueError(
            f"{text.strip()!r} in {whole!r} is not a valid bound; write a number of records or a percentage"
        )
    bound = Bound(int(match["number"]), match["percent"] is not None)
    if bound.percent and abs(bound.value) > 100:
        raise ArgumentValueError(f"{bound} in {whole!r} is out of range; percentages go from -100% to 100%")
    return bound


def _resolve(part: SplitPart, counts: Mapping[str, int]) -> tuple[str, int, int]:
    if part.name not in counts:
        there = ", ".join(repr(name) for name in sorted(counts)) or "none"
        raise ArgumentValueError(f"there is no split {part.name!r}; the splits are: {there}")
    records = counts[part.name]
    start = 0 if part.start is None else _position(part.start, records, part)
    stop = records if part.stop is None else _position(part.stop, records, part)
    if start > stop:
        raise ArgumentValueError(f"{part} ends before it begins: {start} to {stop} of {records} records")
    return part.name, start, stop


def _position(bound: Bound, records: int, part: SplitPart) -> int:
    value = round(Fraction(bound.value * records, 100)) if bound.percent else bound.value
    if abs(value) > records:
        raise ArgumentValueError(f"{part} is out of range, because {part.name!r} has only {records} records")
    from_end = bound.value < 0
    return records + value if from_end else value
