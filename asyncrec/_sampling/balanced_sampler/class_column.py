"""`ClassColumn` contains the class of every record in a data set. If the class is a feature, the column is stored.

The object ``_classes/<name>-<hash>.npz`` contains ``codes``, an int32 for each record in order, and ``labels``, as
JSON. The hash covers the snapshot, the feature, and the versions of files that no manifest lists, so each snapshot has
its own object. The object may be deleted at any time, because the next sampler rebuilds it. Another user of the store
may have replaced the object, so reading it never unpacks more bytes than a column for this data set can have. An object
that is not a column of this data set is overwritten.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import logging
import threading
import zipfile
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Literal

import anyio
import numpy as np
from numpy.typing import NDArray

from asyncrec._concurrency.map import concurrently
from asyncrec._concurrency.tasks import TaskScope, in_thread
from asyncrec._framing.compression import parse_reading_compression
from asyncrec._records.reading.reader import RecordReader, open_reader_in
from asyncrec._sampling.random_access.dataset import Dataset
from asyncrec.errors import ArgumentTypeError, DatasetError, DecodeError, ObjectNotFoundError, SchemaError, StorageError
from asyncrec.example._codec import decode_example
from asyncrec.example._kinds import FixedLen
from asyncrec.example._schema import Schema
from asyncrec.storage._url import join

_log = logging.getLogger("asyncrec.sampling")

# The number of worker threads, and the number of local shards read at once. The threads decode records and hold the GIL
# most of the time, so more threads would not help. With a remote store, reading twice as many shards hides the latency.
# With even more shards, the data would leave the processor's cache before it is decoded.
_THREADS = _SHARDS_AT_ONCE = 4
_SHARDS_AT_ONCE_REMOTE = 8
# The maximum size of the labels in a stored column, in bytes. It is enough for hundreds of thousands of names. A column
# with larger labels is not stored.
_LABEL_BYTES = 16 << 20
_NO_EXAMPLES = "; class_feature works only for Examples; for other records, pass class_fn"
_UNEQUAL_CLASS = (
    "which is not equal to itself, so each such record would form a class of its own. Give these records "
    "another value, or use class_fn"
)
_NPY_HEADER_BYTES = 1 << 10
_DIRECTORY_BYTES = 1 << 10

ClassFn = Callable[[bytes], Hashable]
ClassesOf = Callable[[Sequence[bytes]], list[Any]]
FieldKind = Literal["int64", "float32", "bytes"]


@dataclass(frozen=True, slots=True)
class ClassColumn:
    """The class of every record. ``codes``, int32 (n,), contains the index of each record's class in ``labels``."""

    codes: NDArray[np.int32]
    labels: tuple[Any, ...]

    def of(self, numbers: NDArray[np.int64]) -> ClassColumn:
        """Return the column restricted to these records, without the labels that none of them uses."""
        used, codes = np.unique(self.codes[numbers], return_inverse=True)
        return ClassColumn(codes.astype(np.int32), tuple(self.labels[code] for code in used.tolist()))

    def digest(self) -> str:
        """Return a digest of the codes of all records: blake2b, 16 bytes, in hexadecimal."""
        return hashlib.blake2b(self.codes.astype("<i4").tobytes(), digest_size=16).hexdigest()


