"""`CoveredNames`: the names of the segments that a checkpoint has merged; of a writer's commits, ranges of numbers."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Mapping

_COMMIT = re.compile(r"([A-Za-z0-9][A-Za-z0-9_]{0,63})-([0-9]{6,18})\.jsonl")

Ranges = tuple[tuple[int, int], ...]


class CoveredNames:
    """The names of segments, without their folder. It is not changed.

    Attributes:
        ranges: of each writer, the numbers of its single commits, first and last, ascending.
        others: all other names: of closing segments and of tombstones.
        fences: those among the single commits that keep another commit from being made: they are never deleted.
    """

    def __init__(
        self,
        ranges: Mapping[str, Iterable[tuple[int, int]]] | None = None,
        others: Iterable[str] = (),
        fences: Iterable[str] = (),
    ) -> None:
        self.ranges = {writer: _joined(each) for writer, each in (ranges or {}).items()}
        self.others = frozenset(others)
        self.fences = frozenset(fences)

    def __contains__(self, name: str) -> bool:
        found = _commit(name)
        if found is None:
            return name in self.others
        writer, number = found
        ranges = self.ranges.get(writer, ())
        at = bisect_right(ranges, (number, number)) - 1
        if at + 1 < len(ranges) and ranges[at + 1][0] == number:
            return True
        return at >= 0 and ranges[at][0] <= number <= ranges[at][1]

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, CoveredNames):
            return NotImplemented
        return (self.ranges, self.others, self.fences) == (other.ranges, other.others, other.fences)

    __hash__ = None  # type: ignore[assignment]

    def may_go(self, name: str) -> bool:
        """Whether the segment of this name may be deleted: it is covered, and decides nothing by its name."""
        return name in self and name not in self.fences and _commit(name) is not None

    def plus(self, names: Iterable[str], fences: Iterable[str] = ()) -> CoveredNames:
        """Return these names and more."""
        numbers: dict[str, set[int]] = defaultdict(set)
        others = set(self.others)
        for name in names:
            found = _commit(name)
            if found is None:
                others.add(name)
            else:
                numbers[found[0]].add(found[1])
        ranges: dict[str, Ranges] = dict(self.ranges)
        for writer, more in numbers.items():
            ranges[writer] = (*ranges.get(writer, ()), *((number, number) for number in more))
        return CoveredNames(ranges, others, self.fences.union(fences))


def _commit(name: str) -> tuple[str, int] | None:
    """The writer and the number of a single commit, where the name has its one form."""
    match = _COMMIT.fullmatch(name)
    if match is None or f"{int(match[2]):06d}" != match[2]:
        return None
    return match[1], int(match[2])


def _joined(ranges: Iterable[tuple[int, int]]) -> Ranges:
    joined: list[tuple[int, int]] = []
    for first, last in sorted(ranges):
        if joined and first <= joined[-1][1] + 1:
            joined[-1] = (joined[-1][0], max(last, joined[-1][1]))
        else:
            joined.append((first, last))
    return tuple(joined)
