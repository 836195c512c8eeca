"""`Identities` say which records are the same, by content, key or a feature, and group them in bounded memory.

Each record is a row of a table: a digest of its identity (16 bytes) and of its content (8), its number, and its
side. Beyond the memory limit rows go to files by their first byte, and are grouped file by file.
"""

from __future__ import annotations

import os
import struct
import tempfile
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack
from typing import Any

import numpy as np
from numpy.typing import NDArray

from asyncrec._concurrency.tasks import in_thread
from asyncrec._shards.writing.keys import NO_KEY, key_digests
from asyncrec._shards.writing.ordered_writer import KeyedBatch
from asyncrec.errors import ArgumentValueError, DatasetError, DecodeError
from asyncrec.example._wire import BYTES, INT64, NONE, parse_example
from asyncrec.tools._conditions import features_of, unknown_feature, values_of
from asyncrec.tools._keyed_records import KeyedRecords, has_keys
from asyncrec.tools._parameters import Progress
from asyncrec.tools._selection import Selection

CONTENT, KEY = "content", "key"
"""What a record is known by, besides the name of a feature."""

Rows = NDArray[Any]
Features = Mapping[str, tuple[int, bytes | list[bytes]]]

# Bytes of a row for a record's age: a number, or a time as text.
_AGE_BYTES = 32
_PLAIN = [("high", "<u8"), ("low", "<u8"), ("content", "<u8"), ("number", "<i8"), ("side", "<i8")]
_ROW, _AGED_ROW = np.dtype(_PLAIN), np.dtype([*_PLAIN, ("age", f"S{_AGE_BYTES}")])
# Held before rows go to files: 1.6 million of them.
_MEMORY = 64 << 20


def check_by(by: str) -> None:
    """Check ``by`` before any file is opened.

    Raises:
        ValueError: `Identities` does not accept it.
    """
    if by not in (CONTENT, KEY) and not by.startswith("feature:"):
        raise ArgumentValueError(f"by must be 'content', 'key' or 'feature:NAME', not {by!r}")


