"""`KeySet` is a set of keys that stays small, because it stores only the 16-byte BLAKE2b digest of each key.

A key names a record (a page's URL, a message's id). In ``_keys/<shard>.keys``, the bytes ``[16 * i, 16 * i + 16)`` are
the digest of the key of the shard's i-th record, or zeros if the record has no key. If digests of contents are stored,
too, each record has 32 bytes, of which the last 16 are the digest of its content (`content_digest`).

With 128 bits, the chance that any two of 10^12 keys have the same digest is about 10^-15.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from asyncrec._native import native
from asyncrec._numpy import np
from asyncrec._path_log import PathLog
from asyncrec._records.writing.write_batch import KEY_BYTES
from asyncrec.errors import ArgumentTypeError, DatasetError

if TYPE_CHECKING:
    from numpy.typing import NDArray

NO_KEY = bytes(KEY_BYTES)
# How many of a writer's first keys are checked for duplicates. They take 7 MB. A program that repeats keys usually does
# so early.
_WATCHED = 1 << 16

_path_log = PathLog("asyncrec.shards")


def key_digest_in_python(key: str | bytes | bytearray) -> bytes:
    """Compute `key_digest` without the C extension."""
    data = key.encode("utf-8", "surrogatepass") if isinstance(key, str) else key
    return hashlib.blake2b(data, digest_size=KEY_BYTES).digest()


def key_digests_in_python(keys: Iterable[str | bytes]) -> list[bytes]:
    """Compute `key_digests` without the C extension."""
    return [key_digest_in_python(key) for key in keys]


def join_digests_in_python(keys: Iterable[str | bytes | bytearray]) -> bytes:
    """Compute `join_digests` without the C extension."""
    return b"".join(key if type(key) is bytearray else key_digest_in_python(key) for key in keys)


# Use the C functions directly, because a wrapper would make each call 50 % slower.
key_digest = key_digest_in_python if native is None else native.key_digest
"""``key_digest(key) -> bytes``: 16 bytes that stand for the key; str as UTF-8 (lone surrogates kept apart)."""

key_digests = key_digests_in_python if native is None else native.key_digests
"""``key_digests(keys) -> list[bytes]``: the digest of each key, in their order."""

join_digests = join_digests_in_python if native is None else native.join_digests
"""``join_digests(keys) -> bytes``: the digests of all keys, one after another. A `bytearray` is already a digest.

Hashing several keys together takes a third of the time of hashing them one by one (`asyncrec/_native/keys.c`).
"""


class RepeatedKeys:
    """A version of `join_digests` that logs the first duplicate key, for writers without a policy for duplicates.

    Only the writer's first 65,536 keys are compared, one batch at a time, when they are hashed. Only eight bytes of
    each digest are compared, as integers, because a set of integers is faster to build. The chance of a wrong warning
    is about 10^-10.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        self._seen: set[int] = set()
        self._left = _WATCHED

    def __call__(self, keys: Sequence[str | bytes | bytearray]) -> bytes:
        digests = join_digests(keys)
        if self._left > 0:
            self._look(keys, digests)
        return digests

    def _look(self, keys: Sequence[str | bytes | bytearray], digests: bytes) -> None:
        self._left -= len(keys)
        numbers = memoryview(digests).cast("Q")[::2].tolist()
        fresh = set(numbers)
        fresh.discard(0)  # a digest of zeros means that the record has no key
        if len(fresh) + numbers.count(0) == len(numbers) and self._seen.isdisjoint(fresh):
            self._seen |= fresh
        else:
            self._warn(keys, numbers)
            self._left = 0
        if self._left <= 0:
            self._seen.clear()

    def _warn(self, keys: Sequence[str | bytes | bytearray], numbers: Sequence[int]) -> None:
        """Log the first repeated key."""
        for key, number in zip(keys, numbers, strict=True):
            if number in self._seen:
                shown = "a key" if isinstance(key, bytearray) else f"the key {key!r:.80}"
                _path_log.warning(
                    self._path,
                    "%s was written twice, and both records are stored. Open the writer with on_duplicate='skip' to "
                    "keep the first one, or 'write' to keep both without this warning; to remove stored duplicates, "
                    "run 'asyncrec dedupe --by-key'. This writer does not report further duplicates",
                    shown,
                )
                return
            if number:
                self._seen.add(number)


