"""`count` counts records from manifests, from valid indexes, or by reading the lengths of the records."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from asyncrec._arguments import Size
from asyncrec._concurrency.map import side_by_side
from asyncrec._concurrency.tasks import in_thread
from asyncrec._framing.frames import MAX_RECORD_BYTES
from asyncrec._records.index import RecordIndex
from asyncrec._sampling.random_access.indexes import read_index, scan_shard
from asyncrec._sampling.random_access.scan_manifest import unlisted_entry
from asyncrec._shards.manifest.segment import ShardEntry
from asyncrec.errors import ArgumentValueError, DecodeError
from asyncrec.example._by_name import decoded_of, features_of, unknown_feature
from asyncrec.example._wire import NONE, parse_example
from asyncrec.storage._base import Storage
from asyncrec.storage._prefixed import folder_at
from asyncrec.tools._conditions import Conditions, Where
from asyncrec.tools._json_values import feature_to_json
from asyncrec.tools._parameters import Advance, Progress, at_once, check_jobs
from asyncrec.tools._selection import SelectedShard, Selection, selected
from asyncrec.tools._shard_reading import check_count, open_committed

# The number of shards to count at once in a remote store. Counting is cheap if a shard has an index.
_FAR = 16


@dataclass(slots=True, kw_only=True)
class CountReport:
    """The result of `count`: the number of records in total, and in each shard.

    Attributes:
        by: the values of the feature, the most frequent first, each with its number of records. A value has the form
            of JSON lines: an integer, a float, text, a list of several, or an object for values that JSON cannot
            represent; `None` counts the records without the feature.
    """

    path: str
    shards: list[tuple[str, int]] = field(default_factory=list)
    by: list[tuple[Any, int]] | None = None

    @property
    def records(self) -> int:
        return sum(records for _, records in self.shards)

    def to_json(self) -> dict[str, Any]:
        return {
            "path": self.path,
            "records": self.records,
            "shards": [{"path": path, "records": records} for path, records in self.shards],
            "by": None if self.by is None else [{"value": value, "records": n} for value, n in self.by],
        }


async def count(
    path: str | os.PathLike[str],
    *,
    by: str | None = None,
    where: Sequence[Where] = (),
    jobs: int | None = None,
    progress: Progress = lambda done, total: None,
    max_record_bytes: Size = MAX_RECORD_BYTES,
    storage: Storage | None = None,
    storage_options: Mapping[str, Any] | None = None,
) -> CountReport:
    """Count records from manifests, from valid indexes, or by reading lengths (payloads are not checked).

    Args:
        by: a feature by whose values records are also counted, which requires reading all records.
        where: count only records for which all of these conditions hold, which requires reading all records.
        jobs: the number of files to read at once, each in a worker thread; by default the number of processors that
            this process may use, and at least 16 for a remote store. The counts and the errors do not depend on it.
        max_record_bytes: as for `asyncrec.open_reader`; longer records that a manifest allows are always read.

    Raises:
        ObjectNotFoundError, StoragePermissionError, ManifestError: as for `info`.
        FormatError: in a file without an index, a length or the compression is damaged.
        ObjectChangedError: a shard that was read is not the one in its manifest.
        ValueError: ``jobs`` is less than 1; a feature does not exist, or ``by`` has more than 10,000 different values.
    """
    check_jobs(jobs)
    async with selected(
        path, max_record_bytes=max_record_bytes, storage=storage, storage_options=storage_options
    ) as selection:
        advance = Advance(progress, selection.bytes)
        values = None
        if by is None and not where:
            counts = await counts_of(selection, advance, jobs=jobs)
        else:
            counting = CountsBy(selection, by, where)

            async def look(shard: SelectedShard) -> int:
                records = await counting.count(shard)
                advance(shard.size)
                return records

            # Without a schema, count in order, because the first records show whether there are features to select by.
            tasks = at_once(jobs, selection.storage) if counting.side_by_side else 1
            counts = await side_by_side(look, selection.shards, tasks=tasks)
            values = counting.end()
        paths = [shard.display_path for shard in selection.shards]
    return CountReport(path=selection.path, shards=list(zip(paths, counts, strict=True)), by=values)


async def counts_of(
    selection: Selection, advance: Callable[[int], None] = lambda size: None, *, jobs: int | None = None
) -> list[int]:
    """Return the number of records in each shard, in order, from the manifest if it lists the shard or by `counted`."""

    async def look(shard: SelectedShard) -> int:
        records = shard.entry.records if shard.entry else await counted(selection, shard)
        advance(shard.size)
        return records

    return await side_by_side(look, selection.shards, tasks=at_once(jobs, selection.storage, far=_FAR))


async def counted(selection: Selection, shard: SelectedShard) -> int:
    """Return the number of records in a shard, from its index or, if it has none, by reading the shard."""
    folder, entry, index = await _looked_up(selection, shard)
    if index is not None:
        return len(index)
    return (await scan_shard(folder, entry, sizes=False, max_record_bytes=shard.max_record_bytes)).records


async def counted_by_index(selection: Selection, shard: SelectedShard) -> int | None:
    """Return the number of records in a shard according to its index, or `None` if it has no index."""
    _, _, index = await _looked_up(selection, shard)
    return None if index is None else len(index)


async def _looked_up(selection: Selection, shard: SelectedShard) -> tuple[Storage, ShardEntry, RecordIndex | None]:
    folder = folder_at(selection.storage, shard.folder)
    entry, _ = await unlisted_entry(selection.storage, shard.key, path=shard.name)
    return folder, entry, await read_index(folder, entry, count_known=False)


# A feature with more distinct values, such as a URL, is not a class. Counting this many short values takes a few
# megabytes of memory.
MOST_VALUES = 10_000
# The maximum number of feature names that an error message lists if there is no schema.
_MOST_NAMED = 30


class CountsBy:
    """Counts the records of a selection that meet all conditions, grouped by the feature ``by``, in bounded memory.

    Attributes:
        side_by_side: whether shards may be counted in any order.

    Raises:
        ValueError: the schema does not have the feature.
    """

    def __init__(self, selection: Selection, by: str | None, where: Sequence[Where]) -> None:
        self._selection = selection
        self._by = by
        self._known = features_of(selection.schema)
        if by is not None and self._known is not None and by not in self._known:
            raise unknown_feature(by, self._known, selection.path)
        self._conditions = Conditions(where, self._known, selection.path) if where else None
        self.side_by_side = self._conditions is None or self._known is not None
        self._counts: Counter[str | None] = Counter()  # by the JSON text of the value
        self._seen: dict[str, None] = {}

    async def count(self, shard: SelectedShard) -> int:
        """Count the records of a shard, and return how many meet the conditions.

        Raises:
            ValueError: there are more than `MOST_VALUES` different values, or a condition does not fit the feature.
            DatasetError, ObjectChangedError: the shard is not the one in the manifest.
        """
        found = read = 0
        async with open_committed(self._selection, shard) as reader:
            while batch := await reader.next_batch():
                read += len(batch.records)
                records, counts, seen = await in_thread(lambda: self._look(batch.records))
                found += records
                self._counts.update(counts)
                self._seen |= seen
                if len(self._counts) > MOST_VALUES:
                    raise ArgumentValueError(
                        f"{self._selection.path}: the feature {self._by!r} has more than {MOST_VALUES:,} different "
                        "values, which is too many to count by; choose another feature"
                    )
        check_count(shard, read)
        return found

    def end(self) -> list[tuple[Any, int]] | None:
        """Return each value and its count, with the most frequent value first, or `None` if ``by`` is `None`.

        Raises:
            ValueError: there were records, but none had the feature.
        """
        if self._conditions is not None:
            self._conditions.end()
        if self._by is None:
            return None
        if self._counts and set(self._counts) == {None} and self._known is None:
            raise unknown_feature(self._by, self._seen, self._selection.path)
        rows = sorted(self._counts.items(), key=lambda item: (-item[1], str(item[0])))
        return [(None if text is None else json.loads(text), records) for text, records in rows]

    def _look(self, records: list[bytes]) -> tuple[int, Counter[str | None], dict[str, None]]:
        """Parse and count the records. Blocks."""
        if self._conditions is not None:
            records = [records[at] for at in self._conditions.chosen(records)]
        found: Counter[tuple[int, Any]] = Counter()  # by the wire format, since most records share few values
        seen: dict[str, None] = {}
        for record in records if self._by is not None else ():
            try:
                features = parse_example(record)
            except DecodeError:
                features = {}
            if len(seen) < _MOST_NAMED:
                seen |= dict.fromkeys(features)
            kind, payload = features.get(self._by or "", (NONE, b""))
            found[kind, tuple(payload) if isinstance(payload, list) else payload] += 1
        counts: Counter[str | None] = Counter()
        for (kind, payload), number in found.items():
            values = decoded_of(kind, list(payload) if isinstance(payload, tuple) else payload)
            counts[json.dumps(feature_to_json(values)) if len(values) else None] += number
        return len(records), counts, seen
