"""`count` says how many records there are, by manifests, by indexes that fit, or by reading lengths."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from asyncrec._concurrency.map import for_each
from asyncrec._records.index import RecordIndex
from asyncrec._sampling.random_access.indexes import make_index, read_index
from asyncrec._sampling.random_access.scan_manifest import unlisted_entry
from asyncrec._sampling.random_access.shard_files import ShardFiles
from asyncrec._shards.manifest.segment import ShardEntry
from asyncrec.storage._base import Storage
from asyncrec.storage._prefixed import folder_at
from asyncrec.tools._progress import Advance, Progress
from asyncrec.tools._selection import SelectedShard, Selection, selected

__all__ = ["CountReport", "count", "counted", "counted_by_index", "counts_of"]

# At once: enough to hide a store's delays.
_CONCURRENT = 16


@dataclass(slots=True, kw_only=True)
class CountReport:
    """How many records there are, and how many in each shard."""

    path: str
    shards: list[tuple[str, int]] = field(default_factory=list)

    @property
    def records(self) -> int:
        return sum(records for _, records in self.shards)

    def to_json(self) -> dict[str, Any]:
        return {
            "path": self.path,
            "records": self.records,
            "shards": [{"path": path, "records": records} for path, records in self.shards],
        }


async def count(
    path: str | os.PathLike[str],
    *,
    progress: Progress = lambda done, total: None,
    storage: Storage | None = None,
    storage_options: Mapping[str, Any] | None = None,
) -> CountReport:
    """How many records: as manifests say, by indexes that fit, or else by reading lengths (payloads are not checked).

    Raises:
        ObjectNotFoundError, StoragePermissionError, ManifestError: as `info`.
        FormatError: a file without an index is damaged where its lengths or its compression are.
    """
    async with selected(path, storage=storage, storage_options=storage_options) as selection:
        counts = await counts_of(selection, Advance(progress, selection.bytes))
        paths = [shard.display_path for shard in selection.shards]
    return CountReport(path=selection.path, shards=list(zip(paths, counts, strict=True)))


async def counts_of(selection: Selection, advance: Callable[[int], None] = lambda size: None) -> list[int]:
    """The records of each shard, in order: as its manifest says, or else as `counted`."""

    async def look(shard: SelectedShard) -> int:
        records = shard.entry.records if shard.entry else await counted(selection, shard)
        advance(shard.size)
        return records

    return await for_each(look, selection.shards, tasks=_CONCURRENT)


async def counted(selection: Selection, shard: SelectedShard) -> int:
    """The records of a shard, by its index or by reading it."""
    folder, entry, index = await _looked_up(selection, shard)
    return len(index if index is not None else await make_index(ShardFiles(folder, [entry], None), 0))


async def counted_by_index(selection: Selection, shard: SelectedShard) -> int | None:
    """The records of a shard, without reading it; `None` where it has no index."""
    _, _, index = await _looked_up(selection, shard)
    return None if index is None else len(index)


async def _looked_up(selection: Selection, shard: SelectedShard) -> tuple[Storage, ShardEntry, RecordIndex | None]:
    folder = folder_at(selection.storage, shard.folder)
    entry, _ = await unlisted_entry(selection.storage, shard.key, path=shard.name)
    return folder, entry, await read_index(folder, entry, count_known=False)