async def class_column(dataset: Dataset, *, feature: str | None, class_fn: ClassFn | None) -> ClassColumn:
    """Return the class of every record, from a single-valued feature or from a function that is called in threads.

    If the class is a feature, the column is stored for later samplers, unless the store is read-only. If the class is
    the result of a function, the column is not stored, because the function may have changed by the next call.

    Raises:
        SchemaError: a record does not have exactly one value of the feature, or its class is not equal to itself.
        DecodeError: ``class_fn`` raised an exception. The message names the record.
        FormatError: a record is damaged.
        DatasetError: the number of records in a shard differs from the number in the manifest.
    """
    if (feature is None) == (class_fn is None):
        raise ArgumentTypeError(
            "pass either class_feature (the name of a feature) or class_fn (a function of a record)"
        )
    if feature is None:
        assert class_fn is not None, "feature or class_fn is passed"
        return await _read(dataset, _by_function(class_fn))
    what = f"{dataset.manifest.id}\0{feature}"
    if dataset.versions.packed:
        what += f"\0{json.dumps(dataset.versions.packed)}"
    digest = hashlib.blake2b(what.encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()
    key = f"_classes/{dataset.name or 'all'}-{digest}.npz"
    column = await _load(dataset, key)
    if column is None:
        column = await _read(dataset, _by_feature(feature))
        await _store(dataset, key, column)
    return column


async def _load(dataset: Dataset, key: str) -> ClassColumn | None:
    try:
        content = await dataset.folder.get(key, max_bytes=_most_bytes(len(dataset)))
        return await in_thread(_parse, content, len(dataset))
    except ObjectNotFoundError:
        return None
    except ValueError as error:
        _log.warning(
            "%s: this file is not a valid cache of record classes (%s); it will be written again",
            key,
            error,
            extra={"path": join(dataset.folder.root, key)},
        )
        return None


async def _store(dataset: Dataset, key: str, column: ClassColumn) -> None:
    content = await in_thread(_encode, column)
    if len(content) > _most_bytes(len(dataset)):
        _log.info(
            "%s: the class of each record is cached in memory only, because the labels are too long for the file",
            key,
            extra={"path": join(dataset.folder.root, key)},
        )
        return
    try:
        await dataset.folder.put(key, content)
        _log.info(
            "%s: this file caches the class of each record; you can delete it at any time",
            key,
            extra={"path": join(dataset.folder.root, key)},
        )
    except StorageError as error:
        _log.info(
            "%s: the class of each record is cached in memory only: %s",
            key,
            error,
            extra={"path": join(dataset.folder.root, key)},
        )


async def _read(dataset: Dataset, classes_of: ClassesOf) -> ClassColumn:
    parts: dict[int, list[NDArray[np.int32]]] = {}
    codes: dict[Any, int] = {}
    coding = threading.Lock()

    def code(records: Sequence[bytes]) -> NDArray[np.int32]:
        labels = classes_of(records)
        found: list[int] = []
        with coding:  # without the lock, two threads could assign the same code to two labels
            for label in labels:
                if label not in codes:
                    if label != label:  # each NaN would form a class of its own, and NaNs cannot be sorted
                        raise _UnequalClass(len(found), label)
                    codes[label] = len(codes)
                found.append(codes[label])
        return np.array(found, np.int32)

    threads = anyio.CapacityLimiter(_THREADS)

    async def read(shard: int) -> None:
        entry = dataset.manifest.shards[shard]
        async with open_reader_in(
            dataset.folder,
            entry.path,
            info=dataset.files.version(shard),
            compression=parse_reading_compression(entry.compression),
            max_record_bytes=entry.max_record_bytes,
        ) as reader:
            async with TaskScope() as scope:
                scope.start_soon(read_all, shard, reader)
                await dataset.files.check(shard, reader.info)  # may send a request to a store
        count = sum(map(len, parts[shard]))
        if count != entry.records:
            raise DatasetError(f"{reader.path} has {count:,} records, but the manifest says {entry.records:,}")
        dataset.files.keep(shard, reader.info)

    async def read_all(shard: int, reader: RecordReader) -> None:
        parts[shard] = []
        count = 0
        async for records in reader.batches():
            try:
                parts[shard].append(await in_thread(code, records, limiter=threads))
            except _FailedAt as failed:
                cause = failed.__cause__
                place = f"{reader.path}, record {count + failed.index}"
                raise DecodeError(f"{place}: class_fn raised {type(cause).__name__}: {cause}") from cause
            except _UnequalClass as unequal:
                place = f"{reader.path}, record {count + unequal.index}"
                raise SchemaError(f"{place}: the record's class is {unequal.label!r}, {_UNEQUAL_CLASS}") from None
            except (DecodeError, SchemaError) as error:
                place = f"{reader.path}, among the records {count:,} to {count + len(records) - 1:,}"
                raise type(error)(f"{place}: {error}" + (_NO_EXAMPLES * isinstance(error, DecodeError))) from error
            count += len(records)

    tasks = _SHARDS_AT_ONCE_REMOTE if dataset.files.remote else _SHARDS_AT_ONCE
    await concurrently(read, range(len(dataset.manifest.shards)), tasks=tasks)
    coded = [part for shard in sorted(parts) for part in parts[shard]]
    found = np.concatenate(coded) if coded else np.empty(0, np.int32)
    labels = _ordered(codes, found)
    renumbered = np.empty(len(codes), np.int32)
    renumbered[[codes[label] for label in labels]] = np.arange(len(labels), dtype=np.int32)
    return ClassColumn(renumbered[found], tuple(labels))


def _ordered(codes: Mapping[Any, int], found: NDArray[np.int32]) -> list[Any]:
    """Return the labels in an order that does not depend on the order in which threads found them.

    Labels that cannot be sorted, such as sets or labels of several types, are in the order of their first records.
    """
    with contextlib.suppress(TypeError):
        labels = sorted(codes)
        if all(one < other for one, other in pairwise(labels)):  # false for sets, for which < means "is a subset of"
            return labels
    _, firsts = np.unique(found, return_index=True)
    return sorted(codes, key=lambda label: firsts[codes[label]])


class _FailedAt(Exception):
    """Raised if the class function fails for record ``index`` of a batch. Its cause is the function's exception."""

    def __init__(self, index: int) -> None:
        super().__init__(index)
        self.index = index


class _UnequalClass(Exception):
    """Raised if the class of record ``index`` of a batch is not equal to itself."""

    def __init__(self, index: int, label: Any) -> None:
        super().__init__(index, label)
        self.index = index
        self.label = label


def _by_function(function: ClassFn) -> ClassesOf:
    def classes_of(records: Sequence[bytes]) -> list[Any]:
        labels: list[Any] = []
        try:
            for record in records:
                label = function(record)
                hash(label)
                labels.append(label)
        except Exception as error:
            raise _FailedAt(len(labels)) from error
        return labels

    return classes_of


def _by_feature(feature: str) -> ClassesOf:
    def classes_of(records: Sequence[bytes]) -> list[Any]:
        # Decoding raises an error unless every record has a single value of the first record's type.
        there = decode_example(records[0])
        first = there.get(feature)
        if first is None:
            names = ", ".join(sorted(there)[:30]) or "nothing"
            raise SchemaError(
                f"a record has no feature {feature!r}, whose value is its class; its features are: {names}"
            )
        if len(first) != 1:
            raise SchemaError(f"feature {feature!r} has {len(first)} values; a class must be a single value")
        kind: FieldKind = "bytes" if isinstance(first, list) else "int64" if first.dtype == np.int64 else "float32"
        schema = Schema({feature: FixedLen((), kind)}, allow_extra=True)
        found: list[Any] = schema.decode_batch(records)[feature].tolist()
        return found

    return classes_of


def _encode(column: ClassColumn) -> bytes:
    labels = [label.hex() if isinstance(label, bytes) else label for label in column.labels]
    described = {"bytes": any(isinstance(label, bytes) for label in column.labels), "labels": labels}
    file = io.BytesIO()
    np.savez(file, codes=column.codes, labels=np.frombuffer(json.dumps(described).encode(), np.uint8))
    return file.getvalue()


def _most_bytes(records: int) -> int:
    """Return the maximum size in bytes of an encoded column of this many records."""
    return 4 * records + _LABEL_BYTES + 2 * _NPY_HEADER_BYTES + _DIRECTORY_BYTES


def _parse(content: bytes, records: int) -> ClassColumn:
    """Parse a column of ``records`` codes.

    Raises:
        ValueError: the content is not an encoded column of this many codes.
    """
    try:
        if _directory_bytes(content) > _DIRECTORY_BYTES:
            raise DatasetError("the file is not an archive of two arrays")
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            codes = _array(archive, "codes.npy", np.dtype("<i4"), most=records)
            text = _array(archive, "labels.npy", np.dtype(np.uint8), most=_LABEL_BYTES).tobytes()
        described = json.loads(text)
        labels = [bytes.fromhex(label) if described["bytes"] else label for label in described["labels"]]
        if not all(isinstance(label, bytes | int | float) for label in labels):
            raise DatasetError("a label must be a number or bytes")
        if len(dict.fromkeys(labels)) != len(labels) or any(label != label for label in labels):
            raise DatasetError("its labels are not distinct")
    except Exception as error:  # reading a damaged archive may raise any error of zipfile, zlib or NumPy
        raise DatasetError(f"{type(error).__name__}: {error}") from error
    if len(codes) != records:
        raise DatasetError(f"the file has {len(codes):,} classes for {records:,} records")
    known = not records or (codes.min() >= 0 and codes.max() < len(labels))
    if not known or not np.bincount(codes, minlength=len(labels)).all():
        raise DatasetError("the codes do not match the labels")
    return ClassColumn(codes, tuple(labels))


def _directory_bytes(content: bytes) -> int:
    """Return the size of an archive's directory in bytes. Reading a directory takes zipfile many times that memory."""
    if content[-42:-38] == b"PK\6\7":  # a Zip64 archive, which is larger than 2 GiB
        return int.from_bytes(content[-98:-42][40:48], "little")
    return int.from_bytes(content[-22:][12:16], "little") if content[-22:-18] == b"PK\5\6" else len(content)


def _array(archive: zipfile.ZipFile, name: str, dtype: np.dtype[Any], *, most: int) -> NDArray[Any]:
    """Return the one-dimensional array ``name``, which may have at most ``most`` values.

    Raises:
        DatasetError: the array has more values, is compressed, or has another version, type or shape.
    """
    if archive.getinfo(name).compress_type != zipfile.ZIP_STORED:  # deflated data may expand a thousandfold
        raise DatasetError(f"{name} is compressed, but must not be")
    limit = most * dtype.itemsize + _NPY_HEADER_BYTES
    with archive.open(name) as file:
        content = file.read(limit + 1)
    if len(content) > limit:
        raise DatasetError(f"{name} has more than {most:,} values")
    data = io.BytesIO(content)
    if np.lib.format.read_magic(data) != (1, 0):
        raise DatasetError(f"{name} has an unknown version")
    shape, _, found = np.lib.format.read_array_header_1_0(data)
    if len(shape) != 1 or found != dtype:
        raise DatasetError(f"{name} has the type {found} and the shape {shape}")
    return np.frombuffer(content, dtype, shape[0], data.tell()).copy()
