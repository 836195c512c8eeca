"""`RangeRead` is a set of records of one shard that are read together."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from asyncrec._records.index import RecordIndex

# The maximum number of bytes of a small record, of which a store may be asked for many at once.
_SMALL = 64 << 10


@dataclass(slots=True)
class RangeRead:
    """One read of a shard, or all wanted records of the shard.

    Attributes:
        within: the numbers of the wanted records in the shard, ascending and distinct.
        first: the place of the first of these records among all wanted records.
    """

    shard: int
    index: RecordIndex
    within: NDArray[np.int64]
    first: int

    @property
    def are_neighbours(self) -> bool:
        """Whether these are consecutive records of an uncompressed shard."""
        within = self.within
        return self.index.members is None and int(within[-1]) - int(within[0]) + 1 == len(within)

    @property
    def is_single(self) -> bool:
        """Whether this is one small record of an uncompressed shard."""
        small = len(self.within) == 1 and self.index.sizes.item(self.within.item(0)) <= _SMALL
        return small and self.index.members is None
