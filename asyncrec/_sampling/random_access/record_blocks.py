"""`record_blocks` cuts a data set into runs of neighbours, which stay together when it is permuted by blocks. Pure."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def record_blocks(
    starts: NDArray[np.int64], members: dict[int, NDArray[np.int64]], block_records: int, most: int
) -> NDArray[np.int64]:
    """Where blocks begin, and at last the number of records; int64, ascending.

    Args:
        starts: int64 (shards + 1,): the number of each shard's first record, and at last the number of records.
        members: for GZIP shards, which of its records are the first of a member; int64, the first is 0.
        block_records: about this many in a block; members are joined up to that.
        most: a member of more records is cut.
    """
    parts = []
    for shard, (first, last) in enumerate(zip(starts[:-1].tolist(), starts[1:].tolist(), strict=True)):
        if first == last:
            continue
        boundaries = members.get(shard)
        if boundaries is None:
            pieces = max(1, round((last - first) / block_records))
            parts.append(first + np.arange(pieces) * (last - first) // pieces)
            continue
        # Members are joined while they are small, and cut when they are large.
        begin = 0
        bounds = [*boundaries.tolist()[1:], last - first]
        chosen = []
        for at, bound in enumerate(bounds):
            following = bounds[at + 1] if at + 1 < len(bounds) else None
            if following is None or following - begin > block_records:
                pieces = -(-(bound - begin) // max(most, block_records))
                chosen += [begin + piece * (bound - begin) // pieces for piece in range(pieces)]
                begin = bound
        parts.append(first + np.array(chosen, np.int64))
    return np.concatenate([*parts, starts[-1:]]).astype(np.int64)
