"""`ReadOptions` say how one object is read and checked, whichever pipeline does it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from asyncrec._framing.frames import MAX_RECORD_BYTES

OnCorrupt = Literal["raise", "skip", "stop"]

# Blocks of 256 to 512 KiB read best, and parsing one of small records holds the loop for less than a millisecond.
CHUNK_SIZE = 256 << 10
# What comes from a store is in blocks of this size: to cut them up would be a copy.
FAR_CHUNK_SIZE = 2 * CHUNK_SIZE

# What one hop to a worker thread decompresses at most, so that a bomb fills no memory: the next hop goes on.
INFLATE_BYTES = 4 << 20


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """Options for one pass over one object.

    Attributes:
        on_corrupt: what damage does.
        verify: whether to check every payload's checksum.
        max_record_bytes: a longer record is an error before anything is allocated for it.
        chunk_size: bytes of one read.
        inflate_bytes: about how many bytes one list of records of a compressed object has.
        boundaries: where frames begin, ascending, for finding the next one behind damage in an uncompressed object.
        warns: whether to log, once, that something is skipped; not if the caller reports it.
    """

    on_corrupt: OnCorrupt = "raise"
    verify: bool = True
    max_record_bytes: int = MAX_RECORD_BYTES
    chunk_size: int = CHUNK_SIZE
    inflate_bytes: int = INFLATE_BYTES
    boundaries: Sequence[int] = ()
    warns: bool = True
