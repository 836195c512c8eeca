"""Which record is which: 16 bytes of BLAKE2b per record, and a set of them that stays small.

A key names a record (a page's URL, a message's id). ``_keys/<shard>.keys`` holds, for the i-th record of the shard, the
16 bytes ``[16 * i, 16 * i + 16)``: all zero where the record was written without a key.

128 bits: among 10^12 keys the chance of any two being equal is about 10^-15.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from asyncrec.records.slab import KEY_BYTES

__all__ = ["NO_KEY", "KeySet", "key_digest", "partition_of"]

NO_KEY = bytes(KEY_BYTES)

# A Python set costs about 100 bytes a digest, a sorted array 16: so many fresh ones (25 MB) before they are merged.
_FRESH = 1 << 18


def key_digest(key: str | bytes) -> bytes:
    """16 bytes that stand for the key; str as UTF-8 (lone surrogates kept apart)."""
    data = key.encode("utf-8", "surrogatepass") if isinstance(key, str) else key
    return hashlib.blake2b(data, digest_size=KEY_BYTES).digest()


def partition_of(value: str | bytes | int, partitions: int) -> int:
    """Which of ``partitions`` shards the value belongs to: the same in every process and release."""
    data = str(value).encode() if isinstance(value, int) else value
    return int.from_bytes(key_digest(data)[:8], "little") % partitions


class KeySet:
    """A set of digests in about 16 bytes each."""

    def __init__(self) -> None:
        self._sorted: NDArray[np.bytes_] = np.empty(0, dtype="S16")
        self._fresh: set[bytes] = set()

    def __len__(self) -> int:
        return len(self._sorted) + len(self._fresh)

    def __contains__(self, digest: bytes) -> bool:
        if digest in self._fresh:
            return True
        if not len(self._sorted):
            return False
        wanted = np.frombuffer(digest, dtype="S16")[0]
        position = int(np.searchsorted(self._sorted, wanted))
        return position < len(self._sorted) and self._sorted[position] == wanted

    def add(self, digest: bytes) -> bool:
        """Take it in; whether it was new."""
        if digest in self:
            return False
        self._fresh.add(digest)
        if len(self._fresh) >= _FRESH:
            self._merge(self._fresh)
            self._fresh = set()
        return True

    def add_files(self, contents: Iterable[bytes]) -> None:
        """Take in whole ``.keys`` files.

        Raises:
            ValueError: the size of one is no multiple of 16.
        """
        parts = [self._sorted]
        for content in contents:
            if len(content) % KEY_BYTES:
                raise ValueError(f"{len(content)} bytes of keys are no multiple of {KEY_BYTES}")
            parts.append(np.frombuffer(content, dtype="S16"))
        merged = np.unique(np.concatenate(parts))
        # S16 compares without trailing zeros, so "no key" is the empty string here and sorts first.
        self._sorted = merged[1:] if len(merged) and merged[0] == b"" else merged

    def _merge(self, digests: Iterable[bytes]) -> None:
        self._sorted = np.union1d(self._sorted, np.frombuffer(b"".join(digests), dtype="S16"))
