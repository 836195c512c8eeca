"""`ClassCounts` counts the records of a growing data set by a feature's value, in the first records of each shard."""

from __future__ import annotations

from collections import Counter

import numpy as np

from asyncrec._concurrency.tasks import in_thread
from asyncrec._records.reading.reader import open_reader_in
from asyncrec._shards.manifest.manifest import Manifest
from asyncrec._shards.manifest.segment import ShardEntry
from asyncrec.errors import DecodeError, FormatError, ObjectNotFoundError
from asyncrec.example._by_name import features_of, unknown_feature
from asyncrec.example._codec import decode_example
from asyncrec.storage._base import Storage

# The records to read of each shard, so that a look takes a moment and does not disturb the writers.
_RECORDS = 1000
# The shards to read at one look, the newest first.
_SHARDS = 4
# The values to count. A feature with more values, such as a URL, is not a class; the rest is one count.
_VALUES = 1000
_SHOWN = 20
_LONGEST = 40
_OTHERS = "others"


class ClassCounts:
    """The counts of the records read so far, by the value of ``feature``."""

    def __init__(self, feature: str) -> None:
        self._feature = feature
        self._counts: Counter[str] = Counter()
        self._seen: set[str] = set()

    async def count(self, folder: Storage, manifest: Manifest) -> None:
        """Read the newest of the shards that have not been read.

        Raises:
            ValueError: the data set's schema does not have the feature.
        """
        known = features_of(manifest.schema)
        if known is not None and self._feature not in known:
            raise unknown_feature(self._feature, known, manifest.path)
        new = await in_thread(self._new, manifest)
        for entry in new[:_SHARDS]:
            try:
                async with open_reader_in(folder, entry.path, max_record_bytes=entry.max_record_bytes) as reader:
                    left = _RECORDS
                    while left > 0 and (batch := await reader.next_batch()):
                        await in_thread(self._add, batch.records[:left])
                        left -= len(batch.records)
            except (FormatError, ObjectNotFoundError):
                continue  # `verify` reports damage; or the shard was replaced meanwhile

    def most(self) -> dict[str, int]:
        """Return the most frequent values, and how often each occurs."""
        return dict(self._counts.most_common(_SHOWN))

    def _new(self, manifest: Manifest) -> list[ShardEntry]:
        new = [entry for entry in manifest.shards if entry.path not in self._seen]
        self._seen = {entry.path for entry in manifest.shards}
        return sorted(new, key=lambda entry: entry.committed or "", reverse=True)

    def _add(self, records: list[bytes]) -> None:
        for record in records:
            value = self._value(record)
            if value not in self._counts and len(self._counts) >= _VALUES:
                value = _OTHERS
            self._counts[value] += 1

    def _value(self, record: bytes) -> str:
        try:
            values = decode_example(record).get(self._feature)
        except DecodeError:
            return "not an Example"
        if values is None:
            return "absent"
        first = values[0] if isinstance(values, list | np.ndarray) and len(values) else values
        text = first.decode(errors="backslashreplace") if isinstance(first, bytes) else str(first)
        return text if len(text) <= _LONGEST else text[: _LONGEST - 1] + "…"
