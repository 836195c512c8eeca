"""`convert`: JSON lines, Parquet and WARC to records, and records to JSON lines and Parquet.

To records: every source file is written by a writer of its own, whose id is made of the file's name and size. So a
conversion that was interrupted, run again, passes over the files that are done, and of the one it was at writes only
what is missing: each record has the key ``<file>#<number>``.

What is bad in a source is skipped and told. What the fields are is said in `asyncrec.tools.formats`.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import secrets
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any, Protocol

from asyncrec.errors import ObjectNotFoundError
from asyncrec.example.schema import Schema
from asyncrec.framing.compression import CompressionOptions
from asyncrec.records.writer import open_writer
from asyncrec.shards.manifest import Manifest
from asyncrec.shards.naming import is_data
from asyncrec.shards.opening import open_sharded_writer
from asyncrec.shards.snapshot import dataset_at, load_manifest
from asyncrec.storage.base import ObjectInfo, Storage
from asyncrec.storage.chunks import ChunkWriter
from asyncrec.storage.registry import located
from asyncrec.storage.url import redact
from asyncrec.tasks import in_thread
from asyncrec.tools.formats import BadMember, Converted, format_of
from asyncrec.tools.records import RecordStream
from asyncrec.tools.selecting import Selection, selected

__all__ = ["ConvertReport", "convert"]

Progress = Callable[[int, int | None], None]

# Told one by one; beyond it they are counted.
_MOST_TOLD = 1000
# Records handed to an encoder at once, and the bytes at which they are fewer.
_BATCH = 1024
_BATCH_BYTES = 64 << 20
_NEEDS = {"parquet": "pyarrow", "warc": "warcio"}


class MissingLibraryError(ImportError):
    """A library for a format is not installed."""


class _Encoder(Protocol):
    def encode(self, records: list[bytes]) -> bytes: ...
    def finish(self) -> bytes: ...


@dataclass(slots=True, kw_only=True)
class ConvertReport:
    """What was done.

    Attributes:
        records: written now.
        files: read now; ``done_before`` were converted by an earlier run.
        passed: members of other types (WARC's requests, say), which are not converted.
        bad: what was skipped, the first thousand; ``bad_count`` counts all.
    """

    source: str
    target: str
    records: int = 0
    files: list[str] = field(default_factory=list)
    done_before: list[str] = field(default_factory=list)
    passed: int = 0
    bad: list[BadMember] = field(default_factory=list)
    bad_count: int = 0

    def to_json(self) -> dict[str, Any]:
        return {
            "source": self.source,
            "target": self.target,
            "records": self.records,
            "files": self.files,
            "done_before": self.done_before,
            "passed": self.passed,
            "bad_count": self.bad_count,
            "bad": [bad.to_json() for bad in self.bad],
        }

    def note(self, converted: Converted) -> None:
        self.passed += converted.passed
        self.bad_count += len(converted.bad)
        self.bad += converted.bad[: _MOST_TOLD - len(self.bad)]


async def convert(
    source: str | os.PathLike[str],
    target: str | os.PathLike[str],
    *,
    source_format: str | None = None,
    target_format: str | None = None,
    max_shard_bytes: int | None = None,
    compression: str | int | CompressionOptions | None = "",
    progress: Progress = lambda done, total: None,
    storage: Storage | None = None,
    storage_options: Mapping[str, Any] | None = None,
    target_storage: Storage | None = None,
    target_storage_options: Mapping[str, Any] | None = None,
) -> ConvertReport:
    """Convert files to records, or records to a file.

    Args:
        source: a file, a folder or a pattern; of records also a data set.
        target: of records a data set, or a single file where the name holds ``.tfrec``; else the file to write.
        source_format, target_format: ``"jsonl"``, ``"parquet"``, ``"warc"`` (as a source) or ``"tfrecord"``; by the
            suffixes of the names where they are not given.
        max_shard_bytes: of the shards written; 256 MiB. Each source file begins a shard of its own.
        compression: of the records written.

    Raises:
        ValueError: formats that cannot be converted into each other.
        MissingLibraryError: pyarrow or warcio is needed and not installed.
        SchemaError, DecodeError: a record does not fit the columns of the Parquet file; nothing is written.
        FormatError: the records of the source are damaged; nothing is written.
    """
    report = ConvertReport(source=redact(os.fspath(source)), target=redact(os.fspath(target)))
    to = target_format or format_of(os.fspath(target))
    for given in (source_format, target_format):
        if given not in (None, "jsonl", "parquet", "warc", "tfrecord"):
            raise ValueError(f"{given!r} is no format; there are jsonl, parquet, warc and tfrecord")
    target_options = None if target_storage_options is None else dict(target_storage_options)
    if to == "warc":
        raise ValueError("WARC is a source only")
    if to != "tfrecord":
        if (source_format or format_of(os.fspath(source))) != "tfrecord":
            raise ValueError("one side of a conversion is TFRecord: convert in two steps")
        _need(to)
        async with (
            selected(source, storage=storage, storage_options=storage_options) as selection,
            located(target, storage=target_storage, storage_options=target_options) as (store, key),
        ):
            await _export(selection, store, key, to, report, progress)
        return report
    async with located(source, storage=storage, storage_options=storage_options) as (store, key):
        files, kind = await _files(store, key, source_format, report.source)
        _need(kind)
        if ".tfrec" in os.path.basename(os.fspath(target)):
            async with open_writer(
                target, compression=compression, storage=target_storage, storage_options=target_options
            ) as writer:
                for file, info in files:
                    report.files.append(file)
                    async with _opener(kind)(store, info.key, path=file) as reading:
                        async for converted in reading:
                            report.note(converted)
                            await writer.write_many(converted.records)
                            report.records += len(converted.records)
            return report
        async with dataset_at(target, storage=target_storage, storage_options=target_options) as (folder, name):
            done = 0
            total = sum(info.size for _, info in files)
            for file, info in files:
                await _import(store, info, file, kind, folder, name, max_shard_bytes, compression, report)
                done += info.size
                progress(done, total)
    return report


async def _files(store: Storage, key: str, given: str | None, shown: str) -> tuple[list[tuple[str, ObjectInfo]], str]:
    """The source files with the names they are known by, and their format."""
    name = key.rpartition("/")[2]
    prefix = key[: len(key) - len(name)]
    found: list[ObjectInfo] = []
    if any(character in name for character in "*?["):
        found = [
            info
            async for info in store.list_objects(prefix)
            if "/" not in info.key[len(prefix) :] and fnmatchcase(info.key[len(prefix) :], name)
        ]
    else:
        if name:
            try:
                found = [await store.head(key)]
            except ObjectNotFoundError:
                prefix = f"{key}/"
        if not found:
            below = [info async for info in store.list_objects(prefix) if is_data(info.key[len(prefix) :])]
            found = [info for info in below if format_of(info.key) == (given or format_of(info.key)) != "tfrecord"] or (
                below if given else []
            )
    if not found:
        raise ObjectNotFoundError(f"{shown}: there is no file to be converted; --from (source_format) names its format")
    kinds = {given or format_of(info.key) for info in found}
    if len(kinds) > 1:
        raise ValueError(f"{shown}: files of several formats ({', '.join(sorted(kinds))}); give a pattern for one")
    if kinds == {"tfrecord"}:
        raise ValueError(
            f"{shown}: no suffix of a format to convert from (.jsonl, .parquet, .warc, .warc.gz); name it with --from "
            "(source_format), or use reshard or copy for records"
        )
    return [(info.key[len(prefix) :], info) for info in found], kinds.pop()


async def _import(
    store: Storage,
    info: ObjectInfo,
    file: str,
    kind: str,
    folder: Storage,
    name: str,
    max_shard_bytes: int | None,
    compression: str | int | CompressionOptions | None,
    report: ConvertReport,
) -> None:
    """Convert one file, unless that was done; all of it, or what is missing."""
    manifest = await load_manifest(folder, name, path=report.target)
    writer_id = (
        "c" + hashlib.blake2b(f"{file}\0{info.size}".encode("utf-8", "surrogateescape"), digest_size=6).hexdigest()
    )
    before = _writers(manifest, writer_id)
    if any(before.values()):
        report.done_before.append(file)
        return
    report.files.append(file)
    async with AsyncExitStack() as stack:
        reading = await stack.enter_async_context(_opener(kind)(store, info.key, path=file))
        writer = await stack.enter_async_context(
            open_sharded_writer(
                name,
                max_shard_bytes=max_shard_bytes,
                compression=compression,
                # A name of its own: what an interrupted run left unfinished has another.
                writer_id=f"{writer_id}.{secrets.token_hex(3)}",
                # What an interrupted run committed of this file is not written again.
                on_duplicate="skip" if before else "write",
                on_error="discard",  # committing would close the writer, as if the file were done
                schema=_schema_of(kind),
                metadata={f"source {writer_id}": {"file": file, "bytes": info.size, "format": kind}},
                storage=folder,
            )
        )
        number = 0
        async for converted in reading:
            report.note(converted)
            for record in converted.records:
                await writer.write(record, key=f"{file}#{number}")
                number += 1
        stats = writer.stats()
        report.records += stats.records


def _writers(manifest: Manifest | None, writer_id: str) -> dict[str, bool]:
    """The writers of one source file, and whether they finished it."""
    writers = manifest.writers.items() if manifest is not None else ()
    return {each: state.closed for each, state in writers if each.startswith(f"{writer_id}.")}


async def _export(
    selection: Selection, store: Storage, key: str, to: str, report: ConvertReport, progress: Progress
) -> None:
    schema = selection.schema
    if to == "parquet" and schema is None:
        schema = await _inferred(selection)
    encoder = await in_thread(_encoder, to, schema, key.endswith(".gz"))
    report.files = [shard.shown for shard in selection.shards]
    async with store.open_sink(key) as sink, AsyncExitStack() as stack:
        chunks = ChunkWriter(sink)
        held: list[bytes] = []

        async def send(data: bytes) -> None:
            if data:
                await chunks.write([data])

        seen = 0
        async for found in RecordStream(selection, (), stack):
            held += [each.data for each in found]
            while len(held) >= _BATCH or (held and sum(map(len, held)) >= _BATCH_BYTES):
                batch, held = held[:_BATCH], held[_BATCH:]
                await send(await in_thread(encoder.encode, batch))
            report.records += len(found)
            seen += sum(len(each.data) for each in found)
            progress(min(seen, selection.bytes), selection.bytes)
        if held:
            await send(await in_thread(encoder.encode, held))
        await send(await in_thread(encoder.finish))
        await chunks.finish()


async def _inferred(selection: Selection) -> Mapping[str, Any]:
    """The schema of all records, by a pass over them."""
    merged: Schema | None = None
    async with AsyncExitStack() as stack:
        async for found in RecordStream(selection, (), stack):
            schema = await in_thread(Schema.infer, [each.data for each in found])
            merged = schema if merged is None else merged.merge(schema)
    return (merged or Schema({})).to_json()


def _encoder(to: str, schema: Mapping[str, Any] | None, compressed: bool) -> _Encoder:
    from asyncrec.tools.jsonvalues import lists_of

    if to == "jsonl":
        from asyncrec.tools.formats.jsonl import JsonLinesEncoder

        return JsonLinesEncoder(lists=lists_of(schema), compressed=compressed)
    from asyncrec.tools.formats.parquet import ParquetEncoder

    assert schema is not None, "inferred where nothing says it"
    return ParquetEncoder(schema)


def _opener(kind: str) -> Callable[..., AbstractAsyncContextManager[AsyncIterator[Converted]]]:
    if kind == "jsonl":
        from asyncrec.tools.formats.jsonl import open_lines

        return open_lines
    if kind == "parquet":
        from asyncrec.tools.formats.parquet import open_parquet

        return open_parquet
    from asyncrec.tools.formats.warc import open_warc

    return open_warc


def _schema_of(kind: str) -> Schema | None:
    if kind != "warc":
        return None
    from asyncrec.tools.formats.warc import SCHEMA

    return SCHEMA


def _need(kind: str) -> None:
    library = _NEEDS.get(kind)
    if library and importlib.util.find_spec(library) is None:
        raise MissingLibraryError(f"{kind} needs {library}, which is not installed: pip install {library}")
