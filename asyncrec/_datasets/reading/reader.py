"""`open_split` reads the records of a split, or of parts of several splits, written by `DatasetWriter` or datum."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, replace
from typing import Any

from asyncrec._concurrency.batches import Batches
from asyncrec._concurrency.forks import on_fork
from asyncrec._concurrency.tasks import Handover, TaskScope, in_thread
from asyncrec._datasets.description import FeatureTable, schema_of_table
from asyncrec._datasets.sidecars import merged_tables, read_shard_info, read_table
from asyncrec._framing.compression import parse_reading_compression
from asyncrec._framing.frames import MAX_RECORD_BYTES
from asyncrec._records.index import parse_index
from asyncrec._records.reading.reader import open_reader_in
from asyncrec._shards.manifest.manifest import Manifest
from asyncrec._shards.manifest.snapshot import dataset_names, load_manifest
from asyncrec._shards.manifest.splits import Split, parse_split
from asyncrec.errors import ArgumentValueError, DatasetError, ObjectNotFoundError
from asyncrec.example._schema import Schema
from asyncrec.storage._base import Storage
from asyncrec.storage._prefixed import folder_at
from asyncrec.storage._registry import located_folder
from asyncrec.storage._url import join, redact


@dataclass(frozen=True, slots=True)
class Slice:
    """A range of records of one shard: ``take`` records after the first ``skip``.

    ``bytes`` is these records' share of the shard's bytes, or 0 if the shard's size is unknown.
    """

    key: str
    index: str | None
    compression: str
    skip: int
    take: int
    bytes: int
    max_record_bytes: int = MAX_RECORD_BYTES


@dataclass(frozen=True, slots=True)
class Found:
    """The records that a split instruction selects, the schema that decodes them, and datum's table of features.

    ``metadata`` has the metadata of each split's manifest.
    """

    slices: list[Slice]
    schema: Schema | None
    table: FeatureTable
    metadata: list[Mapping[str, Any]]


class SplitReader:
    """A reader of the records of parts of splits, opened by `open_split`. Iterate over it once, in one task.

    ``len(reader)`` is the number of records. ``async for features in reader`` yields the decoded features of each
    record. ``reader.batches()`` yields lists of records as they are stored.

    Attributes:
        split: the parts that are read.
        schema: the schema of the records, or `None` if the data set has no schema.
    """

    def __init__(self, split: Split, schema: Schema | None, records: int, received: Handover[list[bytes]]) -> None:
        self.split = split
        self.schema = schema
        self._records = records
        self._received = received
        self._batch: list[bytes] = []
        self._next = 0
        on_fork(self)

    def forked(self) -> None:
        """Discard the batch in the child of a fork, where further reading raises an error."""
        self._batch, self._next = [], 0

    def __len__(self) -> int:
        return self._records

    def __aiter__(self) -> SplitReader:
        return self

    async def __anext__(self) -> dict[str, Any]:
        if self.schema is None:
            raise DatasetError(
                f"{self.split}: the data set has no schema, so its records cannot be decoded; use batches() to read "
                "them as bytes"
            )
        while self._next >= len(self._batch):
            self._batch, self._next = await self._received.take(), 0
        record = self._batch[self._next]
        self._next += 1
        return self.schema.decode(record)

    def batches(self) -> AsyncIterator[list[bytes]]:
        """Iterate over the records as they are stored, in non-empty lists."""
        return Batches(self._next_batch)

    async def _next_batch(self) -> list[bytes]:
        rest, self._batch, self._next = self._batch[self._next :], [], 0
        return rest or await self._received.take()


@asynccontextmanager
async def open_split(
    path: str | os.PathLike[str],
    split: str | Split,
    *,
    storage: Storage | None = None,
    storage_options: dict[str, Any] | None = None,
) -> AsyncIterator[SplitReader]:
    """Read a split, or parts of several: ``async with open_split("data/cats", "train[:80%]+extra") as reader: ...``.

    Records are read ahead, and are yielded in the order in which they are stored. Their number and schema are read from
    the manifest, or from the files that datum wrote. If a part begins within a shard, its first record is located with
    the shard's index, if the shard has one.

    Args:
        path: the folder of the splits; with ``storage``, a prefix in it.
        split: an instruction in the form of `parse_split`. If the schemas of the splits differ, they are merged.
        storage: an open `Storage`, which is used but not closed.
        storage_options: options for the backend, if this call opens the storage.

    Raises:
        ValueError: ``split`` cannot be parsed, a split does not exist (the message lists the existing splits), or a
            bound is outside the split.
        SchemaError: the schemas of the splits contradict each other.
        CorruptRecordError, TruncatedError, StorageError: reading failed. All records before the error were yielded.
        DatasetError: while reading, a shard has fewer records than the data set lists.
    """
    wanted = parse_split(split) if isinstance(split, str) else split
    async with open_folder(path, storage, storage_options) as folder:
        found = await _find(folder, wanted, display_path=redact(os.fspath(path)))
        batches = Handover[list[bytes]](1, f"{wanted}: the reader")  # read one batch, a few hundred KiB, ahead
        reader = SplitReader(wanted, found.schema, sum(each.take for each in found.slices), batches)
        async with TaskScope() as scope:
            scope.start_soon(_feed, folder, found.slices, batches)
            try:
                yield reader
            finally:
                scope.cancel()
                batches.close()


async def find_split(
    path: str | os.PathLike[str], split: str, *, storage_options: dict[str, Any] | None = None
) -> Found:
    """Return the records that `open_split` would read, for callers that read them by other means.

    Raises:
        ValueError, SchemaError, StorageError: as for `open_split` on entering.
    """
    wanted = parse_split(split)
    async with open_folder(path, None, storage_options) as folder:
        return await _find(folder, wanted, display_path=redact(os.fspath(path)))


@asynccontextmanager
async def open_folder(
    path: str | os.PathLike[str], storage: Storage | None, storage_options: dict[str, Any] | None
) -> AsyncIterator[Storage]:
    """Open the folder at a path as a storage. ``""`` is the current folder, or the root of ``storage``."""
    async with located_folder(path, storage=storage, storage_options=storage_options) as (store, prefix):
        yield folder_at(store, prefix)


def _slices(manifest: Manifest) -> list[Slice]:
    return [
        Slice(
            s.path,
            s.index.path if s.index is not None else None,
            s.compression,
            0,
            s.records,
            s.bytes,
            s.max_record_bytes,
        )
        for s in manifest.shards
    ]


async def _find(folder: Storage, split: Split, *, display_path: str) -> Found:
    shards: dict[str, list[Slice]] = {}
    schemas: list[Schema | None] = []
    tables: list[FeatureTable] = []
    metadata: list[Mapping[str, Any]] = []
    foreign: dict[str, dict[str, int]] | None = None
    table: FeatureTable = {}
    for name in split.names:
        manifest: Manifest | None = await load_manifest(folder, name, path=f"{display_path}/{name}")
        if manifest is not None:
            shards[name] = await in_thread(_slices, manifest)
            schemas.append(None if manifest.schema is None else Schema.from_json(manifest.schema))
            metadata.append(manifest.metadata)
            tables.append(manifest.metadata.get("features") or {})
            continue
        if foreign is None:
            foreign, table = await read_shard_info(folder), await read_table(folder)
        if name in foreign:
            shards[name] = [Slice(file, None, "auto", 0, count, 0) for file, count in sorted(foreign[name].items())]
            schemas.append(schema_of_table(table) if table else None)
            tables.append(table)
            metadata.append({})
    counts = {name: sum(shard.take for shard in found) for name, found in shards.items()}
    if counts.keys() != set(split.names):
        for name in await _names(folder):
            counts.setdefault(name, 0)
    for name in split.names:
        if name not in counts and (below := await dataset_names(folder_at(folder, name))):
            raise ArgumentValueError(
                f"{display_path}: there is no split {name!r} in this folder, but there is one in a subfolder; use "
                f"open_split({join(display_path, name)!r}, {name if name in below else below[0]!r})"
            )
    if not counts:
        raise ArgumentValueError(
            f"{display_path}: there is no split {split.names[0]!r}, because this folder has no data sets. A split "
            "is a data set in the folder: for the data set crawl/pages, use open_split('crawl', 'pages[:80%]')"
        )
    slices = [each for name, start, stop in split.resolve(counts) for each in _cut(shards.get(name, []), start, stop)]
    schema = schemas[0] if schemas else None
    for other in schemas[1:]:
        schema = schema.merge(other) if schema and other else None
    table = merged_tables(tables)
    for name, feature in table.items():
        feature["dense"] = feature["dense"] and all(name in each for each in tables)
    return Found(slices, schema, table, metadata)


async def _names(folder: Storage) -> set[str]:
    """Return the names of all existing splits, for error messages."""
    return {*await dataset_names(folder)} | (await read_shard_info(folder)).keys()


def _cut(shards: list[Slice], start: int, stop: int) -> list[Slice]:
    """Return the records ``[start, stop)`` of consecutive shards."""
    cut = []
    before = 0
    for shard in shards:
        first, last = max(start - before, 0), min(stop - before, shard.take)
        before += shard.take
        if first < last:
            size = shard.bytes * (last - first) // shard.take
            cut.append(replace(shard, skip=first, take=last - first, bytes=size))
    return cut


async def _feed(folder: Storage, slices: list[Slice], batches: Handover[list[bytes]]) -> None:
    """Read the slices into ``batches``. Run this in a separate task, which also closes the files if it is cancelled."""
    try:
        for each in slices:
            await _feed_slice(folder, each, batches)
    except Exception as error:
        batches.end(error)
    else:
        batches.end()


async def _feed_slice(folder: Storage, each: Slice, batches: Handover[list[bytes]]) -> None:
    offset, skip = 0, each.skip
    if skip and each.index is not None and each.compression != "ZLIB":
        with suppress(ObjectNotFoundError):  # without an index, the records before the slice are read and skipped
            index = await in_thread(parse_index, await folder.get(each.index))
            if len(index) > skip:
                offset, skip = index.beginning(skip)
    missing = each.take
    async with open_reader_in(
        folder,
        each.key,
        compression=parse_reading_compression(each.compression),
        start_offset=offset,
        max_record_bytes=each.max_record_bytes,
    ) as records:
        async for batch in records.batches():
            kept = batch[skip : skip + missing]
            skip = max(skip - len(batch), 0)
            missing -= len(kept)
            if kept:
                await batches.put(kept)
            if not missing:
                return
    raise DatasetError(
        f"{folder.root}/{each.key}: the file has {missing} fewer records than its data set lists; it was replaced "
        "or not copied completely"
    )
