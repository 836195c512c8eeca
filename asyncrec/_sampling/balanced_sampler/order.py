"""`BalancedOrder` says which records make the t-th balanced batch. It is a function of t alone, so any worker can begin
anywhere. Pure.

Time goes in rounds. In each the classes are permuted afresh and cut into batches of ``classes_per_batch``; those that
are left over sit out, others each time. So every class comes equally often in the long run, and never twice in a batch.

Within a class the records are permuted afresh each time all have had their turn, and cut into ``per_class``; round by
round the class takes the next. A class that has fewer gives some of them twice.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from asyncrec._sampling.epochs.permutation import key_of, mix64, permuted

Indices = NDArray[np.int64]


class BalancedOrder:
    """The order of class-balanced batches: any batch can be computed from its number.

    Args:
        codes: int (n,): the class of each record, 0 .. classes - 1, each with at least one record.
        classes_per_batch: at most as many as there are classes.
    """

    def __init__(self, codes: NDArray[np.integer], *, classes_per_batch: int, per_class: int, key: int) -> None:
        self._members = np.argsort(codes, kind="stable")
        self._sizes = np.bincount(codes).astype(np.int64)
        self._firsts = np.cumsum(self._sizes) - self._sizes
        self._classes_per_batch = classes_per_batch
        self._per_class = per_class
        self._rounds_key = key_of(key, "classes")
        self._members_key = np.uint64(key_of(key, "members"))
        self._batches_in_round = len(self._sizes) // classes_per_batch

    def batches(self, numbers: Indices) -> Indices:
        """int64 (len(numbers), classes_per_batch * per_class): the records of these batches, class by class."""
        rounds, places = np.divmod(numbers, self._batches_in_round)
        wide = self._classes_per_batch
        rounds = np.repeat(rounds, wide)
        # Each batch's places in its round's permutation of the classes, and so its classes.
        places = (places[:, None] * wide + np.arange(wide)).ravel()
        round_keys = mix64(rounds.astype(np.uint64) ^ np.uint64(self._rounds_key))
        classes = permuted(places, len(self._sizes), round_keys)

        sizes = self._sizes[classes]
        turns = np.maximum(1, sizes // self._per_class)
        cycles, turn = np.divmod(rounds, turns)
        within = (turn[:, None] * self._per_class + np.arange(self._per_class)) % sizes[:, None]
        keys = mix64(mix64(classes.astype(np.uint64) ^ self._members_key) ^ cycles.astype(np.uint64))
        deep = self._per_class
        chosen = permuted(within.ravel(), np.repeat(sizes, deep), np.repeat(keys, deep))
        members = self._members[np.repeat(self._firsts[classes], deep) + chosen]
        return members.reshape(len(numbers), -1)
