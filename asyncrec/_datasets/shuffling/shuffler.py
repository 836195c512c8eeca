"""`HashShuffler` sorts records by the hashes of their keys. The result does not depend on their original order.

The hash is ``md5(salt + key)``, 128 bits, with the key as text or bytes. This is the scheme of datum and TFDS, so
records have the same order as in datum. The salt is the split's name, so that equal keys have different positions in
two splits.

Records are kept in memory up to a limit. When the limit is exceeded, all records in memory are written to bucket files,
one for each first byte of the hash, with one file open at a time. At the end, the buckets are read back and sorted, one
after another. A bucket that exceeds the limit is split again by the next byte, and so on. Therefore, any amount of data
can be sorted within the limit, with at most three files open.

All methods block. Call them in worker threads, from one thread at a time.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Iterator
from struct import Struct
from typing import Literal

from asyncrec._datasets.shuffling.buckets import BucketFiles, Item, pack, unpack
from asyncrec.errors import ArgumentTypeError, ArgumentValueError, DuplicateKeyError

OnDuplicate = Literal["raise", "first", "last"]

# Large enough for a spill to append about 250 KiB to each of 256 buckets, but small compared with the memory used in
# training.
MEMORY_LIMIT = 64 << 20
# A record's memory overhead in CPython, beyond the bytes of the record and its key: dict entry, tuple, hash and number.
# tracemalloc shows about 280 bytes. The rest allows for dict growth.
_OVERHEAD = 340
# The number of hashes of spilled records to remember, which takes 16 MiB, in order to detect duplicates early. Other
# duplicates are detected while sorting.
_KNOWN_KEYS = 1 << 20
# The size of a batch: one chunk in most stores, large enough to keep thread switches rare.
_BATCH_BYTES = 1 << 20
_BATCH_RECORDS = 1024
_SHOWN_KEY = 200
_SORTED = "sorted"  # not the name of a bucket, because those are hexadecimal


class HashShuffler:
    """A sorter that accepts records with keys, and returns them in the order of the keys' hashes.

    Args:
        salt: the prefix of every hashed key.
        memory_limit: the maximum number of bytes held in memory, including bookkeeping.
        temporary_folder: the parent of the folder for bucket files, which is created when needed and readable only by
            this user; by default, the system's folder for temporary files. It needs room for all records.
        on_duplicate: how to handle a key that was added before. ``"raise"`` raises DuplicateKeyError. ``"first"`` or
            ``"last"`` keeps the first or the last record.

    Attributes:
        added: the number of records added.
        records, size: the number of records that will be returned, and their total size; exact after `settle`.
        most_held_bytes: the largest number of bytes in memory at any time. It exceeds the limit by at most one record.
    """

    def __init__(
        self,
        salt: str,
        *,
        memory_limit: int = MEMORY_LIMIT,
        temporary_folder: str | os.PathLike[str] | None = None,
        on_duplicate: OnDuplicate = "raise",
    ) -> None:
        if memory_limit <= 0:
            raise ArgumentValueError(f"memory_limit must be positive, not {memory_limit}")
        if on_duplicate not in ("raise", "first", "last"):
            raise ArgumentValueError(f"on_duplicate must be 'raise', 'first' or 'last', not {on_duplicate!r}")
        self.added = 0
        self.records = 0
        self.size = 0
        self.most_held_bytes = 0
        self._salted = hashlib.md5(salt.encode(), usedforsecurity=False)
        self._limit = memory_limit
        self._on_duplicate = on_duplicate
        self.files = BucketFiles(temporary_folder)
        self._known: Fingerprints | None = None
        self._window = _Window(self, "")
        self._sorted: str | None = None
        self._draining = False

    def add(self, key: object, record: bytes) -> None:
        """Add one record.

        Raises:
            DuplicateKeyError: with ``on_duplicate="raise"``, the key was added before, and is one of the known keys:
                all keys in memory, and the first million spilled keys.
            TypeError: the key's text would differ in the next run.
        """
        digest = self.digest(key)
        key_text = repr(key)[:_SHOWN_KEY]
        if self._known is not None and digest in self._known:
            before = self._find_spilled(digest)
            if before is not None:
                raise _duplicate(before, (self.added, key_text, record))
        self._window.add(digest, (self.added, key_text, record))
        self.added += 1
        self.records += 1
        self.size += len(record)

    def digest(self, key: object) -> bytes:
        """Return the hash of a key, 16 bytes, by which its record is ordered."""
        if isinstance(key, str):
            data = key.encode("utf-8", "surrogatepass")
        elif isinstance(key, bytes | bytearray | memoryview):
            data = bytes(key)
        else:
            kind = type(key)
            if kind.__repr__ is object.__repr__ and kind.__str__ is object.__str__:
                raise ArgumentTypeError(
                    f"a key must be a str, bytes or a number, not {kind.__name__}, whose str() differs between runs"
                )
            data = str(key).encode("utf-8", "surrogatepass")
        hasher = self._salted.copy()
        hasher.update(data)
        return hasher.digest()

    @property
    def spilled_bytes(self) -> int:
        """The number of bytes written to bucket files."""
        return self.files.written_bytes

    @property
    def held_bytes(self) -> int:
        """The number of bytes in memory now, while records are being added."""
        return self._window.bytes

    def settle(self) -> None:
        """Make `records` and `size` exact. Call this once all records have been added.

        If duplicates are discarded and records were spilled, this reads all records, and writes the remaining records
        again, in order.
        """
        if self._on_duplicate == "raise" or self._sorted is not None:
            return
        if not self._window.spilled:
            held = self._window.held.values()
            self.records, self.size = len(held), sum(len(record) for _, _, record in held)
            return
        self._begin_draining()
        self.records = self.size = 0
        for batch in _batched(self._window.drain()):
            self.files.write(_SORTED, batch)
            self.records += len(batch)
            self.size += sum(map(len, batch))
        self._sorted = _SORTED

    def batches(self) -> Iterator[list[bytes]]:
        """Yield all records in order, once, in lists of about 1 MiB. Call this after `settle`.

        Raises:
            DuplicateKeyError: with ``on_duplicate="raise"``, there is a duplicate that `add` could not detect.
        """
        self._begin_draining()
        if self._sorted is not None:
            return _batched(self.files.read(self._sorted))
        return _batched(self._window.drain())

    def close(self) -> None:
        """Remove the bucket files. Idempotent; also done when the object is collected, or the process exits."""
        self._window = _Window(self, "")
        self._known = None
        self.files.close()

    # -- called by the windows -----------------------------------------------------------------------------------------

    def spilled(self, digests: list[bytes]) -> None:
        """Note that the records with these hashes were moved from memory to disk."""
        if self._draining or self._on_duplicate != "raise":
            return
        if self._known is None:
            self._known = Fingerprints(_KNOWN_KEYS)
        for digest in digests:
            self._known.add(digest)

    def over_limit(self, window: _Window) -> bool:
        self.most_held_bytes = max(self.most_held_bytes, window.bytes)
        # A single record, however large, is not spilled, because there is nothing to sort.
        return window.bytes > self._limit and len(window.held) > 1

    def resolve(self, before: Item, item: Item) -> Item:
        """Return which of two records with the same key to keep, or raise DuplicateKeyError."""
        if self._on_duplicate == "raise":
            raise _duplicate(before, item)
        return max(before, item) if self._on_duplicate == "last" else min(before, item)

    def _begin_draining(self) -> None:
        self._draining = True
        self._known = None

    def _find_spilled(self, digest: bytes) -> Item | None:
        """Return the record with this hash from its bucket file, or `None` if the file does not contain it."""
        for entry_digest, item in map(unpack, self.files.read(self._window.bucket(digest))):
            if entry_digest == digest:
                return item
        return None


class _Window:
    """The records whose hashes share a prefix: those in memory, and the names of the bucket files with the rest.

    ``prefix`` is the shared prefix in hexadecimal.
    """

    def __init__(self, shuffler: HashShuffler, prefix: str) -> None:
        self._shuffler = shuffler
        self._prefix = prefix
        self.held: dict[bytes, Item] = {}
        self.bytes = 0
        self.spilled: set[str] = set()

    def add(self, digest: bytes, item: Item) -> None:
        before = self.held.get(digest)
        if before is not None:
            item = self._shuffler.resolve(before, item)
            self.bytes -= _cost(before)
        self.held[digest] = item
        self.bytes += _cost(item)
        if self._shuffler.over_limit(self):
            self._spill()

    def bucket(self, digest: bytes) -> str:
        return f"{self._prefix}{digest[len(self._prefix) // 2]:02x}"

    def drain(self) -> Iterator[bytes]:
        """Remove and yield all records in order."""
        if not self.spilled:
            for _, digests in self._grouped():
                for digest in sorted(digests):
                    yield self.held.pop(digest)[2]
            return
        self._spill()
        for bucket in sorted(self.spilled):
            below = _Window(self._shuffler, bucket)
            for digest, item in map(unpack, self._shuffler.files.read(bucket)):
                below.add(digest, item)
            self._shuffler.files.remove(bucket)
            yield from below.drain()

    def _spill(self) -> None:
        for bucket, digests in self._grouped():
            self._shuffler.files.write(bucket, [pack(digest, self.held.pop(digest)) for digest in digests])
            self._shuffler.spilled(digests)
            self.spilled.add(bucket)
        self.bytes = 0

    def _grouped(self) -> list[tuple[str, list[bytes]]]:
        """Return the hashes of the records in memory, grouped by bucket, in the order of the buckets.

        Each group is sorted separately, because sorting all hashes at once would hold the GIL for so long that the
        event loop stalls.
        """
        groups: dict[int, list[bytes]] = {}
        position = len(self._prefix) // 2
        for digest in self.held:
            groups.setdefault(digest[position], []).append(digest)
        return [(self.bucket(groups[byte][0]), groups[byte]) for byte in sorted(groups)]


def _cost(item: Item) -> int:
    return len(item[1]) + len(item[2]) + _OVERHEAD


def _batched(records: Iterable[bytes]) -> Iterator[list[bytes]]:
    batch: list[bytes] = []
    size = 0
    for record in records:
        batch.append(record)
        size += len(record)
        if size >= _BATCH_BYTES or len(batch) >= _BATCH_RECORDS:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def _duplicate(one: Item, other: Item) -> DuplicateKeyError:
    first, second = sorted([one, other])
    return DuplicateKeyError(
        f"two examples have the same key: number {first[0]} has {first[1]}, number {second[0]} has {second[1]} "
        "(counted from 0 in input order). Each key must be unique; to keep one of the two, pass "
        "on_duplicate='first' or 'last'"
    )


_HALVES = Struct("<QQ").unpack


class Fingerprints:
    """A table of at most ``capacity`` 64-bit fingerprints of 16-byte hashes. Once it is full, further ones are ignored.

    A false positive has a probability of 2^-60. If that matters, look up the hash itself.
    """

    def __init__(self, capacity: int) -> None:
        slots = 1 << (2 * max(capacity, 1) - 1).bit_length()  # half of the slots stay empty, so searches are short
        self._table = memoryview(bytearray(8 * slots)).cast("Q")  # zero marks an empty slot; memory is used gradually
        self._mask = slots - 1
        self._room = capacity

    def __contains__(self, digest: bytes) -> bool:
        value, slot = _HALVES(digest)
        value |= 1
        table, mask = self._table, self._mask
        while (found := table[slot & mask]) != value:
            if not found:
                return False
            slot += 1
        return True

    def add(self, digest: bytes) -> None:
        value, slot = _HALVES(digest)
        value |= 1
        table, mask = self._table, self._mask
        while (found := table[slot & mask]) != value:
            if not found:
                if self._room:
                    self._room -= 1
                    table[slot & mask] = value
                return
            slot += 1
