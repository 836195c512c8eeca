"""`get_tfrecord_filepaths` and `generate_dataset` read examples back as tuples in declared order."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from fnmatch import fnmatchcase
from os import PathLike, fspath
from typing import Any

from asyncrec._arguments import Size
from asyncrec._concurrency.forks import on_fork
from asyncrec._concurrency.tasks import Handover, TaskScope, in_thread
from asyncrec._datasets.reading.reader import open_folder
from asyncrec._framing.frames import MAX_RECORD_BYTES
from asyncrec._records.reading.reader import open_reader
from asyncrec._shards.manifest.manifest import Manifest
from asyncrec._shards.manifest.names import may_be_shard
from asyncrec._shards.manifest.snapshot import load_manifests
from asyncrec.errors import DatasetError, DecodeError, ObjectNotFoundError, SchemaError
from asyncrec.example._declared import DeclaredExample
from asyncrec.example._schema import Schema
from asyncrec.storage._base import Storage
from asyncrec.storage._url import join, redact

_DATA_FILES = "*.tfrec*"

Path = str | PathLike[str]
_Decode = Callable[[bytes], tuple[Any, ...]]


async def get_tfrecord_filepaths(
    dirpath: Path, *, storage: Storage | None = None, storage_options: dict[str, Any] | None = None
) -> list[str]:
    """Return the paths of the TFRecord files in a folder, in the order of their names.

    These are the shards that the folder's manifests list or, without a manifest, the data files ``*.tfrec*``.
    Subfolders are not searched. With ``storage``, the paths are keys in it.

    Raises:
        ObjectNotFoundError: the folder has no such file.
    """
    text = fspath(dirpath).rstrip("/") or fspath(dirpath)
    async with open_folder(text, storage, storage_options) as folder:
        manifests = list((await load_manifests(folder)).values())
        if manifests:
            keys = [path for manifest in manifests for path in manifest.shards.paths()]
        else:
            keys = [
                info.key
                async for info in folder.list_objects()
                if "/" not in info.key and may_be_shard(info.key) and fnmatchcase(info.key, _DATA_FILES)
            ]
    if not keys:
        raise ObjectNotFoundError(
            f"{redact(text)}: this folder has neither a manifest nor a file that matches {_DATA_FILES}; pass the "
            "folder that holds the TFRecord files, such as .../train"
        )
    return [join(text, key) for key in sorted(keys)]


class TupleReader:
    """A reader of examples as tuples, opened by `generate_dataset`. Iterate over it once, in one task.

    Attributes:
        names: the names of the features, in their order in each tuple.
    """

    def __init__(self, names: Sequence[str], received: Handover[list[tuple[Any, ...]]]) -> None:
        self.names = tuple(names)
        self._received = received
        self._tuples = iter(list[tuple[Any, ...]]())
        on_fork(self)

    def forked(self) -> None:
        """Discard the tuples in the child of a fork, where further reading raises an error."""
        self._tuples = iter(list[tuple[Any, ...]]())

    def __aiter__(self) -> TupleReader:
        return self

    async def __anext__(self) -> tuple[Any, ...]:
        while True:
            for values in self._tuples:
                return values
            self._tuples = iter(await self._received.take())


@asynccontextmanager
async def generate_dataset(
    filepaths: Path | Sequence[Path],
    example_class: type[DeclaredExample] | None = None,
    *,
    max_record_bytes: Size = MAX_RECORD_BYTES,
    storage: Storage | None = None,
    storage_options: dict[str, Any] | None = None,
) -> AsyncIterator[TupleReader]:
    """Read examples: ``async with generate_dataset(paths) as dataset: async for label, data in dataset: ...``.

    Each example is a tuple of its fields, in the order of declaration. Files are read in the order of ``filepaths``.
    Examples are decoded in a worker thread while you process the previous examples.

    Args:
        filepaths: one path, or a list of paths such as `get_tfrecord_filepaths` returns.
        example_class: the class that declares the fields; by default, the schema in the manifest of the folder is used.
        max_record_bytes: as for `open_reader`.
        storage: an open `Storage`, which is used but not closed. Paths are then keys in it.
        storage_options: options for the backend, if this call opens the storage.

    Raises:
        DatasetError: on opening, no class was passed and no schema is stored, or ``filepaths`` is empty.
        SchemaError: on opening, the schemas of the files differ. While reading, a record lacks a field, and the message
            names the path and the record.
        DecodeError, CorruptRecordError, TruncatedError, StorageError: reading failed. All tuples before were yielded.
    """
    paths = [fspath(filepaths)] if isinstance(filepaths, str | PathLike) else [fspath(path) for path in filepaths]
    if not paths:
        raise DatasetError("the list of files is empty; use get_tfrecord_filepaths to find the files of a folder")
    if example_class is not None:
        names, decode = list(example_class.fields()), example_class.decode
    else:
        schema = await stored_schema(paths, storage, storage_options)
        names, decode = list(schema.features), lambda record: tuple(schema.decode(record).values())
    batches = Handover[list[tuple[Any, ...]]](1, f"{redact(paths[0])}: the reader")  # a few hundred KiB ahead
    reader = TupleReader(names, batches)
    opening = {"max_record_bytes": max_record_bytes, "storage": storage, "storage_options": storage_options}

    async def feed() -> None:
        """Read the files into ``batches``. Run this in a separate task, which also closes them if it is cancelled."""
        try:
            for path in paths:
                await _feed_file(path, decode, batches, opening)
        except Exception as error:
            batches.end(error)
        else:
            batches.end()

    async with TaskScope() as scope:
        scope.start_soon(feed)
        try:
            yield reader
        finally:
            scope.cancel()
            batches.close()


async def _feed_file(
    path: str, decode: _Decode, batches: Handover[list[tuple[Any, ...]]], opening: dict[str, Any]
) -> None:
    before = 0
    async with open_reader(path, **opening) as reader:
        async for records in reader.batches():
            decoded, error = await in_thread(_decoded, records, decode, f"{redact(path)}, record ", before)
            if decoded:
                await batches.put(decoded)
            if error is not None:
                raise error
            before += len(records)


def _decoded(
    records: list[bytes], decode: _Decode, where: str, before: int
) -> tuple[list[tuple[Any, ...]], Exception | None]:
    """Return the tuples of all records up to the first that cannot be decoded, and that record's error, or `None`."""
    tuples: list[tuple[Any, ...]] = []
    for record in records:
        try:
            tuples.append(decode(record))
        except (SchemaError, DecodeError) as error:
            return tuples, type(error)(f"{where}{before + len(tuples)}: {error}")
    return tuples, None


async def stored_schema(paths: list[str], storage: Storage | None, storage_options: dict[str, Any] | None) -> Schema:
    """Return the common schema of all files, from the manifests of their folders.

    Raises:
        DatasetError: one of the files is in no manifest, or its manifest has no schema.
        SchemaError: the schemas differ.
    """
    listed: dict[str, dict[str, Manifest]] = {}
    found: Schema | None = None
    first = paths[0]
    for path in paths:
        parent, slash, name = path.rpartition("/")
        if parent + slash not in listed:
            async with open_folder(parent + slash, storage, storage_options) as folder:
                manifests = list((await load_manifests(folder)).values())
            listed[parent + slash] = {path: manifest for manifest in manifests for path in manifest.shards.paths()}
        manifest = listed[parent + slash].get(name)
        if manifest is None or manifest.schema is None:
            raise DatasetError(
                f"{redact(path)}: the file has no schema, because no manifest in its folder lists it with one; pass "
                "example_class="
            )
        schema = Schema.from_json(manifest.schema)
        if found is not None and schema != found:
            raise SchemaError(f"{redact(path)} and {redact(first)} have different schemas; read them separately")
        found = schema
    assert found is not None, "paths is not empty"
    return found
