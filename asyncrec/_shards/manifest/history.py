"""`History`: everything that was ever committed to a data set, in columns from which a manifest is computed.

A history is the result of merging all segments, so it does not matter how many of them were read from a checkpoint. It
is immutable; `merging.plus` combines it with more segments into a new history.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

from asyncrec._numpy import is_warm, np
from asyncrec._shards.manifest.key_run import KeyRun
from asyncrec._shards.manifest.listed import CoveredLogs
from asyncrec._shards.manifest.progress import Reached
from asyncrec._shards.manifest.segment import Segment, ShardEntry
from asyncrec._shards.manifest.shard_columns import NUMBERS, ShardColumns, format_micros
from asyncrec._shards.manifest.texts import TextColumn

if TYPE_CHECKING:
    from numpy.typing import NDArray

CLOSED, ABANDONED = 1, 2
# The number of entries to create from the columns at once: small enough that the first is ready soon, but large enough
# that creating them together is faster than creating them one by one.
_MADE_AT_ONCE = 256
# A history with fewer shards, commits and sources in total than this is processed without a thread.
_LITTLE = 1000

# The columns of commits. `schema`, `metadata` and `extra` are positions in `History.values`, or -1. `removal` is the
# commit's place in the log of removals, or -1.
COMMITS: Final[Mapping[str, str]] = {
    "writer": "uint32",
    "time": "int64",
    "schema": "int32",
    "metadata": "int32",
    "extra": "int32",
    "removal": "int64",
    "flags": "uint8",
}


def _no_shards() -> ShardColumns:
    none = TextColumn.of(())
    return ShardColumns(none, {name: np.empty(0, kind) for name, kind in NUMBERS.items()}, none)


@dataclass(frozen=True, kw_only=True)
class History:
    """The commits of a data set. Create it in a thread, because it imports NumPy.

    Attributes:
        writers: the ids of the writers, by number.
        values: the distinct JSON objects (schemas, metadata, and members that are unknown to this release), by number.
        commits: the columns of `COMMITS`, with a row for each segment.
        shards: all shards that were ever added, sorted by path and then by time.
        removed: the removed paths, sorted, with a row for each removal.
        removed_by: for each removal, the row of its commit.
        identity: the hash of the set of shards that are now in the data set.
        covered: the segments that were merged, by log.
        checkpoint: the number of the checkpoint from which the history was read; 0 if no checkpoint was read.
        runs: the runs of keys that this checkpoint names.
        progress: for each source, the last turn in which records were committed, and the last position in that turn.
        releases: for each source, the last turn that was released.
    """

    writers: tuple[str, ...] = ()
    values: tuple[Mapping[str, Any], ...] = ()
    commits: Mapping[str, NDArray[Any]] = field(
        default_factory=lambda: {name: np.empty(0, kind) for name, kind in COMMITS.items()}
    )
    shards: ShardColumns = field(default_factory=_no_shards)
    removed: TextColumn = field(default_factory=lambda: TextColumn.of(()))
    removed_by: NDArray[np.uint32] = field(default_factory=lambda: np.empty(0, np.uint32))
    identity: int = 0
    covered: CoveredLogs = field(default_factory=CoveredLogs)
    checkpoint: int = 0
    runs: tuple[KeyRun, ...] = ()
    progress: Mapping[str, Reached] = field(default_factory=dict)
    releases: Mapping[str, int] = field(default_factory=dict)

    @property
    def is_little(self) -> bool:
        """Whether processing the history, or merging a few segments into it, takes only tenths of a millisecond."""
        return is_warm() and len(self.shards) + len(self.commits["time"]) + len(self.progress) < _LITTLE

    @property
    def is_empty(self) -> bool:
        """Whether no shard was ever committed and no writer has shut down cleanly."""
        return not len(self.shards) and not self.closed_well

    @cached_property
    def ended(self) -> frozenset[str]:
        """The ids of the writers whose logs have ended, with a closing segment or a tombstone."""
        return self._writers_with(CLOSED)

    @cached_property
    def closed_well(self) -> frozenset[str]:
        """The ids of the writers whose logs ended with a closing segment and not with a tombstone."""
        commits = self.commits
        well = (commits["flags"] & (CLOSED | ABANDONED)) == CLOSED
        return frozenset(self.writers[each] for each in np.unique(commits["writer"][well]).tolist())

    def _writers_with(self, flag: int) -> frozenset[str]:
        found = np.unique(self.commits["writer"][(self.commits["flags"] & flag) != 0])
        return frozenset(self.writers[each] for each in found.tolist())

    def writer_of(self, row: int) -> str:
        """Return the id of the writer that committed the shard in this row."""
        return self.writers[int(self.commits["writer"][self.shards.numbers["commit"][row]])]

    def entry(self, row: int) -> ShardEntry:
        """Return the entry of the shard in this row."""
        return next(self.entries([row]))

    def entries(self, rows: Sequence[int] | NDArray[np.int64]) -> Iterator[ShardEntry]:
        """Yield the entries of the shards in these rows, creating a few hundred at a time."""
        for at in range(0, len(rows), _MADE_AT_ONCE):
            some = np.asarray(rows[at : at + _MADE_AT_ONCE], np.int64)
            writers = self.commits["writer"][self.shards.numbers["commit"][some]].tolist()
            for row, cell, writer in zip(some.tolist(), self.shards.cells(some), writers, strict=True):
                yield self.shards.entry(row, cell, self.writers[writer], self.values)

    def lists(self, path: str) -> bool:
        """Return whether a shard was ever committed under this path."""
        low, high = self.shards.paths.range_of(path.encode("utf-8", "surrogatepass"))
        return high > low

    def removes(self, path: str) -> bool:
        """Return whether a shard with this path was ever removed."""
        low, high = self.removed.range_of(path.encode("utf-8", "surrogatepass"))
        return high > low

    def rows_naming(self, key: str) -> list[int]:
        """Return the rows of all shards ever committed whose own path, index path or keys path is this one."""
        rows = [*range(*self.shards.paths.range_of(key.encode("utf-8", "surrogatepass")))]
        rows += self._rows_by_sidecar.get(key, ())
        for prefix, suffix in (("_index/", ".index"), ("_keys/", ".keys")):
            if key.startswith(prefix) and key.endswith(suffix):
                for shard in _shards_by_sidecar(key[len(prefix) : -len(suffix)], self.writers):
                    low, high = self.shards.paths.range_of(shard.encode("utf-8", "surrogatepass"))
                    rows += (row for row in range(low, high) if key in self.shards.objects(row, self.writer_of(row)))
        return rows

    @cached_property
    def _rows_by_sidecar(self) -> dict[str, list[int]]:
        """The rows of shards by the names of their sidecars, for names that do not follow from the shard's name."""
        found: dict[str, list[int]] = {}
        for kind in ("index", "keys"):
            numbers = self.shards.numbers[kind]
            for row in np.flatnonzero(numbers >= 0).tolist():
                found.setdefault(self.shards.names[numbers[row]], []).append(row)
        return found

    def added_by(self, writer: str) -> list[ShardEntry]:
        """Return the entries of the shards that a writer committed. If a path was used twice, return the last entry."""
        found = {}
        for entry in self.entries(self._rows_of(writer)):
            found[entry.path] = entry
        return list(found.values())

    def _rows_of(self, writer: str) -> list[int]:
        if writer not in self.writers:
            return []
        own = self.commits["writer"] == self.writers.index(writer)
        return np.flatnonzero(own[self.shards.numbers["commit"]]).tolist()

    def objects_of(self, paths: Collection[str]) -> Iterator[str]:
        """Yield the paths of all shards ever committed under ``paths``, and of their index and keys files."""
        for path in paths:
            for row in range(*self.shards.paths.range_of(path.encode())):
                yield from self.shards.objects(row, self.writer_of(row))

    def closing(self, writer: str) -> Segment | None:
        """Return the segment that ended a writer's log, without its removals; `None` if the log has not ended."""
        if writer not in self.ended:
            return None
        commits = self.commits
        own = (commits["writer"] == self.writers.index(writer)) & ((commits["flags"] & CLOSED) != 0)
        row = int(np.flatnonzero(own)[0])
        abandoned = bool(commits["flags"][row] & ABANDONED)
        return Segment(
            writer=writer,
            time=format_micros(int(commits["time"][row])),
            add=() if abandoned else tuple(self.added_by(writer)),
            closed=True,
            abandoned=abandoned,
        )


def _shards_by_sidecar(name: str, writers: Collection[str]) -> Iterator[str]:
    """Yield the names of shards that may own a sidecar: the sidecar's own name, with or without the writer id."""
    yield name
    end = name.rfind("-of-")
    number = name.rfind("-", 0, max(end, 0))
    before = name.rfind("-", 0, max(number, 0))
    if before >= 0 and name[before + 1 : number] in writers:
        yield name[:before] + name[number:]
