"""`repair` writes the intact records of a damaged file into a new file.

It never changes the damaged file, which may be the only copy.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from asyncrec._arguments import Size, record_limit
from asyncrec._concurrency.tasks import in_thread
from asyncrec._framing.compression import ReadingCompression, parse_reading_compression
from asyncrec._framing.damage import Damage
from asyncrec._framing.frames import MAX_RECORD_BYTES
from asyncrec._records.index import parse_index
from asyncrec._records.position import Position
from asyncrec._records.reading.reader import RecordReader, open_reader_at
from asyncrec._records.writing.writer import open_writer
from asyncrec._shards.manifest.names import index_key
from asyncrec._shards.manifest.segment import ShardEntry
from asyncrec._shards.manifest.snapshot import load_manifest
from asyncrec.errors import ArgumentValueError, FormatError, ManifestError, ObjectNotFoundError
from asyncrec.storage._base import Storage
from asyncrec.storage._prefixed import folder_at
from asyncrec.storage._registry import located
from asyncrec.storage._url import redact
from asyncrec.tools._parameters import Progress
from asyncrec.tools._report_json import json_of
from asyncrec.tools._same_object import is_same_object

# A line of an index has about 20 bytes, so this is enough for ten million records. A larger index is not used.
_MOST_INDEX = 256 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class RepairReport:
    """The result of `repair`.

    Attributes:
        records: the number of intact records in the target.
        bytes: the total size of the frames of these records, before compression.
        compression: the compression of both files.
        damage: the first 1,000 ranges of damage in the source, as in `asyncrec.RecordReader.damage`.
        lost_ranges, lost_bytes, ambiguous_ranges: the totals, as in `asyncrec.RecordReader.stats`.
    """

    source: str
    target: str
    records: int
    bytes: int
    compression: str
    damage: tuple[Damage, ...]
    lost_ranges: int
    lost_bytes: int
    ambiguous_ranges: int

    @property
    def ok(self) -> bool:
        """Whether the source was intact."""
        return not self.lost_ranges

    def to_json(self) -> dict[str, Any]:
        return json_of(self, "source target records bytes compression lost_ranges lost_bytes ambiguous_ranges damage")


async def repair(
    source: str | os.PathLike[str],
    target: str | os.PathLike[str],
    *,
    compression: ReadingCompression = "auto",
    max_record_bytes: Size = MAX_RECORD_BYTES,
    overwrite: bool = False,
    progress: Progress = lambda done, total: None,
    storage: Storage | None = None,
    storage_options: Mapping[str, Any] | None = None,
    target_storage: Storage | None = None,
    target_storage_options: Mapping[str, Any] | None = None,
) -> RepairReport:
    """Write every intact record of the file ``source`` to the file ``target``, in order, and report what was lost.

    The target has the compression of the source, and is published when it is complete. The source is not changed. If
    the source is uncompressed and has an index (``_index/<name>.index``, as written by asyncrec), the offsets of the
    records are taken from the index.

    Args:
        compression: the compression of the source, if its beginning is too damaged to detect the compression.
        max_record_bytes: the maximum size of a record. A longer record counts as damage. But if a manifest allows the
            record, ValueError is raised, because the target has no manifest.
        overwrite: replace an existing target instead of raising ObjectExistsError.
        progress: called with the number of records saved so far, and `None`.

    Raises:
        ObjectNotFoundError: the source does not exist.
        ObjectExistsError: the target exists, and ``overwrite`` is false.
        ValueError: the target and the source are the same file, or a record is too long for the target.
    """
    max_record_bytes = record_limit(max_record_bytes)
    given = parse_reading_compression(compression)
    source_path, target_path = redact(os.fspath(source)), redact(os.fspath(target))
    async with (
        located(source, storage=storage, storage_options=storage_options) as (store, key),
        located(target, storage=target_storage, storage_options=target_storage_options) as (target_store, target_key),
    ):
        both_open = storage is not None and target_storage is not None
        same = key == target_key and (store is target_store if both_open else store.root == target_store.root)
        if same or (overwrite and await is_same_object(store, key, target_store, target_key)):
            raise ArgumentValueError(
                f"{source_path}: the target must be a different file, because repair does not change the damaged file, "
                f"but {target_path} is the same file; choose another name"
            )
        prefix, slash, name = key.rpartition("/")
        folder = folder_at(store, prefix + slash)
        entry = await _entry_of(folder, name)
        reader = await open_reader_at(
            store,
            key,
            Position(0, 0, 0),
            path=source_path,
            compression=given,
            on_corrupt="skip",
            warns=False,
            boundaries=await _boundaries(folder, name, entry),
            max_record_bytes=max_record_bytes if entry is None else max(max_record_bytes, entry.max_record_bytes),
        )
        try:
            # Read the first records before opening the writer: if the beginning is damaged, only they reveal the
            # compression.
            records = await _next(reader)
            mode: Literal["w", "x"] = "w" if overwrite else "x"
            async with open_writer(
                target_key,
                compression=reader.compression,
                mode=mode,
                max_record_bytes=max_record_bytes,
                storage=target_store,
            ) as writer:
                while records:
                    await writer.write_many(records)
                    progress(reader.stats().records, None)
                    records = await _next(reader)
        finally:
            await reader.aclose()
        stats = reader.stats()
        return RepairReport(
            source=source_path,
            target=target_path,
            records=stats.records,
            bytes=stats.bytes,
            compression=reader.compression,
            damage=tuple(reader.damage),
            lost_ranges=stats.lost_ranges,
            lost_bytes=stats.lost_bytes,
            ambiguous_ranges=stats.ambiguous_ranges,
        )


async def _next(reader: RecordReader) -> list[bytes]:
    batch = await reader.next_batch()
    return [] if batch is None else batch.records


async def _boundaries(folder: Storage, shard: str, entry: ShardEntry | None) -> Sequence[int]:
    """Return the offsets of the file's records according to its index, or no offsets if there is no usable index."""
    key = index_key(shard) if entry is None or entry.index is None else entry.index.path
    try:
        text = await folder.get(key, max_bytes=_MOST_INDEX)
        index = await in_thread(parse_index, text)
    except (ObjectNotFoundError, FormatError, ValueError):
        return ()
    return index.offsets.tolist() if index.members is None else ()


async def _entry_of(folder: Storage, shard: str) -> ShardEntry | None:
    """Return a shard's entry in the manifest of its data set, or `None` if no readable manifest lists the file."""
    name = re.sub(r"-[0-9]{5,}-of-[0-9]{5,}\.tfrecord$|-[A-Za-z0-9_.]+-[0-9]{6,}\.tfrecord$", "", shard)
    try:
        manifest = await load_manifest(folder, name, path=name) if name != shard else None
    except ManifestError:
        return None
    return next((entry for entry in (() if manifest is None else manifest.shards) if entry.path == shard), None)
