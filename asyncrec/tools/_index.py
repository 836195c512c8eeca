"""`index` writes the offsets of a shard's records to the file in which readers expect them.

layout       written to                       read by
asyncrec     _index/<shard>.index             asyncrec's random access
tfrecord     <shard>.tfindex                  tfrecord, by a path passed to it (tfrecord2idx writes the same)
dali         <shard>.idx                      NVIDIA DALI, by a path passed to it (tfrecord2idx writes the same)

In the layout tfrecord, a final .tfrecord, .tfrecords or .tfrec is dropped from the shard's name.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from asyncrec._arguments import Size
from asyncrec._concurrency.map import side_by_side
from asyncrec._concurrency.tasks import in_thread
from asyncrec._framing.frames import MAX_RECORD_BYTES
from asyncrec._records.reading.frame_scan import FrameScan
from asyncrec._sampling.random_access.indexes import read_index, scan_shard
from asyncrec._sampling.random_access.scan_manifest import unlisted_entry
from asyncrec._shards.manifest.names import index_key
from asyncrec._shards.manifest.segment import ShardEntry
from asyncrec.errors import ArgumentValueError, ObjectNotFoundError
from asyncrec.storage._base import Storage
from asyncrec.storage._prefixed import folder_at
from asyncrec.tools._parameters import Advance, Progress, at_once, check_jobs
from asyncrec.tools._report_json import json_of
from asyncrec.tools._selection import SelectedShard, Selection, selected

LAYOUTS = ("asyncrec", "tfrecord", "dali")

_SUFFIX = re.compile(r"\.tfrec(?:ords?)?$")
# The number of shards to read at once from a remote store. Each one needs memory for its index, as numbers and as text.
_FAR = 4


@dataclass(slots=True, kw_only=True)
class IndexReport:
    """The result of `index`.

    Attributes:
        made, kept: the paths of the new indexes, and of the existing indexes that were kept.
        refused: the shards that cannot have such an index, each with the reason.
    """

    path: str
    made: list[str] = field(default_factory=list)
    kept: list[str] = field(default_factory=list)
    refused: list[tuple[str, str]] = field(default_factory=list)

    def to_json(self) -> dict[str, Any]:
        refused = [{"path": path, "reason": reason} for path, reason in self.refused]
        return json_of(self, "path made kept refused", refused=refused)


async def index(
    path: str | os.PathLike[str],
    *,
    layout: str = "asyncrec",
    force: bool = False,
    jobs: int | None = None,
    progress: Progress = lambda done, total: None,
    max_record_bytes: Size = MAX_RECORD_BYTES,
    storage: Storage | None = None,
    storage_options: Mapping[str, Any] | None = None,
) -> IndexReport:
    """Create an index for every shard that lacks one, or with ``force`` for every shard, by reading record lengths.

    Existing indexes in the layout ``"asyncrec"`` are kept if they match their shards. In the other layouts, all
    existing indexes are kept, and compressed shards are rejected, because tfrecord and DALI cannot read them.

    Args:
        jobs: the number of shards to read at once, each in a worker thread; by default the number of processors that
            this process may use, but at least 4 for a remote store. The report, the indexes and the errors are the same
            for any number. After an error, the indexes of all shards before the faulty shard have been created, and
            perhaps some after it.
        max_record_bytes: as for `asyncrec.open_reader`; longer records that a manifest allows are read in any case.

    Raises:
        FormatError: the length of a record or the compression of a shard is damaged.
        ValueError: the layout is unknown; or two shards would have an index of the same name, so nothing was written;
            or ``jobs`` is less than 1.
    """
    check_jobs(jobs)
    if layout not in LAYOUTS:
        raise ArgumentValueError(f"layout must be one of {', '.join(LAYOUTS)}, not {layout!r}")
    async with selected(
        path, max_record_bytes=max_record_bytes, storage=storage, storage_options=storage_options
    ) as selection:
        if layout != "asyncrec":
            await in_thread(_refuse_common, selection.shards, layout)
        report = IndexReport(path=selection.path)
        advance = Advance(progress, selection.bytes)

        async def one(shard: SelectedShard) -> None:
            await _index(selection, shard, layout, force, report)
            advance(shard.size)

        await side_by_side(one, selection.shards, tasks=at_once(jobs, selection.storage, far=_FAR))
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
            (
                shard.display_path,
                f"the shard is compressed with {entry.compression}, which the layout {layout} does not support",
            )
        )
        return
    key = _key(shard, entry, layout)
    display_path = selection.base + shard.folder + key
    if not force and await _is_there(folder, entry, key, layout, counted=shard.entry is not None):
        report.kept.append(display_path)
        return
    scan = await scan_shard(folder, entry, max_record_bytes=shard.max_record_bytes)
    await folder.put(key, await in_thread(_text, scan))
    report.made.append(display_path)


def _text(scan: FrameScan) -> bytes:
    return scan.index().encode()


def _key(shard: SelectedShard, entry: ShardEntry, layout: str) -> str:
    if layout == "asyncrec":
        return index_key(entry.path) if entry.index is None else entry.index.path
    return _other_key(shard, layout)


def _other_key(shard: SelectedShard, layout: str) -> str:
    return shard.name + ".idx" if layout == "dali" else _SUFFIX.sub("", shard.name) + ".tfindex"


def _refuse_common(shards: Sequence[SelectedShard], layout: str) -> None:
    """Raise ArgumentValueError if two shards would share an index, or an index would have a shard's name. Blocks."""
    owners = {shard.key: shard for shard in shards}
    for shard in shards:
        other = owners.setdefault(shard.folder + _other_key(shard, layout), shard)
        if other is not shard:
            raise ArgumentValueError(
                f"{shard.display_path}: its index for {layout} would be {_other_key(shard, layout)}, which is also the "
                f"name of {other.display_path} or of its index; nothing was written. Move one of the two to another "
                "folder, or rename it"
            )


async def _is_there(folder: Storage, entry: ShardEntry, key: str, layout: str, *, counted: bool) -> bool:
    if layout == "asyncrec":
        return await read_index(folder, entry, count_known=counted) is not None
    try:
        await folder.head(key)
    except ObjectNotFoundError:
        return False
    return True
