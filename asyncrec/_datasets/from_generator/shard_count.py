"""How many shards a data set of known size should have.

The rule is datum's and TFDS's: shards between 64 MiB and 1 GiB, a round number of them (1,024, a multiple of it, or a
power of two), and never more shards than records. Where no round number fits, theirs looped for ever or gave a single
shard of 600 GiB; here it is then the fewest shards that keep each within the maximum.
"""

from __future__ import annotations

from asyncrec._framing.frames import FRAME_OVERHEAD
from asyncrec.errors import ArgumentValueError

MIN_SHARD_BYTES = 64 << 20
MAX_SHARD_BYTES = 1 << 30
_ROUND = 1024


def shard_count(payload_bytes: int, records: int) -> int:
    """How many shards for ``records`` records of ``payload_bytes`` bytes together; at least 1.

    No shard exceeds 1 GiB unless a record leaves no choice; none is smaller than 64 MiB unless it is the only one.
    """
    if payload_bytes < 0 or records < 0:
        raise ArgumentValueError(f"negative size: {payload_bytes} bytes, {records} records")
    size = payload_bytes + FRAME_OVERHEAD * records
    fewest = -(-size // MAX_SHARD_BYTES)
    most = min(size // MIN_SHARD_BYTES, records)
    if fewest <= _ROUND <= most:
        return _ROUND
    if fewest > _ROUND:
        rounded = -(-fewest // _ROUND) * _ROUND
        return rounded if rounded <= records else max(1, min(fewest, records))
    for power in (512, 256, 128, 64, 32, 16, 8, 4, 2):
        if fewest <= power <= most:
            return power
    return max(1, min(fewest, records))
