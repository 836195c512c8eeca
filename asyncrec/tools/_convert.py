"""`convert` converts files in other formats to records, and records to files in other formats.

When files are converted to records, each file is a separate job, with an id derived from the file's name. A file is
committed completely or not at all, so an interrupted conversion skips the finished files when it is run again, and two
concurrent conversions never write the same file twice. The format defines the key of a record (the URL, for a page in a
WARC file); otherwise the key is ``<file>#<number>``. The data set's metadata records the version of each converted file
(its size and etag) and the number of bad parts in it. A file that has changed since it was converted is rejected.

Bad parts of a source file are skipped and reported. `asyncrec.tools._formats` lists the formats.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import AsyncIterator, Collection, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from itertools import count
from typing import Any

from asyncrec._arguments import Size, record_limit
from asyncrec._concurrency.map import side_by_side
from asyncrec._concurrency.tasks import in_thread
from asyncrec._framing.compression import Compression, CompressionOptions, parse_compression
from asyncrec._framing.frames import MAX_RECORD_BYTES
from asyncrec._records.writing.writer import open_writer
from asyncrec._shards.commit.closing import load_closing
from asyncrec._shards.manifest.names import is_data
from asyncrec._shards.manifest.segment import Segment
from asyncrec._shards.manifest.snapshot import dataset_at, load_manifest
from asyncrec._shards.ownership.claims import settle_dead
from asyncrec._shards.writing.keys import key_digests
from asyncrec._shards.writing.ordered_writer import KeyedBatch, Limits, write_ordered
from asyncrec.errors import ArgumentValueError, ObjectNotFoundError, PluginError
from asyncrec.plugins._kinds import Converted, Format
from asyncrec.storage._base import ObjectInfo, Storage
from asyncrec.storage._listing import is_pattern, matching
from asyncrec.storage._registry import located
from asyncrec.storage._url import redact
from asyncrec.tools._converted_before import ConvertedBefore, ConvertReport
from asyncrec.tools._export import export
from asyncrec.tools._formats import FORMATS, RECORDS
from asyncrec.tools._formats.source import open_file_of
from asyncrec.tools._metadata import Conversions, conversions_of
from asyncrec.tools._parameters import Advance, Progress, at_once, check_jobs, shard_bytes
from asyncrec.tools._selection import selected


async def convert(
    source: str | os.PathLike[str],
    target: str | os.PathLike[str],
    *,
    source_format: str | None = None,
    target_format: str | None = None,
    max_shard_bytes: Size | None = None,
    compression: Compression = "",
    jobs: int | None = None,
    progress: Progress = lambda done, total: None,
    max_record_bytes: Size = MAX_RECORD_BYTES,
    storage: Storage | None = None,
    storage_options: Mapping[str, Any] | None = None,
    target_storage: Storage | None = None,
    target_storage_options: Mapping[str, Any] | None = None,
) -> ConvertReport:
    """Convert files to records, or records to a file. An existing file is never overwritten.

    If the target is a data set, files that were converted into it before are skipped, so their records are stored once.
    If such a file has changed since, an error is raised before anything is written, because the data set still contains
    the file's old records. If a writer has replaced the data set since, its files are converted again.

    Args:
        source: a file, a folder or a pattern; if records are read, a data set is also possible.
        target: if records are written, a data set, or a single file if the name contains ``.tfrec``; otherwise a file.
        source_format, target_format: ``"tfrecord"``, ``"jsonl"``, or the format of a plugin, such as asyncrec-formats'
            ``"parquet"`` and ``"warc"``; by default the suffixes of the names decide.
        max_shard_bytes: the maximum size of the shards; 256 MiB. Each source file starts a new shard.
        compression: the compression of the shards.
        jobs: the number of source files to convert at once, if the target is a data set; by default the number of
            processors that this process may use. The output and the report do not depend on it. Two jobs take half the
            time if C code that releases the GIL reads the files, as for Parquet and compressed files; JSON is parsed
            while holding the GIL. A single source file is one job, and so is any conversion to a file.
        max_record_bytes: as for `asyncrec.open_reader`, and for a file that is written; longer records that a manifest
            allows are always read.

    Raises:
        ValueError: the formats cannot be converted into each other, or ``jobs`` is less than 1.
        PluginError: the format is not installed; the message names the package to install.
        DatasetError: a file with different contents was converted into the data set under the same name.
        ObjectChangedError: a file changed while it was converted, or is a shard and not the one in its manifest; none
            of its records is written.
        ObjectExistsError: the target file exists.
        SchemaError, DecodeError: a record does not fit the columns of the target file; nothing is written.
        FormatError: the records of the source are damaged; nothing is written.
    """
    check_jobs(jobs)
    report = ConvertReport(source=redact(os.fspath(source)), target=redact(os.fspath(target)))
    await FORMATS.look_for(source_format or os.fspath(source), target_format or os.fspath(target))
    of, to = source_format or FORMATS.of(os.fspath(source)), target_format or FORMATS.of(os.fspath(target))
    for name in (of, to):
        if name != RECORDS:
            FORMATS.get(name)
    target_options = None if target_storage_options is None else dict(target_storage_options)
    if of == to == RECORDS and target_format is None and _has_unknown_suffix(target):
        raise ArgumentValueError(
            f"{report.target}: the suffix does not name a format; the formats are {FORMATS.known()}"
        ).with_remedy("name one with target_format", command="name one with --to")
    if to != RECORDS:
        encoding = FORMATS.get(to)
        if encoding.encoder is None:
            raise ArgumentValueError(f"the format {to} can be read but not written; choose another")
        if of != RECORDS:
            raise ArgumentValueError("one side of a conversion must be TFRecord; convert in two steps")
        async with (
            selected(
                source, max_record_bytes=max_record_bytes, storage=storage, storage_options=storage_options
            ) as selection,
            located(target, storage=target_storage, storage_options=target_options) as (store, key),
        ):
            report.records = await export(selection, store, key, encoding, progress)
            report.files = [shard.display_path for shard in selection.shards]
        return report
    longest = record_limit(max_record_bytes)
    async with located(source, storage=storage, storage_options=storage_options) as (store, key):
        files, kind = await _files(store, key, source_format, report.source)
        if kind.open is None:
            remedy = "; 'asyncrec from-csv' reads tables" if kind.name == "csv" else ""
            raise ArgumentValueError(f"the format {kind.name} can be written but not read{remedy}")
        if ".tfrec" in os.path.basename(os.fspath(target)):
            async with open_writer(
                target,
                compression=compression,
                mode="x",
                max_record_bytes=longest,
                storage=target_storage,
                storage_options=target_options,
            ) as writer:
                for file, info in files:
                    report.files.append(file)
                    async with _reading(kind, store, info, file, longest) as reading:
                        async for converted in reading:
                            report.note(converted)
                            await writer.write_many(converted.records)
                            report.records += len(converted.records)
            return report
        async with dataset_at(target, storage=target_storage, storage_options=target_options) as (folder, name):
            advance = Advance(progress, sum(info.size for _, info in files))
            limits = Limits(max_bytes=shard_bytes(max_shard_bytes))
            there = await load_manifest(folder, name, path=report.target)
            known = Conversions({}) if there is None else await in_thread(conversions_of, there, name)
            before = ConvertedBefore(
                known.metadata, source=report.source, target=report.target, replaced=known.replaced
            )
            before.check(files)
            importer = _Importer(store, kind, folder, name, limits, parse_compression(compression), before, longest)

            async def convert_one(found: tuple[str, ObjectInfo]) -> ConvertReport:
                part = await importer.convert(*found)
                advance(found[1].size)
                return part

            for part in await side_by_side(convert_one, files, tasks=at_once(jobs, store)):
                report.join(part)
    return report


def _has_unknown_suffix(target: str | os.PathLike[str]) -> bool:
    """Return whether ``target`` may name a file in an unknown format. A data set's name has no suffix."""
    name = os.path.basename(os.fspath(target))
    return "." in name and ".tfrec" not in name