def digest_of(key: str | bytes) -> bytes:
    """Return the digest of a key, or raise a clear error if the key is neither text nor bytes.

    Raises:
        TypeError: the key is neither text nor bytes.
    """
    try:
        return key_digest(key)
    except (TypeError, AttributeError):
        raise ArgumentTypeError(
            f"a key must be a str or bytes, not {type(key).__name__}; convert it to text that is the same in every "
            "run, such as str(key)"
        ) from None


def content_digest(content: str | bytes) -> bytes:
    """Return the 16-byte digest of a body.

    Its last bit is 0. For revisits of the body, the last bit is 1 (see `shared_digests`).
    """
    data = content.encode("utf-8", "surrogatepass") if isinstance(content, str) else content
    digest = hashlib.blake2b(data, digest_size=KEY_BYTES, person=b"asyncrec content").digest()
    return shared_digests(digest)[0]


def shared_digests(digest: bytes) -> tuple[bytes, bytes]:
    """Return the digest of a record that has a body, and the digest of the body's revisits, given either of them."""
    return digest[:-1] + bytes([digest[-1] & 0xFE]), digest[:-1] + bytes([digest[-1] | 1])


def partition_of(value: str | bytes | int, partitions: int) -> int:
    """Return a value's shard number, which is below ``partitions`` and the same in every process and release."""
    data = str(value).encode() if isinstance(value, int) else value
    return int.from_bytes(key_digest(data)[:8], "little") % partitions


class KeySet:
    """A set of digests, which takes 16 bytes for each digest of a snapshot and about 100 for each one added later.

    The snapshot's digests are sorted once, in a worker thread. `add` never sorts, so it does not block the event loop.
    """

    def __init__(self) -> None:
        # The first and the last eight bytes of each digest, sorted by the first. Even among 2^32 digests, few have the
        # same first eight bytes.
        self._first: NDArray[np.uint64] = np.empty(0, dtype=np.uint64)
        self._last: NDArray[np.uint64] = np.empty(0, dtype=np.uint64)
        self._added: set[bytes] = set()

    def __len__(self) -> int:
        return len(self._first) + len(self._added)

    def __contains__(self, digest: bytes) -> bool:
        if digest in self._added:
            return True
        if not len(self._first):  # for a new data set, skip the NumPy look-up: it takes as long as ten digests
            return False
        first, last = np.frombuffer(digest, dtype="<u8")
        begin, end = np.searchsorted(self._first, first, "left"), np.searchsorted(self._first, first, "right")
        return bool((self._last[begin:end] == last).any())

    def add(self, digest: bytes) -> bool:
        """Add a digest. Return whether it was new."""
        if digest in self:
            return False
        self._added.add(digest)
        return True

    def forget(self, before: bytes, after: bytes) -> None:
        """Remove the digests in ``before`` that are not in ``after``, except those of the snapshot."""
        had, has = ({each[at : at + KEY_BYTES] for at in range(0, len(each), KEY_BYTES)} for each in (before, after))
        self._added -= had - has

    def add_files(self, contents: Iterable[bytes]) -> None:
        """Add the digests in all keys files of a snapshot. Call this once, before any other digest is added. Blocks.

        Raises:
            ValueError: the size of a file is not a multiple of 16.
        """
        pairs = [np.column_stack((self._first, self._last))]
        for content in contents:
            if len(content) % KEY_BYTES:
                raise DatasetError(
                    f"{len(content)} bytes of keys are not a multiple of {KEY_BYTES}; the file of keys is damaged"
                )
            pairs.append(np.frombuffer(content, dtype="<u8").reshape(-1, 2))
        merged = np.concatenate(pairs)
        merged = merged[merged.any(axis=1)]  # a digest of zeros means that the record has no key
        order = np.lexsort((merged[:, 1], merged[:, 0]))
        merged = merged[order]
        if len(merged):
            merged = merged[np.concatenate(([True], (merged[1:] != merged[:-1]).any(axis=1)))]
        self._first, self._last = np.ascontiguousarray(merged[:, 0]), np.ascontiguousarray(merged[:, 1])
