"""`info` describes the content of a path from its manifests, indexes and first records, without reading the rest."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from asyncrec._concurrency.map import for_each
from asyncrec._concurrency.tasks import in_thread
from asyncrec._sampling.random_access.scan_manifest import unlisted_entry
from asyncrec._shards.manifest.loading import load_history
from asyncrec._shards.manifest.manifest import Manifest
from asyncrec._shards.manifest.snapshot import dataset_at, merged
from asyncrec._shards.ownership.census import census
from asyncrec._shards.recovery.report import UnfinishedJob
from asyncrec.errors import ExampleError, FormatError, ObjectChangedError, ObjectNotFoundError
from asyncrec.example._schema import Schema
from asyncrec.storage._base import Storage
from asyncrec.storage._listing import is_pattern
from asyncrec.storage._url import redact
from asyncrec.tools._count import counted, counted_by_index
from asyncrec.tools._json_values import is_example
from asyncrec.tools._orphans import Orphan, find_orphans
from asyncrec.tools._report_json import json_of
from asyncrec.tools._selection import SelectedDataset, SelectedShard, Selection, selected
from asyncrec.tools._shard_reading import open_committed

# Files without an index are read to count their records if all files together have at most this size. Reading takes a
# fraction of a second from a disk, or a few seconds from a store.
_COUNTED_BYTES = 64 << 20
# The number of records to read to determine the kind of the records.
_LOOKED_AT = 100
# The number of files to examine at once, which is enough to hide a store's latency.
_CONCURRENT = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class FileInfo:
    """A file that no manifest lists.

    Attributes:
        records: the number of records; `None` if the file has no index and is too large to read, or is damaged.
    """

    path: str
    bytes: int
    records: int | None
    compression: str
    modified: datetime

    def to_json(self) -> dict[str, Any]:
        return json_of(self, "path bytes records compression modified")


@dataclass(frozen=True, slots=True, kw_only=True)
class WriterInfo:
    """A writer of a data set, or a tool that is working on the data set.

    Attributes:
        state: ``"closed"`` if the writer ended normally; ``"recovered"`` if it died and its records were committed by
            another process; ``"died"`` if it died without any records; ``"given up"`` if another process abandoned it.
            A writer that has not ended is ``"alive"``, ``"dead"``, ``"unknown"`` if this machine cannot determine its
            state, or ``"open"`` if it has no mark to check.
        shards, records: the number of shards and of records that the writer committed.
        job: the description that the writer stored when it began; `None` if the writer has ended.
    """

    id: str
    state: str
    shards: int = 0
    records: int = 0
    last_commit: str | None = None
    job: UnfinishedJob | None = None

    def to_json(self) -> dict[str, Any]:
        return json_of(
            self,
            "id state closed shards records last_commit job",
            closed=self.state in ("closed", "recovered", "died", "given up"),
            job=None if self.job is None else json_of(self.job, "kind host pid since spool"),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class DatasetInfo:
    """A data set: its snapshot, its past and present writers, and its orphans."""

    path: str
    manifest: Manifest
    orphans: tuple[Orphan, ...]
    writers: tuple[WriterInfo, ...] = ()

    @property
    def last_commit(self) -> str | None:
        return max((writer.last_commit for writer in self.manifest.writers.values()), default=None)

    def to_json(self) -> dict[str, Any]:
        manifest = self.manifest
        return {
            "path": self.path,
            "id": manifest.id,
            "shards": len(manifest.shards),
            "records": manifest.records,
            "bytes": manifest.bytes,
            "compression": dict(manifest.shards.compressions),
            "last_commit": self.last_commit,
            "writers": [writer.to_json() for writer in self.writers],
            "schema": manifest.schema,
            "metadata": dict(manifest.metadata),
            "progress": dict(manifest.progress),
            "conflicts": list(manifest.conflicts),
            "orphans": [orphan.to_json() for orphan in self.orphans],
        }


@dataclass(slots=True, kw_only=True)
class InfoReport:
    """The result of `info`.

    Attributes:
        files: the files that are in no data set.
        content: the kind of the first records: ``"Example"``, ``"bytes"``, ``"empty"``; `None` if they cannot be read.
        schema: the schema of the data set, or the schema inferred from the first records.
        inferred: the number of records from which the schema was inferred; 0 if the schema is from a manifest.
        damage: the reason why the first records cannot be read.
        spool: whether the path is the folder of a spool, in which shards wait to be uploaded.
    """

    path: str
    kind: str
    datasets: list[DatasetInfo] = field(default_factory=list)
    files: list[FileInfo] = field(default_factory=list)
    content: str | None = None
    schema: Mapping[str, Any] | None = None
    inferred: int = 0
    damage: str | None = None
    spool: bool = False

    @property
    def shards(self) -> int:
        return len(self.files) + sum(len(dataset.manifest.shards) for dataset in self.datasets)

    @property
    def bytes(self) -> int:
        return sum(file.bytes for file in self.files) + sum(dataset.manifest.bytes for dataset in self.datasets)

    @property
    def records(self) -> int | None:
        """The number of records; `None` if it is unknown for any file."""
        counts = [file.records for file in self.files]
        known = [each for each in counts if each is not None]
        if len(known) < len(counts):
            return None
        return sum(known) + sum(dataset.manifest.records for dataset in self.datasets)

    @property
    def compression(self) -> dict[str, int]:
        """The number of shards with each compression."""
        kinds = Counter(file.compression for file in self.files)
        for dataset in self.datasets:
            kinds.update(dataset.manifest.shards.compressions)
        return dict(kinds)

    def to_json(self) -> dict[str, Any]:
        return json_of(
            self,
            "path kind shards records bytes compression content schema inferred_from damage spool datasets files",
            inferred_from=self.inferred,
        )


async def info(
    path: str | os.PathLike[str], *, storage: Storage | None = None, storage_options: Mapping[str, Any] | None = None
) -> InfoReport:
    """Describe a file, a folder, a pattern or a data set.

    A data set without any commit exists if a writer is working on it, or died while working on it.

    The records of files in no manifest are counted by their indexes, or by reading the files if their total size is at
    most 64 MiB.

    Raises:
        ObjectNotFoundError, StoragePermissionError: there is nothing at the path, or the path cannot be listed.
        ManifestError: a manifest cannot be read.
    """
    try:
        return await _info(path, storage, storage_options)
    except ObjectNotFoundError:
        begun = await _begun(path, storage, storage_options)
        if begun is None:
            raise
        return begun


async def _begun(
    path: str | os.PathLike[str], storage: Storage | None, storage_options: Mapping[str, Any] | None
) -> InfoReport | None:
    """Return the report on a data set with a writer but no commits yet, or `None` if there is no writer, either."""
    options = dict(storage_options) if storage_options is not None else None
    async with dataset_at(path, storage=storage, storage_options=options, allow_pattern=True) as (folder, name):
        if not name or is_pattern(name):
            return None
        shown = redact(os.fspath(path))
        manifest = await merged(shown, await load_history(folder, name))
        writers = await _writers(folder, name, manifest)
    if not writers:
        return None
    dataset = DatasetInfo(path=shown, manifest=manifest, orphans=(), writers=writers)
    return InfoReport(path=shown, kind="data set", datasets=[dataset], content="empty")


async def _info(
    path: str | os.PathLike[str], storage: Storage | None, storage_options: Mapping[str, Any] | None
) -> InfoReport:
    async with selected(path, storage=storage, storage_options=storage_options) as selection:
        report = InfoReport(path=selection.path, kind=selection.kind, spool=await selection.is_spool())
        orphaned = set()
        for dataset in selection.datasets:
            orphans = await find_orphans(dataset, selection.base)
            orphaned |= {orphan.path for orphan in orphans}
            report.datasets.append(await _described(selection, dataset, orphans))
        plain = [shard for shard in selection.shards if shard.dataset is None and shard.display_path not in orphaned]
        readable = sum(shard.size for shard in plain) <= _COUNTED_BYTES

        async def look(shard: SelectedShard) -> FileInfo:
            return await _look(selection, shard, readable)

        report.files = await for_each(look, plain, tasks=_CONCURRENT)
        await _look_at_records(selection, report)
    return report


async def _described(selection: Selection, dataset: SelectedDataset, orphans: list[Orphan]) -> DatasetInfo:
    path = selection.path if selection.kind == "data set" else selection.base + dataset.prefix + dataset.name
    writers = await _writers(dataset.folder, dataset.name, dataset.manifest)
    return DatasetInfo(path=path, manifest=dataset.manifest, orphans=tuple(orphans), writers=writers)


async def _writers(folder: Storage, name: str, manifest: Manifest) -> tuple[WriterInfo, ...]:
    """Return the writers that have committed or ended, and all jobs that have not ended, whether alive or dead."""
    unfinished = {job.header.writer: (UnfinishedJob.of(job.header), state) for job, state in await census(folder, name)}
    writers = []
    for each in manifest.writers.values():
        job, state = unfinished.pop(each.id, (None, "open"))
        if each.closed:
            how = "closed" if not each.recovered else "recovered" if each.records else "died"
            job, state = None, "given up" if each.abandoned else how
        writers.append(
            WriterInfo(
                id=each.id, state=state, shards=each.shards, records=each.records, last_commit=each.last_commit, job=job
            )
        )
    writers += [WriterInfo(id=writer, state=state, job=job) for writer, (job, state) in sorted(unfinished.items())]
    return tuple(writers)


async def _look(selection: Selection, shard: SelectedShard, readable: bool) -> FileInfo:
    entry, info = await unlisted_entry(selection.storage, shard.key)
    records: int | None
    try:
        records = await (counted if readable else counted_by_index)(selection, shard)
    except FormatError:
        records = None
    return FileInfo(
        path=shard.display_path,
        bytes=entry.bytes,
        records=records,
        compression=entry.compression,
        modified=info.modified,
    )


async def _look_at_records(selection: Selection, report: InfoReport) -> None:
    """Read the first records to determine their kind and, if the manifests have no common schema, their schema."""
    report.schema = selection.schema
    first = next((shard for shard in selection.shards if shard.size), None)
    if first is None:
        report.content = "empty"
        return
    records: list[bytes] = []
    try:
        async with open_committed(selection, first) as reader:
            while len(records) < _LOOKED_AT and (batch := await reader.next_batch()):
                records += batch.records
    except (FormatError, ObjectChangedError) as error:
        report.damage = error.in_shell
        if not records:
            return
    records = records[:_LOOKED_AT]
    report.content = "Example" if records and is_example(records[0]) else "bytes"
    if report.schema is None and report.content == "Example":
        try:
            report.schema = (await in_thread(Schema.infer, records)).to_json()
            report.inferred = len(records)
        except ExampleError:
            report.content = "bytes"  # some of the records are not Examples