async def _files(
    store: Storage, key: str, given: str | None, display_path: str
) -> tuple[list[tuple[str, ObjectInfo]], Format]:
    """Return the source files, with their names relative to the source's folder, and their format."""
    name = key.rpartition("/")[2]
    prefix = key[: len(key) - len(name)]
    found: list[ObjectInfo] = []
    if is_pattern(name):
        found = [info async for info in matching(store, key)]
    else:
        if name:
            try:
                found = [await store.head(key)]
            except ObjectNotFoundError:
                prefix = f"{key}/"
        if not found:
            below = [info async for info in store.list_objects(prefix) if is_data(info.key[len(prefix) :])]
            found = [info for info in below if FORMATS.of(info.key) == (given or FORMATS.of(info.key)) != RECORDS]
            if given and not found:
                found = below
    if not found:
        raise ObjectNotFoundError(
            f"{display_path}: there is no file here in a format that can be converted"
        ).with_remedy("name the format with source_format", command="name the format with --from")
    kinds = {given or FORMATS.of(info.key) for info in found}
    if len(kinds) > 1:
        raise ArgumentValueError(
            f"{display_path}: there are files in several formats here ({', '.join(sorted(kinds))}); pass a pattern "
            "that matches only one of them"
        )
    if kinds == {RECORDS}:
        raise ArgumentValueError(
            f"{display_path}: the suffix does not name a format that can be converted ({FORMATS.known()})"
        ).with_remedy(
            "name the format with source_format; for TFRecord files use reshard or copy",
            command="name the format with --from; for TFRecord files use reshard or copy",
        )
    return [(info.key[len(prefix) :], info) for info in found], FORMATS.get(kinds.pop())


