"""`count` counts records, from manifests, from matching indexes, or by reading lengths."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from asyncrec._arguments import Size
from asyncrec._concurrency.map import side_by_side
from asyncrec._framing.frames import MAX_RECORD_BYTES
from asyncrec._records.index import RecordIndex
from asyncrec._sampling.random_access.indexes import read_index, scan_shard
from asyncrec._sampling.random_access.scan_manifest import unlisted_entry
from asyncrec._shards.manifest.segment import ShardEntry
from asyncrec.storage._base import Storage
from asyncrec.storage._prefixed import folder_at
from asyncrec.tools._conditions import Where
from asyncrec.tools._counts_by import CountedValue, CountsBy
from asyncrec.tools._parameters import Advance, Progress, at_once, check_jobs
from asyncrec.tools._selection import SelectedShard, Selection, selected

# The number of shards to read at once from a remote store. Each costs little if it has an index.
_FAR = 16


@dataclass(slots=True, kw_only=True)
class CountReport:
    """The result of `count`: the number of records in all, and in each shard.

    Attributes:
        by: the number of records with each value of the feature, the most frequent first; `None` stands for its
            absence.
    """

    path: str
    shards: list[tuple[str, int]] = field(default_factory=list)
    by: Mapping[CountedValue, int] | None = None

    @property
    def records(self) -> int:
        return sum(records for _, records in self.shards)

    def to_json(self) -> dict[str, Any]:
        return {
            "path": self.path,
            "records": self.records,
            "shards": [{"path": path, "records": records} for path, records in self.shards],
            "by": None if self.by is None else [{"value": value, "records": n} for value, n in self.by.items()],
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
    """Count records: from manifests, from valid indexes, or by reading lengths (payloads are not checked).

    Args:
        by: a feature by whose values the records are also counted; all records are read.
        where: count only records for which all of these conditions hold; all records are read.
        jobs: the number of files to read at once, each in a worker thread; by default the number of processors that
            this process may use, and at least 16 for a remote store. The counts and the errors are the same for any
            number.
        max_record_bytes: as for `asyncrec.open_reader`; longer records that a manifest allows are read in any case.

    Raises:
        ObjectNotFoundError, StoragePermissionError, ManifestError: as for `info`.
        FormatError: in a file without an index, a length or the compression is damaged.
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

            # Without a schema, the first records decide whether there is any feature to select by.
            tasks = at_once(jobs, selection.storage) if counting.side_by_side else 1
            counts = await side_by_side(look, selection.shards, tasks=tasks)
            values = counting.end()
        paths = [shard.display_path for shard in selection.shards]
    return CountReport(path=selection.path, shards=list(zip(paths, counts, strict=True)), by=values)


async def counts_of(
    selection: Selection, advance: Callable[[int], None] = lambda size: None, *, jobs: int | None = None
) -> list[int]:
    """Return the number of records of each shard, in order: from its manifest, or otherwise from `counted`."""

    async def look(shard: SelectedShard) -> int:
        records = shard.entry.records if shard.entry else await counted(selection, shard)
        advance(shard.size)
        return records

    return await side_by_side(look, selection.shards, tasks=at_once(jobs, selection.storage, far=_FAR))


async def counted(selection: Selection, shard: SelectedShard) -> int:
    """Return the number of records of a shard, by its index or by reading it."""
    folder, entry, index = await _looked_up(selection, shard)
    if index is not None:
        return len(index)
    return (await scan_shard(folder, entry, sizes=False, max_record_bytes=shard.max_record_bytes)).records


async def counted_by_index(selection: Selection, shard: SelectedShard) -> int | None:
    """Return the number of records of a shard, from its index; `None` if it has no index."""
    _, _, index = await _looked_up(selection, shard)
    return None if index is None else len(index)


async def _looked_up(selection: Selection, shard: SelectedShard) -> tuple[Storage, ShardEntry, RecordIndex | None]:
    folder = folder_at(selection.storage, shard.folder)
    entry, _ = await unlisted_entry(selection.storage, shard.key, path=shard.name)
    return folder, entry, await read_index(folder, entry, count_known=False)
