"""Seeded permutations that stay the same in every process, on every machine and in every release. Pure.

NumPy's generators may change what they draw from a seed (NEP 19); these do not: they are made of `mix64` alone, the
finaliser of splitmix64 (Steele, Lea and Flood, "Fast splittable pseudorandom number generators", OOPSLA 2014).
"""

from __future__ import annotations

import hashlib

import numpy as np
from numpy.typing import NDArray

__all__ = ["Permutation", "key_of", "mix64", "shuffled"]

_U64 = NDArray[np.uint64]

# Four Feistel rounds of a strong round function are indistinguishable from random (Luby and Rackoff, 1988); two more
# cost little and make up for halves of a few bits in small sets.
_ROUNDS = 6


def key_of(*parts: object) -> int:
    """64 bits that stand for the parts: the snapshot's id, the seed, the epoch, and what they are for."""
    text = "\0".join(map(repr, parts)).encode("utf-8", "surrogatepass")
    return int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "little")


def mix64(values: _U64) -> _U64:
    """Each value scattered over 64 bits; one to one."""
    values = values + np.uint64(0x9E3779B97F4A7C15)
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return values ^ (values >> np.uint64(31))


def shuffled(count: int, key: int) -> NDArray[np.int64]:
    """The numbers 0 .. ``count - 1`` in an order that depends on ``key`` alone; 16 bytes of memory each."""
    hashes = mix64(np.arange(count, dtype=np.uint64) ^ np.uint64(key))
    return np.argsort(hashes, kind="stable").astype(np.int64, copy=False)


class Permutation:
    """A permutation of 0 .. ``count - 1`` in constant memory: any part of it is had without the rest.

    A Feistel network over the next power of four, and cycle walking back into the range (Black and Rogaway, "Ciphers
    with arbitrary finite domains", CT-RSA 2002): at most 4 steps a number in the mean.
    """

    def __init__(self, count: int, key: int) -> None:
        self.count = count
        self._half = np.uint64(max(1, (max(1, count - 1).bit_length() + 1) // 2))
        self._mask = np.uint64((1 << int(self._half)) - 1)
        self._keys = mix64(np.uint64(key) ^ mix64(np.arange(_ROUNDS, dtype=np.uint64)))

    def at(self, positions: NDArray[np.int64]) -> NDArray[np.int64]:
        """What stands at these positions, each in 0 .. ``count - 1``."""
        found = self._encipher(positions.astype(np.uint64))
        while len(outside := np.flatnonzero(found >= self.count)):
            found[outside] = self._encipher(found[outside])
        return found.astype(np.int64)

    def _encipher(self, values: _U64) -> _U64:
        left, right = values >> self._half, values & self._mask
        for key in self._keys:
            left, right = right, left ^ (mix64(right ^ key) & self._mask)
        return (left << self._half) | right