@dataclass(frozen=True, slots=True)
class _Importer:
    """Converts files in one format to shards of the data set ``name`` in ``folder``."""

    store: Storage
    kind: Format
    folder: Storage
    name: str
    limits: Limits
    compression: CompressionOptions
    before: ConvertedBefore
    max_record_bytes: int

    async def convert(self, file: str, info: ObjectInfo) -> ConvertReport:
        """Convert one file, in a job with an id derived from the file's name, unless it has been converted already."""
        if (done := self.before.done(file, info)) is not None:
            return done
        base = "c" + hashlib.blake2b(file.encode("utf-8", "surrogateescape"), digest_size=6).hexdigest()
        writer = await _free_id(self.folder, self.name, base, replaced=self.before.replaced)
        if isinstance(writer, Segment):
            return self.before.ended(file, info, writer.metadata)
        report = ConvertReport(source=file, target=self.before.target, files=[file])
        schema = None if self.kind.schema is None else await in_thread(self.kind.schema)
        async with _reading(self.kind, self.store, info, file, self.max_record_bytes) as reading:
            source = _Converting(reading, file, report)
            version = {"file": file, "bytes": info.size, "etag": info.etag, "format": self.kind.name}
            await write_ordered(
                self.folder,
                self.name,
                source,
                limits=self.limits,
                compression=self.compression,
                schema=None if schema is None else schema.to_json(),
                metadata={f"source {base}": version},
                mode="append",
                writer=writer,
                found=lambda: {f"source {base}": {**version, "records": source.number, "bad": report.bad_count}},
            )
        report.records = source.number
        return report


async def _free_id(folder: Storage, name: str, base: str, *, replaced: Collection[str]) -> str | Segment:
    """Return an id for the job that converts a source file, or the closing segment of a job that already converted it.

    If a job for the file died on this machine, it is abandoned first, so it can commit nothing more. The next job gets
    a new id, as does the job that follows one of the ``replaced`` jobs, whose records are gone.

    Raises:
        ConflictError: another process is converting the file.
    """
    for generation in count(1):
        writer = base if generation == 1 else f"{base}_{generation}"
        closing = await load_closing(folder, name, writer)
        if closing is None:
            settled = await settle_dead(folder, name, writer)
            closing = await load_closing(folder, name, writer)  # the job may have finished just now
            if closing is None and not settled:
                return writer
        if closing is not None and not closing.abandoned and writer not in replaced:
            return closing
    raise AssertionError("there is always another number")


class _Converting:
    """The records of a source file with their keys, in order."""

    def __init__(self, reading: AsyncIterator[Converted], file: str, report: ConvertReport) -> None:
        self._reading = reading
        self._file = file
        self._report = report
        self.number = 0

    def __aiter__(self) -> _Converting:
        return self

    async def __anext__(self) -> KeyedBatch:
        converted = await anext(self._reading)
        self._report.note(converted)
        first = self.number
        self.number += len(converted.records)
        return KeyedBatch(converted.records, await in_thread(self._keys, converted.keys, first))

    def _keys(self, keys: list[str], first: int) -> list[bytes]:
        if keys and len(keys) != self.number - first:
            raise PluginError(
                f"{self._file}: the format returned {len(keys):,} keys for {self.number - first:,} records"
            )
        return key_digests(keys or [f"{self._file}#{number}" for number in range(first, self.number)])


@asynccontextmanager
async def _reading(
    kind: Format, store: Storage, info: ObjectInfo, path: str, max_record_bytes: int
) -> AsyncIterator[AsyncIterator[Converted]]:
    """Open the version of a file that ``info`` describes, and yield an iterator over its records."""
    assert kind.open is not None, "the format can be read"
    opening = open_file_of(store, info.key, path=path, info=info, max_record_bytes=max_record_bytes)
    async with opening as file, kind.open(file) as reading:
        yield reading
