"""`replaced_writers` finds the writers whose shards were removed by a job that replaced the whole data set.

A replacement removes all shards that the data set had when the job began, but the segments of their writers stay in the
manifest. The commits of `compact` and `delete` also remove shards, but keep or delete each record individually.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, Any

from asyncrec._numpy import np
from asyncrec._shards.manifest.history import History
from asyncrec._shards.manifest.names import rewriter_of
from asyncrec._shards.manifest.origins import origins_of
from asyncrec._shards.manifest.segment import ShardEntry

if TYPE_CHECKING:
    from numpy.typing import NDArray

# An optional member of the closing segment of a job that replaced a data set that had shards. Earlier releases omit it.
REPLACES = "replaces"


def replaced_writers(history: History, name: str, among: Collection[str]) -> frozenset[str]:
    """Return those writers of the data set ``name`` whose shards, or shards made from them, were replaced.

    Shards that were committed while the replacing job ran are not replaced. Blocks for some microseconds per shard.
    """
    removed = np.flatnonzero(np.isin(history.removed_by, _replacing(history)))
    if not among or not len(removed):
        return frozenset()
    paths = {history.removed.raw(row) for row in removed.tolist()}
    rows = [row for path in paths for row in range(*history.shards.paths.range_of(path))]
    gone = {shard for entry in history.entries(rows) for shard in _originals(entry, name)}
    writers = history.commits["writer"][history.shards.numbers["commit"]]
    own = np.flatnonzero(np.isin(writers, [number for number, each in enumerate(history.writers) if each in among]))
    pairs = zip(writers[own].tolist(), history.entries(own), strict=True)
    return frozenset(history.writers[number] for number, entry in pairs if not gone.isdisjoint(_originals(entry, name)))


def _replacing(history: History) -> NDArray[np.int64]:
    """Return the commits of jobs that replaced the data set.

    Without the member in `REPLACES`, a job replaced the data set if it made a shard that does not have the name of an
    old one. If it made no shard, then `delete` has probably deleted all records.
    """
    commits, numbers = history.commits, history.shards.numbers
    marked = [number for number, value in enumerate(history.values) if value.get(REPLACES) is True]
    removing = np.flatnonzero(commits["removal"] >= 0)
    found: list[Any] = removing[np.isin(commits["extra"][removing], marked)].tolist()
    for row in np.flatnonzero(np.isin(numbers["commit"], removing)).tolist():
        if rewriter_of(history.shards.paths[row]) != history.writer_of(row):
            found.append(numbers["commit"][row])
    return np.array(found, np.int64)


def _originals(entry: ShardEntry, name: str) -> list[str]:
    """Return the original name of a shard, or of each shard that was joined to form it."""
    return [origin.shard for origin in origins_of(entry, name)]