class Identities:
    """A table of the records that were read. It is a context manager, which removes its files. Its methods block.

    Args:
        by: ``"content"``, ``"key"``, or the name of a feature, after ``"feature:"`` (`check_by`).
        newest_by: the feature that is the age of a record. Rows then have a member ``age``, in the same order.
        ignore: features that do not count as part of a record's content.
    """

    def __init__(
        self,
        by: str,
        *,
        newest_by: str | None = None,
        ignore: Collection[str] = (),
        temporary_folder: str | None = None,
    ) -> None:
        self._by = by
        self._age = newest_by
        self._row = _ROW if newest_by is None else _AGED_ROW
        self._ignored = sorted(set(ignore))
        self._feature = by.removeprefix("feature:") if by.startswith("feature:") else None
        self._folder = temporary_folder
        self._files: tempfile.TemporaryDirectory[str] | None = None
        self._held: list[Rows] = []
        self._size = 0
        self._seen: set[str] = set()

    def __enter__(self) -> Identities:
        return self

    def __exit__(self, *error: object) -> None:
        if self._files is not None:
            self._files.cleanup()

    async def read(self, selection: Selection, side: int, progress: Progress) -> int:
        """Add all records of a selection to the table, and return how many there are.

        Raises:
            DatasetError: ``by`` is the key, but the selection has no keys.
            ValueError: no record has the feature of ``by``, or one of ``ignore``.
        """
        if self._by == KEY and not has_keys(selection):
            raise DatasetError(f"{selection.path}: the records have no keys; compare them by content instead")
        known = features_of(selection.schema)
        named = [*self._ignored, *(name for name in (self._feature, self._age) if name is not None)]
        if known is not None and (unknown := [name for name in named if name not in known]):
            raise unknown_feature(unknown[0], known, selection.path)
        async with AsyncExitStack() as stack:
            records = KeyedRecords(selection, stack, progress)
            async for batch in records:
                await in_thread(self._add, batch, records.given - len(batch.records), side)
        for name in named if records.given and known is None else ():
            if name not in self._seen:
                raise unknown_feature(name, self._seen, selection.path)
        return records.given

    def groups(self) -> Iterator[Rows]:
        """Yield all rows, in arrays. Rows of one identity are neighbours in one array, ordered by side and number."""
        if self._files is None:
            yield _grouped([np.empty(0, self._row), *self._held])
            return
        self._spill()
        for name in sorted(os.listdir(self._files.name)):
            yield _grouped([np.fromfile(os.path.join(self._files.name, name), self._row)])

    def _add(self, batch: KeyedBatch, first: int, side: int) -> None:
        parsed = self._parsed(batch.records) if self._feature or self._age or self._ignored else []
        texts = [self._without_ignored(features) for features in parsed] if self._ignored else batch.records
        contents = np.frombuffer(b"".join(key_digests(texts)), "<u8").reshape(-1, 2)
        known: Sequence[bytes | None]
        if self._by == CONTENT:
            ids, numbers = contents, np.arange(len(batch.records))
        else:
            known = [self._value(each) for each in parsed] if self._feature is not None else _keys(batch)
            numbers = np.array([at for at, each in enumerate(known) if each is not None], np.int64)
            ids = np.frombuffer(b"".join(each for each in known if each is not None), "<u8").reshape(-1, 2)
        rows = np.empty(len(numbers), self._row)
        rows["high"], rows["low"] = ids[:, 0], ids[:, 1]
        rows["content"] = contents[numbers, 0]
        rows["number"], rows["side"] = numbers + first, side
        if self._age is not None:
            rows["age"] = [_age(self._age, parsed[at]) for at in numbers.tolist()]
        self._held.append(rows)
        self._size += rows.nbytes
        if self._size > _MEMORY:
            self._spill()

    def _parsed(self, records: Sequence[bytes]) -> list[Features]:
        found = [features_in(record) for record in records]
        for features in found:
            self._seen.update(features)
        return found

    def _value(self, features: Features) -> bytes | None:
        """Return a digest of a record's value of the feature; `None` if it has no value."""
        assert self._feature is not None, "asked for"
        kind, payload = features.get(self._feature, (NONE, b""))
        return None if kind == NONE else key_digests([_text_of(kind, payload)])[0]

    def _without_ignored(self, features: Features) -> bytes:
        """Return bytes that represent a record's content without the ignored features."""
        parts = ((name.encode(), _text_of(*features[name])) for name in sorted(features.keys() - set(self._ignored)))
        return b"".join(b"%d:%d:%b%b" % (len(name), len(text), name, text) for name, text in parts)

    def _spill(self) -> None:
        if self._files is None:
            self._files = tempfile.TemporaryDirectory(prefix="asyncrec-identities-", dir=self._folder)
        rows = np.concatenate([np.empty(0, self._row), *self._held])
        buckets = (rows["high"] >> np.uint64(56)).astype(np.int64)
        rows = rows[np.argsort(buckets, kind="stable")]
        ends = np.cumsum(np.bincount(buckets, minlength=256))
        for bucket in range(256):
            part = rows[ends[bucket - 1] if bucket else 0 : ends[bucket]]
            if len(part):
                with open(os.path.join(self._files.name, f"{bucket:02x}"), "ab") as file:
                    file.write(part.tobytes())
        self._held, self._size = [], 0


def features_in(record: bytes) -> Features:
    """Return the encoded features of a record; empty if it is not an Example."""
    try:
        return parse_example(record)
    except DecodeError:
        return {}


def _keys(batch: KeyedBatch) -> list[bytes | None]:
    """Return the keys of records; `None` if one was written without a key."""
    return [None if key == NO_KEY else key for key in batch.keys or [NO_KEY] * len(batch.records)]


def _text_of(kind: int, payload: bytes | list[bytes]) -> bytes:
    if isinstance(payload, list):
        payload = b"".join(b"%d:%b" % (len(each), each) for each in payload)
    return b"%d " % kind + bytes(payload)


def _age(name: str, features: Features) -> bytes:
    """Return the value of a feature as bytes that sort in its order; empty bytes, which sort first, without a value.

    Raises:
        ValueError: the feature has several values, or a long text.
    """
    kind, payload = features.get(name, (NONE, b""))
    values = () if kind == NONE else values_of(kind, payload)
    if len(values) > 1:
        raise ArgumentValueError(
            f"the feature {name!r} has {len(values):,} values; newest-by needs a single value per record"
        )
    if not len(values) or values[0] != values[0]:
        return b""
    if kind == BYTES:
        if len(values[0]) > _AGE_BYTES:
            raise ArgumentValueError(
                f"the feature {name!r} is a text of {len(values[0]):,} bytes; newest-by needs a number, "
                f"or a time as text of at most {_AGE_BYTES} bytes"
            )
        return bytes(values[0])
    if kind == INT64:
        return struct.pack(">Q", values[0] + (1 << 63))
    (bits,) = struct.unpack(">Q", struct.pack(">d", values[0] + 0.0))
    return struct.pack(">Q", bits ^ ((1 << 64) - 1 if bits >> 63 else 1 << 63))


def _grouped(parts: Sequence[Rows]) -> Rows:
    rows = np.concatenate(parts)
    order = np.lexsort((rows["number"], rows["side"], rows["low"], rows["high"]))
    return rows[order]
