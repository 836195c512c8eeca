"""`RangeRead`: which records of a shard are read together."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from asyncrec._records.index import RecordIndex

# A record that holds so little that a store may be asked for many at once.
_SMALL = 64 << 10


@dataclass(slots=True)
class RangeRead:
    """One read of a shard, or all that is wanted of it.

    Attributes:
        within: the numbers of the wanted records in the shard, ascending and distinct.
        first: the place of the first of them among all those asked for.
    """

    shard: int
    index: RecordIndex
    within: NDArray[np.int64]
    first: int

    @property
    def are_neighbours(self) -> bool:
        """Whether it is records of an uncompressed shard with nothing between them."""
        within = self.within
        return self.index.members is None and int(within[-1]) - int(within[0]) + 1 == len(within)

    @property
    def is_single(self) -> bool:
        """Whether it is one small record of an uncompressed shard."""
        small = len(self.within) == 1 and self.index.sizes.item(self.within.item(0)) <= _SMALL
        return small and self.index.members is None
