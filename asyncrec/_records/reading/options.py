"""`ReadOptions`, the options for reading and checking one object, shared by all pipelines."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from asyncrec._framing.frames import MAX_RECORD_BYTES

OnCorrupt = Literal["raise", "skip", "stop"]

# Blocks of 256 to 512 KiB read fastest, and parsing one of small records blocks the loop for less than a millisecond.
CHUNK_SIZE = 256 << 10
# A remote store returns blocks of this size; cutting them would cost a copy.
FAR_CHUNK_SIZE = 2 * CHUNK_SIZE

# The maximum that one call to a worker thread decompresses, so that a decompression bomb cannot fill the memory.
INFLATE_BYTES = 4 << 20


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """Options for one pass over one object.

    Attributes:
        on_corrupt: the reaction to damage.
        verify: whether to check the checksum of every record's data.
        max_record_bytes: a longer record is an error before anything is allocated for it.
        chunk_size: the number of bytes of one read.
        inflate_bytes: the approximate number of bytes in one list of records of a compressed object.
        boundaries: the positions of frames, ascending, to find the next one after damage in an uncompressed object.
        warns: whether to log, once, that damage is skipped. False if the caller reports it.
    """

    on_corrupt: OnCorrupt = "raise"
    verify: bool = True
    max_record_bytes: int = MAX_RECORD_BYTES
    chunk_size: int = CHUNK_SIZE
    inflate_bytes: int = INFLATE_BYTES
    boundaries: Sequence[int] = ()
    warns: bool = True
