"""`find_duplicates` finds the records of a data set whose key another record has that was committed before."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from asyncrec._concurrency.tasks import in_thread
from asyncrec._shards.manifest.origins import CommitOrder
from asyncrec.tools._identity import KEY, Identities
from asyncrec.tools._selection import Selection
from asyncrec.tools._shard_reading import ShardKeys

# Keys that are read at once: 1 MiB.
_AT_ONCE = 1 << 16


async def find_duplicates(selection: Selection) -> Mapping[str, NDArray[np.int64]]:
    """The numbers of these records in their shards, ascending, by the key of each shard that has any.

    Only keys are read. Beyond 64 MiB they are sorted through files, at 40 bytes a record.

    Raises:
        DatasetError: a shard has fewer keys than records.
        StorageError: keys cannot be read.
    """
    async with Identities(KEY) as identities:
        first = 0
        for shard in selection.shards:
            assert shard.entry is not None, "a manifest lists it"
            if shard.entry.keys is not None:
                async with ShardKeys(selection, shard) as keys:
                    for at in range(0, shard.entry.records, _AT_ONCE):
                        digests = await keys.joined(min(_AT_ONCE, shard.entry.records - at))
                        await in_thread(identities.add_digests, digests, first + at)
            first += shard.entry.records
        return await in_thread(_in_shards, identities, selection)


def _in_shards(identities: Identities, selection: Selection) -> dict[str, NDArray[np.int64]]:
    """All but the first of each key. Blocks."""
    order = CommitOrder(selection.datasets[0].manifest.shards)
    found = [np.empty(0, np.int64)]
    for rows in identities.groups():
        rows = rows[np.lexsort([order.places(rows["number"]), rows["low"], rows["high"]])]
        same = (rows["high"][1:] == rows["high"][:-1]) & (rows["low"][1:] == rows["low"][:-1])
        found.append(rows["number"][1:][same])
    numbers = np.sort(np.concatenate(found))
    starts = np.concatenate([np.zeros(1, np.int64), np.cumsum(selection.datasets[0].manifest.shards.counts)])
    bounds = np.searchsorted(numbers, starts)
    having = np.flatnonzero(np.diff(bounds)).tolist()
    return {selection.shards[at].key: numbers[bounds[at] : bounds[at + 1]] - starts[at] for at in having}
