"""`CoveredLogs`: the segments of each writer's log that a checkpoint has merged."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from asyncrec._shards.manifest.names import segment_of


@dataclass(frozen=True, slots=True)
class CoveredLogs:
    """The merged segments: of each log, those up to a number.

    Attributes:
        last: the number, by writer.
    """

    last: Mapping[str, int] = field(default_factory=dict)

    def __contains__(self, file: str) -> bool:
        found = segment_of(file)
        return found is not None and found[1] <= self.last.get(found[0], 0)

    def may_go(self, file: str) -> bool:
        """Return whether the segment with this name may be deleted: it is covered, and not the last of its log.

        The last segment stays, because its number determines the next one. Otherwise a writer that was stopped for a
        long time, or a process that ends it, could create a number that was used before.
        """
        found = segment_of(file)
        return found is not None and found[1] < self.last.get(found[0], 0)

    def plus(self, files: Iterable[str]) -> CoveredLogs:
        """Return these segments together with the named ones."""
        last = dict(self.last)
        for file in files:
            if found := segment_of(file):
                last[found[0]] = max(found[1], last.get(found[0], 0))
        return CoveredLogs(last)
