"""`Identities` say which records are the same, by content, key or a feature, and group them in bounded memory.

Each record is a row of a table: 16 bytes that stand for what it is known by, 8 for its content, its number and which
side it is of. Beyond the memory limit rows go to files by their first byte, and are grouped file by file.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import AsyncExitStack
from typing import Any

import numpy as np
from numpy.typing import NDArray

from asyncrec._concurrency.tasks import in_thread
from asyncrec._shards.writing.keys import NO_KEY, key_digests
from asyncrec._shards.writing.ordered_writer import KeyedBatch
from asyncrec.errors import ArgumentValueError, DatasetError, DecodeError
from asyncrec.example._wire import NONE, parse_example
from asyncrec.tools._conditions import features_of, unknown_feature
from asyncrec.tools._keyed_records import KeyedRecords, has_keys
from asyncrec.tools._parameters import Progress
from asyncrec.tools._selection import Selection

CONTENT, KEY = "content", "key"
"""What a record is known by, beside the name of a feature."""

Rows = NDArray[Any]

_ROW = np.dtype([("high", "<u8"), ("low", "<u8"), ("content", "<u8"), ("number", "<i8"), ("side", "<i8")])
# Held before rows go to files: 1.6 million of them.
_MEMORY = 64 << 20


def check_by(by: str) -> None:
    """Refuse what no record is known by, before anything is opened.

    Raises:
        ValueError: it is not as `Identities` takes it.
    """
    if by not in (CONTENT, KEY) and not by.startswith("feature:"):
        raise ArgumentValueError(f"by is 'content', 'key' or 'feature:NAME', not {by!r}")


class Identities:
    """A table of the records that were read. A context: its files are gone at the end. Its methods block.

    Args:
        by: ``"content"``, ``"key"``, or the name of a feature, after ``"feature:"`` (`check_by`).
    """

    def __init__(self, by: str, *, temporary_folder: str | None = None) -> None:
        self._by = by
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
        """Take in all records of a selection; returns how many there are.

        Raises:
            DatasetError: by key, and it has none.
            ValueError: by a feature that no record has.
        """
        if self._by == KEY and not has_keys(selection):
            raise DatasetError(f"{selection.path}: its records have no keys to be known by; take their content")
        known = features_of(selection.schema)
        if self._feature is not None and known is not None and self._feature not in known:
            raise unknown_feature(self._feature, known, selection.path)
        async with AsyncExitStack() as stack:
            records = KeyedRecords(selection, stack, progress)
            async for batch in records:
                await in_thread(self._add, batch, records.given - len(batch.records), side)
        if self._feature is not None and records.given and self._feature not in self._seen:
            raise unknown_feature(self._feature, self._seen, selection.path)
        return records.given

    def groups(self) -> Iterator[Rows]:
        """All rows, in arrays; those of one identity are in the same one, side by side, by side and number."""
        if self._files is None:
            yield _grouped(self._held)
            return
        self._spill()
        for name in sorted(os.listdir(self._files.name)):
            yield _grouped([np.fromfile(os.path.join(self._files.name, name), _ROW)])

    def _add(self, batch: KeyedBatch, first: int, side: int) -> None:
        contents = np.frombuffer(b"".join(key_digests(batch.records)), "<u8").reshape(-1, 2)
        known: Sequence[bytes | None]
        if self._by == CONTENT:
            ids, numbers = contents, np.arange(len(batch.records))
        else:
            known = self._features(batch.records) if self._feature is not None else _keys(batch)
            numbers = np.array([at for at, each in enumerate(known) if each is not None], np.int64)
            ids = np.frombuffer(b"".join(each for each in known if each is not None), "<u8").reshape(-1, 2)
        rows = np.empty(len(numbers), _ROW)
        rows["high"], rows["low"] = ids[:, 0], ids[:, 1]
        rows["content"] = contents[numbers, 0]
        rows["number"], rows["side"] = numbers + first, side
        self._held.append(rows)
        self._size += rows.nbytes
        if self._size > _MEMORY:
            self._spill()

    def _features(self, records: Sequence[bytes]) -> list[bytes | None]:
        """What stands for each record's value of the feature; `None` where it has none."""
        assert self._feature is not None, "asked for"
        found: list[bytes | None] = []
        for record in records:
            try:
                features = parse_example(record)
            except DecodeError:
                features = {}
            self._seen.update(features)
            kind, payload = features.get(self._feature, (NONE, b""))
            if isinstance(payload, list):
                payload = b"".join(b"%d:%b" % (len(each), each) for each in payload)
            found.append(None if kind == NONE else key_digests([b"%d " % kind + bytes(payload)])[0])
        return found

    def _spill(self) -> None:
        if self._files is None:
            self._files = tempfile.TemporaryDirectory(prefix="asyncrec-identities-", dir=self._folder)
        rows = np.concatenate(self._held) if self._held else np.empty(0, _ROW)
        buckets = (rows["high"] >> np.uint64(56)).astype(np.int64)
        rows = rows[np.argsort(buckets, kind="stable")]
        ends = np.cumsum(np.bincount(buckets, minlength=256))
        for bucket in range(256):
            part = rows[ends[bucket - 1] if bucket else 0 : ends[bucket]]
            if len(part):
                with open(os.path.join(self._files.name, f"{bucket:02x}"), "ab") as file:
                    file.write(part.tobytes())
        self._held, self._size = [], 0


def _keys(batch: KeyedBatch) -> list[bytes | None]:
    """The keys of records; `None` where one was written without."""
    return [None if key == NO_KEY else key for key in batch.keys or [NO_KEY] * len(batch.records)]


def _grouped(parts: Sequence[Rows]) -> Rows:
    rows = np.concatenate(parts) if parts else np.empty(0, _ROW)
    order = np.lexsort((rows["number"], rows["side"], rows["low"], rows["high"]))
    return rows[order]
