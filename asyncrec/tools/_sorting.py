"""`Sorter` sorts records for `reshard` and `compact` with a `HashShuffler`. Records' sort keys are called places.

All methods block, except the methods of `Sorted`.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from asyncrec._concurrency.tasks import in_thread
from asyncrec._datasets.shuffling.shuffler import HashShuffler
from asyncrec._shards.writing.ordered_writer import KeyedBatch
from asyncrec.errors import DecodeError
from asyncrec.example._age import Age
from asyncrec.example._by_name import features_in
from asyncrec.example._wire import parse_example

# The maximum number of groups to remember, which takes about 10 MiB. The other groups are in the order of a hash.
_MOST_GROUPS = 0xFF00
# The number of leading bytes by which text is sorted.
_VALUE_BYTES = 128


class Order:
    """Computes the place of each record in a shuffled or grouped order: 16 bytes that are different for each record.

    Records are distributed to files by the first byte of their places, and by the next byte if a file is too large. To
    spread places evenly over all byte values, the first 255 groups have one byte each, and record numbers are scaled by
    the ``total`` number of records.
    """

    def __init__(self, *, shuffle: bool, seed: int, group_by: str | None, total: int) -> None:
        self._shuffle = shuffle
        self._salt = f"asyncrec reshard {seed} ".encode()
        self._group_by = group_by
        self._total = max(total, 1)
        self._groups: dict[bytes, bytes] = {}

    def group(self, record: bytes) -> bytes | None:
        """Return a digest of the feature's value in a record, or `None` if the record does not have the feature."""
        if self._group_by is None:
            return None
        try:
            raw = parse_example(record).get(self._group_by)
        except DecodeError:
            raw = None
        if raw is None:
            return None
        kind, payload = raw
        digest = hashlib.blake2b(bytes([kind]), digest_size=8)
        for part in payload if isinstance(payload, list) else [payload]:
            digest.update(len(part).to_bytes(8, "little"))
            digest.update(part)
        return digest.digest()

    def place(self, number: int, group: bytes | None) -> bytes:
        drawn = hashlib.blake2b(self._salt + str(number).encode(), digest_size=16).digest() if self._shuffle else b""
        if self._group_by is None:
            return drawn
        within = drawn[:2] or min((number << 16) // self._total, 0xFFFF).to_bytes(2, "big")
        return (self._prefix(group or b"") + within + number.to_bytes(6, "big")).ljust(16, b"\0")

    def _prefix(self, group: bytes) -> bytes:
        """Return the bytes with which all places of a group begin.

        These bytes sort in the order of the groups' first records, and are never a prefix of another group's.
        """
        prefix = self._groups.get(group)
        if prefix is None:
            known = len(self._groups)
            if known < 0xFF:
                prefix = bytes([known])
            elif known < _MOST_GROUPS:
                prefix = b"\xff" + known.to_bytes(2, "big")
            else:
                return b"\xff\xff\xff" + group[:5].ljust(5, b"\0")  # in the order of the digests of the values
            self._groups[group] = prefix
        return prefix


class ByFeature:
    """Computes the place of each record in the order of a feature's values. Records with equal values keep their order.

    Records without a value come first. All records must be passed to `show` before the first is placed. Each record
    takes 8 bytes of memory, plus at most 128 bytes for its value until `end` is called.

    Raises: as for `Age`.
    """

    def __init__(self, name: str, schema: Mapping[str, Any] | None, path: str) -> None:
        self._value = Age(name, schema, path, argument="sort_by")
        # NumPy ignores zero bytes at the end of a value, so records whose values differ only in such bytes keep their
        # order.
        self._values: list[NDArray[np.bytes_]] = []
        self._ranks: NDArray[np.int64] | None = None

    def show(self, records: Sequence[bytes]) -> None:
        """Remember the values of the next records. Blocks."""
        values = (self._value.value(features_in(each)) or b"" for each in records)
        self._values.append(np.array([value[:_VALUE_BYTES] for value in values], np.bytes_))

    def end(self) -> None:
        """Compute the places, after all records have been passed to `show`. Blocks.

        Raises:
            ValueError: the data set has no schema, and no record has the feature.
        """
        values = np.concatenate([np.empty(0, np.bytes_), *self._values])
        self._values.clear()
        if len(values):
            self._value.end(f", among the {len(values):,} records of a new shard")
        self._ranks = np.empty(len(values), np.int64)
        self._ranks[np.argsort(values, kind="stable")] = np.arange(len(values))

    def group(self, record: bytes) -> bytes | None:
        return None

    def place(self, number: int, group: bytes | None) -> bytes:
        assert self._ranks is not None, "end was called"
        rank = int(self._ranks[number])
        return (rank * (1 << 64) // len(self._ranks)).to_bytes(8, "big") + rank.to_bytes(8, "big")


class _Placing(HashShuffler):
    """A shuffler that sorts by the keys themselves, which are places, rather than by digests of the keys."""

    def digest(self, key: object) -> bytes:
        assert isinstance(key, bytes), "every key is a place"
        return key


class Sorter:
    """Sorts records by their places. Its methods block.

    Args:
        key_bytes: the number of bytes of digests that are stored before each record.
    """

    def __init__(
        self,
        order: Order | ByFeature,
        *,
        key_bytes: int,
        memory_limit: int,
        temporary_folder: str | os.PathLike[str] | None,
    ) -> None:
        self._order = order
        self._key_bytes = key_bytes
        # Places are distinct. Unlike "raise", "last" does not check for duplicates while records are added.
        self._shuffler = _Placing("", memory_limit=memory_limit, temporary_folder=temporary_folder, on_duplicate="last")
        self.records = 0
        self.grouped = 0

    @property
    def spilled_bytes(self) -> int:
        return self._shuffler.spilled_bytes

    def add(self, batch: KeyedBatch) -> None:
        for at, record in enumerate(batch.records):
            group = self._order.group(record)
            self.grouped += group is not None
            place = self._order.place(self.records, group)
            self._shuffler.add(place, batch.keys[at].ljust(self._key_bytes, b"\0") + record if batch.keys else record)
            self.records += 1

    def batches(self) -> Iterator[KeyedBatch]:
        width = self._key_bytes
        for records in self._shuffler.batches():
            if width:
                yield KeyedBatch([each[width:] for each in records], [each[:width] for each in records])
            else:
                yield KeyedBatch(records)

    def close(self) -> None:
        self._shuffler.close()


class Sorted:
    """An async iterator over a sorter's batches. Each batch is created in a worker thread."""

    def __init__(self, sorter: Sorter) -> None:
        self._batches = sorter.batches()

    def __aiter__(self) -> Sorted:
        return self

    async def __anext__(self) -> KeyedBatch:
        batch: KeyedBatch | None = await in_thread(next, self._batches, None)
        if batch is None:
            raise StopAsyncIteration
        return batch
