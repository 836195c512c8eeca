"""Requests of S3, as the plugin makes them of an object: which kinds, how many, and what they are billed as.

`plugins/asyncrec-s3` and AWS are what is counted here; `tests/stores/test_requests_on_s3.py` holds the one to it. Other
stores have other names for the same, and other prices.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass

Requests = Counter[str]

# Keys in one answer to a list.
PAGE = 1000
# What one request reads at most: of a small object (`Storage.get`), and of one that is read ahead.
_SMALL = 1 << 20
_LARGE = 8 << 20
_WRITES = {"PutObject", "CreateMultipartUpload", "UploadPart", "CompleteMultipartUpload", "DeleteObject"}
_FREE = {"DeleteObject"}


@dataclass(frozen=True, kw_only=True)
class Prices:
    """Prices in dollars: AWS S3 Standard in us-east-1. What goes in, and what stays in the region, is free there."""

    thousand_writes: float = 0.005  # PUT, POST and LIST
    thousand_reads: float = 0.0004  # GET and HEAD
    gigabyte_month: float = 0.023

    def of(self, requests: Requests) -> float:
        """What these requests cost."""
        billed = Counter({kind: count for kind, count in requests.items() if kind not in _FREE})
        writes = sum(count for kind, count in billed.items() if is_write(kind) or kind == "ListObjectsV2")
        return writes / 1000 * self.thousand_writes + (billed.total() - writes) / 1000 * self.thousand_reads


def is_write(kind: str) -> bool:
    """Whether S3 counts a request to the writes of a prefix, or else to its reads: limits, not prices."""
    return kind in _WRITES


def put(size: int, part_bytes: int, *, exclusive: bool = False) -> Requests:
    """The requests that make an object."""
    return Requests(PutObject=1) if size < part_bytes else put_parts(math.ceil(size / part_bytes), exclusive=exclusive)


def put_parts(parts: int, *, exclusive: bool) -> Requests:
    """The requests that make an object of parts: with a look before, where it must be new, and one after."""
    looks = 2 if exclusive else 1
    return Requests(HeadObject=looks, CreateMultipartUpload=1, UploadPart=parts, CompleteMultipartUpload=1)


def get(size: int) -> Requests:
    """The requests that read a small object: which version it is, and its bytes."""
    return Requests(HeadObject=1, GetObject=math.ceil(size / _SMALL))


def read_ahead(size: int) -> Requests:
    """The requests that read an object which may be long: a checkpoint."""
    return Requests(HeadObject=1, GetObject=reads_of(size))


def reads_of(size: int) -> int:
    """How many requests read so many bytes: of 1, 2, 4, and then 8 MiB each."""
    reads, step = 0, _SMALL
    while size > 0:
        size -= step
        step = min(2 * step, _LARGE)
        reads += 1
    return reads


def list_(keys: int) -> Requests:
    """The requests that list so many keys."""
    return Requests(ListObjectsV2=max(1, math.ceil(keys / PAGE)))
