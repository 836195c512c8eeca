"""`index`: where each record begins, written where readers look for it.

layout       written to                       read by
asyncrec     _index/<shard>.index             asyncrec's random access
tfrecord     <shard without suffix>.tfindex   tfrecord (tfrecord2idx writes the same)
dali         <shard>.idx                      NVIDIA DALI, by a path given to it (tfrecord2idx writes the same)
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from asyncrec._concurrency.map import concurrently
from asyncrec._concurrency.tasks import in_thread
from asyncrec._records.index import RecordIndex
from asyncrec._sampling.random_access.indexes import make_index, read_index
from asyncrec._sampling.random_access.scan_manifest import unlisted_entry
from asyncrec._sampling.random_access.shard_files import ShardFiles
from asyncrec._shards.manifest.names import index_key
from asyncrec._shards.manifest.segment import ShardEntry
from asyncrec.errors import ArgumentValueError, ObjectNotFoundError
from asyncrec.storage._base import Storage
from asyncrec.storage._prefixed import folder_at
from asyncrec.tools._progress import Advance, Progress
from asyncrec.tools._selection import SelectedShard, Selection, selected

__all__ = ["LAYOUTS", "IndexReport", "index"]

LAYOUTS = ("asyncrec", "tfrecord", "dali")

# Each holds the numbers and the text of one index.
_CONCURRENT = 4


@dataclass(slots=True, kw_only=True)
class IndexReport:
    """What was done: paths of the indexes made, of those that were there and fit, and why a shard has none."""

    path: str
    made: list[str] = field(default_factory=list)
    kept: list[str] = field(default_factory=list)
    refused: list[tuple[str, str]] = field(default_factory=list)

    def to_json(self) -> dict[str, Any]:
        return {
            "path": self.path,
            "made": self.made,
            "kept": self.kept,
            "refused": [{"path": path, "reason": reason} for path, reason in self.refused],
        }


async def index(
    path: str | os.PathLike[str],
    *,
    layout: str = "asyncrec",
    force: bool = False,
    progress: Progress = lambda done, total: None,
    storage: Storage | None = None,
    storage_options: Mapping[str, Any] | None = None,
) -> IndexReport:
    """Make the index of every shard that has none, by reading its lengths; with ``force``, of every shard.

    Those of asyncrec are kept where they fit their shard, others where they exist. tfrecord and DALI read no compressed
    files, so such a shard is refused there.

    Raises:
        FormatError: a shard is damaged where its lengths or its compression are.
        ValueError: there is no such layout.
    """
    if layout not in LAYOUTS:
        raise ArgumentValueError(f"layout is one of {', '.join(LAYOUTS)}, not {layout!r}")
    async with selected(path, storage=storage, storage_options=storage_options) as selection:
        report = IndexReport(path=selection.path)
        advance = Advance(progress, selection.bytes)

        async def one(shard: SelectedShard) -> None:
            await _index(selection, shard, layout, force, report)
            advance(shard.size)

        await concurrently(one, selection.shards, tasks=_CONCURRENT)
    report.made.sort()
    report.kept.sort()
    report.refused.sort()
    return report


async def _index(selection: Selection, shard: SelectedShard, layout: str, force: bool, report: IndexReport) -> None:
    folder = folder_at(selection.storage, shard.folder)
    entry = shard.entry
    if entry is None:
        entry, _ = await unlisted_entry(selection.storage, shard.key, path=shard.name)
    if layout != "asyncrec" and entry.compression:
        report.refused.append(
            (shard.display_path, f"it is compressed ({entry.compression}), which {layout} does not read")
        )
        return
    key = _key(shard, entry, layout)
    display_path = selection.base + shard.folder + key
    if not force and await _is_there(folder, entry, key, layout, counted=shard.entry is not None):
        report.kept.append(display_path)
        return
    made = await make_index(ShardFiles(folder, [entry], None), 0)
    await folder.put(key, await in_thread(RecordIndex.encode, made))
    report.made.append(display_path)


def _key(shard: SelectedShard, entry: ShardEntry, layout: str) -> str:
    if layout == "asyncrec":
        return index_key(entry.path) if entry.index is None else entry.index.path
    return os.path.splitext(shard.name)[0] + ".tfindex" if layout == "tfrecord" else shard.name + ".idx"


async def _is_there(folder: Storage, entry: ShardEntry, key: str, layout: str, *, counted: bool) -> bool:
    if layout == "asyncrec":
        return await read_index(folder, entry, count_known=counted) is not None
    try:
        await folder.head(key)
    except ObjectNotFoundError:
        return False
    return True
