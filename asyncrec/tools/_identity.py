"""`Identities` finds records with equal content, keys or values of a feature, and groups them in bounded memory.

Each record is a row of a table: a digest of its identity (16 bytes), a digest of its content (8 bytes), its number, and
its side (`diff` compares two). If the rows exceed the memory limit, they are distributed over files by the first byte
of the identity, and the files are grouped one at a time.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack

import numpy as np

from asyncrec._concurrency.tasks import in_thread
from asyncrec._records.writing.write_batch import KEY_BYTES
from asyncrec._sampling.random_access.row_table import Rows, RowTable, by_digest
from asyncrec._shards.writing.keys import NO_KEY, key_digests
from asyncrec._shards.writing.ordered_writer import KeyedBatch
from asyncrec.errors import ArgumentValueError, DatasetError, DecodeError
from asyncrec.example._age import AGE_BYTES, Age
from asyncrec.example._by_name import features_in, features_of, unknown_feature
from asyncrec.example._wire import NONE, Raw, parse_beside_features
from asyncrec.tools._keyed_records import KeyedRecords
from asyncrec.tools._parameters import Progress
from asyncrec.tools._selection import Selection
from asyncrec.tools._shards_in_turn import has_keys

CONTENT, KEY = "content", "key"
"""The values of ``by`` other than the name of a feature."""

Features = Mapping[str, Raw]

# What remains of an Example without features.
_EMPTY_EXAMPLES = (b"", b"\n\0")
_PLAIN = [("high", "<u8"), ("low", "<u8"), ("content", "<u8"), ("number", "<i8"), ("side", "<i8")]
_ROW, _AGED_ROW = np.dtype(_PLAIN), np.dtype([*_PLAIN, ("age", f"S{AGE_BYTES}")])
# If all rows take more memory than this (about 1.6 million rows), they are written to files.
_MEMORY = 64 << 20


def check_by(by: str) -> None:
    """Check ``by`` before any file is opened.

    Raises:
        ValueError: `Identities` does not accept ``by``.
    """
    if by not in (CONTENT, KEY) and not by.startswith("feature:"):
        raise ArgumentValueError(f"by must be 'content', 'key' or 'feature:NAME', not {by!r}")


class Identities:
    """A table of the records that were read. An async context manager that deletes its files on exit.

    Except for `read`, its methods block.

    Args:
        by: ``"content"``, ``"key"``, or ``"feature:"`` and the name of a feature (`check_by`).
        newest_by: a feature by whose values records are older or newer. If it is passed, each row has a field ``age``,
            and sorting by this field sorts by age.
        ignore: features that are not part of a record's content in comparisons.
        every: also add records without a key, or without the feature in ``by``. Such records are equal if their
            contents are.
    """

    def __init__(
        self,
        by: str,
        *,
        newest_by: str | None = None,
        ignore: Collection[str] = (),
        every: bool = False,
        temporary_folder: str | None = None,
    ) -> None:
        self._by = by
        self._newest_by = newest_by
        self._age: Age | None = None
        self._row = _ROW if newest_by is None else _AGED_ROW
        self._ignored = sorted(set(ignore))
        self._every = every
        self._feature = by.removeprefix("feature:") if by.startswith("feature:") else None
        self._rows = RowTable(self._row, by_digest, memory=_MEMORY, folder=temporary_folder)
        self._seen: set[str] = set()

    async def __aenter__(self) -> Identities:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self._rows.__aexit__(*error)

    async def read(self, selection: Selection, side: int, progress: Progress) -> int:
        """Add all records of a selection to the table, and return the number of records read.

        Raises:
            DatasetError: ``by`` is ``"key"``, but the selection has no keys.
            ValueError: no record has the feature named by ``by``, or a feature in ``ignore``.
        """
        if self._by == KEY and not has_keys(selection):
            raise DatasetError(f"{selection.path}: the records have no keys; compare them by content instead")
        known = features_of(selection.schema)
        if self._newest_by is not None:
            self._age = Age(self._newest_by, selection.schema, selection.path)
        named = [*self._ignored, *([] if self._feature is None else [self._feature])]
        if known is not None and (unknown := [name for name in named if name not in known]):
            raise unknown_feature(unknown[0], known, selection.path)
        async with AsyncExitStack() as stack:
            records = KeyedRecords(selection, stack, progress)
            async for batch in records:
                await in_thread(self._add, batch, records.given - len(batch.records), side)
        for name in named if records.given and known is None else ():
            if name not in self._seen:
                raise unknown_feature(name, self._seen, selection.path)
        if records.given and self._age is not None:
            self._age.end()
        return records.given

    def groups(self) -> Iterator[Rows]:
        """Yield all rows in arrays. Rows with equal identities are adjacent in one array, sorted by side and number."""
        for rows in self._rows.groups():
            yield rows[np.lexsort((rows["number"], rows["side"], rows["low"], rows["high"]))]

    def _add(self, batch: KeyedBatch, first: int, side: int) -> None:
        parsed = self._parsed(batch.records) if self._feature or self._age or self._ignored else []
        texts: Sequence[bytes] = batch.records
        if self._ignored:
            texts = [self._without_ignored(*pair) for pair in zip(batch.records, parsed, strict=True)]
        contents = np.frombuffer(b"".join(key_digests(texts)), "<u8").reshape(-1, 2)
        known: Sequence[bytes | None]
        if self._by == CONTENT:
            ids, numbers = contents, np.arange(len(batch.records))
        else:
            known = [self._value(each) for each in parsed] if self._feature is not None else _keys(batch)
            if self._every and None in known:
                others = key_digests([b"without " + text for text in texts])
                known = [other if each is None else each for each, other in zip(known, others, strict=True)]
            numbers = np.array([at for at, each in enumerate(known) if each is not None], np.int64)
            ids = np.frombuffer(b"".join(each for each in known if each is not None), "<u8").reshape(-1, 2)
        rows = np.empty(len(numbers), self._row)
        rows["high"], rows["low"] = ids[:, 0], ids[:, 1]
        rows["content"] = contents[numbers, 0]
        rows["number"], rows["side"] = numbers + first, side
        if self._age is not None:
            rows["age"] = [self._age.of(parsed[at]) for at in numbers.tolist()]
        self._rows.add(rows)

    def add_digests(self, digests: bytes, first: int) -> None:
        """Add records by the digests of their keys only. ``first`` is the number of the first record."""
        ids = np.frombuffer(digests, "<u8").reshape(-1, 2)
        numbers = np.flatnonzero(ids.any(axis=1))  # a digest of zeros means that the record has no key
        rows = np.zeros(len(numbers), self._row)
        rows["high"], rows["low"] = ids[numbers, 0], ids[numbers, 1]
        rows["number"] = numbers + first
        self._rows.add(rows)

    def _parsed(self, records: Sequence[bytes]) -> list[Features]:
        found = [features_in(record) for record in records]
        for features in found:
            self._seen.update(features)
        return found

    def _value(self, features: Features) -> bytes | None:
        """Return a digest of the feature's values in a record, or `None` if the record has no values."""
        assert self._feature is not None, "called only with a feature"
        kind, payload = features.get(self._feature, (NONE, b""))
        return key_digests([_text_of(kind, payload)])[0] if payload else None

    def _without_ignored(self, record: bytes, features: Features) -> bytes:
        """Return bytes that represent a record's content without the ignored features.

        A record that is not an Example has no features, so its bytes are its content.
        """
        raw = b"raw " + record
        if not features and record not in _EMPTY_EXAMPLES:
            return raw
        try:
            lists, unknown = parse_beside_features(record)
        except DecodeError:
            return raw
        kept = {name: _text_of(*features[name]) for name in features.keys() - set(self._ignored)}
        steps = {name: _joined(_text_of(*step) for step in lists[name]) for name in lists}
        return _joined(
            [*(_joined([name.encode(), part[name]]) for part in (kept, steps) for name in sorted(part)), unknown]
        )


def _keys(batch: KeyedBatch) -> list[bytes | None]:
    """Return the digest of each record's key, or `None` for a record that was written without a key."""
    return [None if key == NO_KEY else key for key in _keys_in(batch)]


def _keys_in(batch: KeyedBatch) -> list[bytes]:
    """Return the digests of the keys, without the digests of the contents."""
    return [NO_KEY] * len(batch.records) if batch.keys is None else [each[:KEY_BYTES] for each in batch.keys]


def _text_of(kind: int, payload: bytes | list[bytes]) -> bytes:
    return b"%d " % kind + (_joined(payload) if isinstance(payload, list) else bytes(payload))


def _joined(parts: Iterable[bytes]) -> bytes:
    """Join the parts unambiguously into one text."""
    return b"".join(b"%d:%b" % (len(each), each) for each in parts)
