"""`plan` chooses which records of a large data set are read for a report: a few at many places. Pure.

Places are drawn one in each of as many equal pieces of the whole, so that every part of it is seen, and records that
follow each other are read together, so that it costs few reads.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from random import Random

__all__ = ["Stretch", "plan"]

# Places. Each is a request to a store, and of a GZIP shard what stands before it in its member is read too.
_PLACES = 200


@dataclass(frozen=True, slots=True)
class Stretch:
    """``count`` records of a shard from number ``first`` on."""

    shard: int
    first: int
    count: int


def plan(counts: Sequence[int], most: int) -> list[Stretch] | None:
    """The stretches to be read of shards with so many records each, ascending; `None` when all are to be read.

    No record is read twice.
    """
    total = sum(counts)
    if total <= most:
        return None
    places = min(_PLACES, most)
    length = most // places
    starts = [0, *accumulate(counts)]
    random = Random(0)
    found: list[Stretch] = []
    shard = 0
    for place in range(places):
        low, high = total * place // places, total * (place + 1) // places
        first = low + random.randrange(max(1, high - low - length + 1))
        left = min(length, high - first)
        while left:  # over the end of a shard into the next
            while starts[shard + 1] <= first:
                shard += 1
            taken = min(left, starts[shard + 1] - first)
            found.append(Stretch(shard, first - starts[shard], taken))
            first += taken
            left -= taken
    return found
