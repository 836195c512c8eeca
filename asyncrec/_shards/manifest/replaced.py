"""`replaced_writers` finds the writers whose shards were removed by a job that replaced the whole data set.

A replacement removes all shards that the data set had when the job began, but the segments of their writers stay in the
manifest. The commits of `compact` and `delete` also remove shards, but keep or delete each record individually.
"""

from __future__ import annotations

from collections.abc import Collection

from asyncrec._numpy import np
from asyncrec._shards.manifest.history import History
from asyncrec._shards.manifest.origins import origins_of
from asyncrec._shards.manifest.segment import ShardEntry

# A member of the closing segment of a job that replaced an existing data set.
REPLACES = "replaces"


def replaced_writers(history: History, name: str, among: Collection[str]) -> frozenset[str]:
    """Return those writers of the data set ``name`` whose shards, or shards made from them, were replaced.

    Shards that were committed while the replacing job ran are not replaced. Blocks for some microseconds per shard.
    """
    marked = [number for number, value in enumerate(history.values) if value.get(REPLACES) is True]
    replacing = np.flatnonzero(np.isin(history.commits["extra"], marked))
    removed = np.flatnonzero(np.isin(history.removed_by, replacing))
    if not among or not len(removed):
        return frozenset()
    paths = {history.removed.raw(row) for row in removed.tolist()}
    rows = [row for path in paths for row in range(*history.shards.paths.range_of(path))]
    gone = {shard for entry in history.entries(rows) for shard in _originals(entry, name)}
    writers = history.commits["writer"][history.shards.numbers["commit"]]
    own = np.flatnonzero(np.isin(writers, [number for number, each in enumerate(history.writers) if each in among]))
    pairs = zip(writers[own].tolist(), history.entries(own), strict=True)
    return frozenset(history.writers[number] for number, entry in pairs if not gone.isdisjoint(_originals(entry, name)))


def _originals(entry: ShardEntry, name: str) -> list[str]:
    """Return the original name of a shard, or of each shard that was joined to form it."""
    return [origin.shard for origin in origins_of(entry, name)]
