"""`find_duplicates` finds the records of a data set that are redundant because another record has the same key."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from asyncrec._concurrency.tasks import in_thread
from asyncrec._sampling.record_set import RecordSet, all_bits, clear
from asyncrec._shards.manifest.origins import CommitOrder
from asyncrec.errors import ArgumentValueError
from asyncrec.tools._forgotten import Found
from asyncrec.tools._identity import KEY, Identities
from asyncrec.tools._newest import newest_records
from asyncrec.tools._revisited import revisits_among
from asyncrec.tools._selection import SelectedShard, Selection
from asyncrec.tools._shard_reading import ShardKeys
from asyncrec.tools._shards_in_turn import has_keys

# The number of keys to read at once: 1 MiB.
_AT_ONCE = 1 << 16


class Duplicates:
    """The records to leave out of a data set, by shard.

    Attributes:
        rule: the rule that decides which record of a key is kept. Two jobs with different rules could each leave out
            the record that the other keeps, so one of them gives way.
    """

    def __init__(self, firsts: Mapping[str, int], kept: RecordSet, rule: str) -> None:
        """``firsts`` maps each shard with duplicates to its first record number; ``kept`` holds the records to keep."""
        self._firsts = firsts
        self._kept = kept
        self.rule = rule

    @classmethod
    def but(cls, kept: RecordSet, selection: Selection, rule: str) -> Duplicates:
        """Return an instance that leaves out all records of a data set except ``kept``. Blocks."""
        counts = selection.datasets[0].manifest.shards.counts
        starts = np.concatenate([np.zeros(1, np.int64), np.cumsum(counts)])
        having = np.flatnonzero(np.diff(kept.ranks(starts)) < counts).tolist()
        return cls({selection.shards[at].key: int(starts[at]) for at in having}, kept, rule)

    def __contains__(self, shard: SelectedShard) -> bool:
        """Return whether the shard has records to leave out."""
        return shard.key in self._firsts

    def of(self, shards: Sequence[SelectedShard]) -> list[Found]:
        """Return each shard with the numbers of the records to leave out of it. Blocks."""
        return [(shard, self._of(shard)) for shard in shards]

    def _of(self, shard: SelectedShard) -> NDArray[np.int64]:
        assert shard.entry is not None, "a manifest lists the shard"
        first, count = self._firsts.get(shard.key, 0), shard.entry.records if shard in self else 0
        numbers = np.arange(count, dtype=np.int64)
        return numbers[~self._kept.has(numbers + first)]


NO_DUPLICATES = Duplicates({}, RecordSet(0, all_bits(0)), "")
"""The duplicates if no record is left out."""


async def find_duplicates(selection: Selection, newest: str | None = None) -> Duplicates:
    """Find the records to leave out so that one remains for each key: the first committed, or the newest by ``newest``.

    Only keys are read. Above 64 MiB, they are sorted with temporary files, with 40 bytes for each record. With
    ``newest``, records whose keys occur more than once are also read. If records may be revisits, all are read.

    Raises:
        DatasetError: a shard has fewer keys than records.
        FormatError: with ``newest``, a record is damaged.
        ValueError: the feature ``newest`` has no order; or a page that would be kept is a revisit of a page that would
            be left out.
        StorageError: keys or records cannot be read.
    """
    if newest is None or not has_keys(selection):
        kept = await _first_committed(selection)
        return await in_thread(Duplicates.but, kept, selection, "first")
    kept = await newest_records(selection, newest, keyless=True)
    found = await in_thread(Duplicates.but, kept, selection, f"newest {newest[:1000]}")  # the rule must be a short text
    if lost := await revisits_among(selection, kept):
        raise ArgumentValueError(
            f"{selection.path}: the newest versions of some pages are revisits, whose bodies are in older versions, "
            f"such as {', '.join(lost)}; nothing was joined"
        ).with_remedy("call compact() without newest", command="run it without --newest")
    return found


async def _first_committed(selection: Selection) -> RecordSet:
    """Return all records except those with the key of a record that was committed earlier."""
    async with Identities(KEY) as identities:
        first = 0
        for shard in selection.shards:
            assert shard.entry is not None, "a manifest lists the shard"
            if shard.entry.keys is not None:
                async with ShardKeys(selection, shard) as keys:
                    for at in range(0, shard.entry.records, _AT_ONCE):
                        digests = await keys.joined(min(_AT_ONCE, shard.entry.records - at))
                        await in_thread(identities.add_digests, digests, first + at)
            first += shard.entry.records
        return await in_thread(_without_later, identities, selection, first)


def _without_later(identities: Identities, selection: Selection, count: int) -> RecordSet:
    """Return all records except those with the key of a record that was committed earlier. Blocks."""
    order = CommitOrder(selection.datasets[0].manifest.shards)
    bits = all_bits(count)
    for rows in identities.groups():
        rows = rows[np.lexsort([order.places(rows["number"]), rows["low"], rows["high"]])]
        same = (rows["high"][1:] == rows["high"][:-1]) & (rows["low"][1:] == rows["low"][:-1])
        clear(bits, rows["number"][1:][same])
    return RecordSet(count, bits)
