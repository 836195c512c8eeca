"""`from_csv`, `from_folder`: a table, or files in folders named by their label, become train, eval and test.

    target/train-<writer>-000000.tfrecord ...   and _manifest/train/, _index/ beside them: the data set target/train
    target/eval-...   target/test-...

What is there of these names is replaced, by the last step only. The manifest of each holds the schema and, under
``labels``, the names of the classes: the label of a record is a number, its place in that list.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from asyncrec._concurrency.tasks import in_thread
from asyncrec._datasets.from_csv.csv_rows import CsvRows
from asyncrec._datasets.from_csv.ordered_map import work_in_order
from asyncrec._datasets.from_csv.partition import deal, weights_of
from asyncrec._framing.compression import CompressionOptions
from asyncrec._framing.frames import MAX_RECORD_BYTES
from asyncrec._shards.manifest.names import is_data
from asyncrec._shards.writing.open import open_sharded_writer
from asyncrec.errors import DatasetError
from asyncrec.example._codec import encode_example
from asyncrec.example._entries import Entry
from asyncrec.example._kinds import FixedLen
from asyncrec.example._schema import Schema
from asyncrec.storage._base import Storage
from asyncrec.storage._prefixed import PrefixedStorage
from asyncrec.storage._registry import located
from asyncrec.storage._url import redact

__all__ = ["SplitsReport", "from_csv", "from_folder"]

Progress = Callable[[int, int | None], None]

# Files read at once: enough to hide a disk's and most of a store's delays, and as many are in memory.
_CONCURRENT = 8
# Of records that wait for the store, of each split.
_MEMORY_LIMIT = 64 << 20


@dataclass(slots=True, kw_only=True)
class SplitsReport:
    """What was written: records of each split, and the names of the classes in the order of their numbers."""

    source: str
    target: str
    records: dict[str, int] = field(default_factory=dict)
    labels: list[str] = field(default_factory=list)
    features: list[str] = field(default_factory=list)

    def to_json(self) -> dict[str, Any]:
        return {
            "source": self.source,
            "target": self.target,
            "records": self.records,
            "labels": self.labels,
            "features": self.features,
        }


@dataclass(frozen=True, slots=True)
class _Job:
    """An example to be made: what is known of it, and the keys of the files whose bytes belong to it."""

    split: str
    features: Mapping[str, Any]
    files: Mapping[str, str]


async def from_csv(
    source: str | os.PathLike[str],
    target: str | os.PathLike[str],
    *,
    label: str | None = None,
    files: Sequence[str] = (),
    ratios: float | Sequence[float] = 0.8,
    seed: int = 0,
    max_shard_bytes: int | None = None,
    compression: str | int | CompressionOptions | None = "",
    encoding: str = "utf-8",
    progress: Progress = lambda done, total: None,
    storage: Storage | None = None,
    storage_options: Mapping[str, Any] | None = None,
    target_storage: Storage | None = None,
    target_storage_options: Mapping[str, Any] | None = None,
) -> SplitsReport:
    """Rows of a CSV file, whose first names the columns, become train, eval and test.

    A column whose every cell is a whole number becomes an int64 feature, one of numbers float32, any other text. The
    file is held in memory.

    Args:
        label: a column whose values are classes: numbered in their order, and each split gets its share of each.
        files: columns that hold paths, relative to the CSV file; the feature is the bytes of the file.
        ratios: 0.8 to train and the rest to eval; or two, or three for train, eval and test.
        seed: of the order.

    Raises:
        DatasetError: a row with other than the header's number of cells, a column that is not there, no row for a
            split, or a file of another encoding.
        ObjectNotFoundError: a file that a row names is not there. Nothing is changed.
    """
    report = SplitsReport(source=redact(os.fspath(source)), target=redact(os.fspath(target)))
    weights = weights_of(ratios)
    async with AsyncExitStack() as stack:
        store, key = await stack.enter_async_context(located(source, storage=storage, storage_options=storage_options))
        content = await store.get(key)
        table = await in_thread(partial(_Table, content, report.source, encoding, label, tuple(files)))
        folder = key[: key.rfind("/") + 1]
        report.labels = table.labels
        strata = table.strata
        dealt = await in_thread(partial(deal, strata, weights, seed=seed))
        jobs = (
            _Job(name, table.features(row), {column: folder + path for column, path in table.files(row).items()})
            for name, rows in dealt.items()
            for row in rows
        )
        await _write(
            stack, store, target, target_storage, target_storage_options, report,
            {name: len(rows) for name, rows in dealt.items()}, jobs, table.schema, seed,
            max_shard_bytes, compression, progress,
        )  # fmt: skip
    return report


async def from_folder(
    source: str | os.PathLike[str],
    target: str | os.PathLike[str],
    *,
    ratios: float | Sequence[float] = 0.8,
    seed: int = 0,
    max_shard_bytes: int | None = None,
    compression: str | int | CompressionOptions | None = "",
    progress: Progress = lambda done, total: None,
    storage: Storage | None = None,
    storage_options: Mapping[str, Any] | None = None,
    target_storage: Storage | None = None,
    target_storage_options: Mapping[str, Any] | None = None,
) -> SplitsReport:
    """Files in folders that are named by their label (``cats/1.png``, ``dogs/2.png``) become train, eval and test.

    A record holds ``data`` (the bytes of the file), ``label`` (the number of its folder's name among all in their
    order) and ``path`` (relative to ``source``). Names that begin with ``_`` or ``.`` are left out. Each split gets its
    share of each label.

    Raises:
        DatasetError: there is no file in a folder, or none for a split.
    """
    report = SplitsReport(source=redact(os.fspath(source)), target=redact(os.fspath(target)))
    weights = weights_of(ratios)
    async with AsyncExitStack() as stack:
        store, key = await stack.enter_async_context(located(source, storage=storage, storage_options=storage_options))
        prefix = f"{key.rstrip('/')}/" if key else ""
        paths = [
            info.key[len(prefix) :]
            async for info in store.list_objects(prefix)
            if "/" in info.key[len(prefix) :] and is_data(info.key[len(prefix) :])
        ]
        if not paths:
            raise DatasetError(f"{report.source}: no files in folders; a folder's name is the label of what is in it")
        strata = [path.partition("/")[0] for path in paths]
        report.labels = sorted(set(strata))
        numbers = {name: number for number, name in enumerate(report.labels)}
        dealt = await in_thread(partial(deal, strata, weights, seed=seed))
        jobs = (
            _Job(name, {"label": numbers[strata[row]], "path": paths[row]}, {"data": prefix + paths[row]})
            for name, rows in dealt.items()
            for row in rows
        )
        schema = Schema({"data": FixedLen((), "bytes"), "label": FixedLen((), "int64"), "path": FixedLen((), "bytes")})
        await _write(
            stack, store, target, target_storage, target_storage_options, report,
            {name: len(rows) for name, rows in dealt.items()}, jobs, schema, seed,
            max_shard_bytes, compression, progress,
        )  # fmt: skip
    return report


async def _write(
    stack: AsyncExitStack,
    store: Storage,
    target: str | os.PathLike[str],
    target_storage: Storage | None,
    target_storage_options: Mapping[str, Any] | None,
    report: SplitsReport,
    sizes: Mapping[str, int],
    jobs: Iterator[_Job],
    schema: Schema,
    seed: int,
    max_shard_bytes: int | None,
    compression: str | int | CompressionOptions | None,
    progress: Progress,
) -> None:
    empty = [name for name, size in sizes.items() if not size]
    if empty:
        raise DatasetError(f"{report.source}: {sum(sizes.values()):,} examples, of which none is left for {empty[0]!r}")
    out, key = await stack.enter_async_context(
        located(target, storage=target_storage, storage_options=target_storage_options)
    )
    folder = PrefixedStorage(out, key) if key else out
    report.features = sorted(schema.features)
    done = 0
    async with AsyncExitStack() as writing:
        writers = {
            name: await writing.enter_async_context(
                open_sharded_writer(
                    name,
                    mode="replace",
                    max_shard_bytes=max_shard_bytes,
                    compression=compression,
                    schema=schema,
                    metadata={"split": name, "labels": report.labels, "seed": seed, "source": report.source},
                    memory_limit=_MEMORY_LIMIT,
                    storage=folder,
                )
            )
            for name in sizes
        }

        async def work(job: _Job) -> bytes:
            features = dict(job.features)
            for name, file in job.files.items():
                features[name] = await store.get(file, max_bytes=MAX_RECORD_BYTES)
            return encode_example(features, narrow=True)

        async def use(job: _Job, record: bytes) -> None:
            nonlocal done
            await writers[job.split].write(record)
            done += 1
            progress(done, sum(sizes.values()))

        await work_in_order(jobs, work, use, concurrency=_CONCURRENT)
        for writer in writers.values():
            await writer.flush()  # a disk that is full says so before anything is replaced
    report.records = dict(sizes)


class _Table:
    """A CSV file with a header: its columns by name, with their types. Blocks."""

    def __init__(self, content: bytes, path: str, encoding: str, label: str | None, files: tuple[str, ...]) -> None:
        self._rows = CsvRows(content, path=path, encoding=encoding)
        self._columns = self._rows[0]
        self._label = label
        self._files = files
        if len(set(self._columns)) < len(self._columns) or "" in self._columns:
            raise DatasetError(f"{path}: the first row names the columns, each by a name of its own: {self._columns}")
        for name in (*files, *([label] if label is not None else [])):
            if name not in self._columns:
                raise DatasetError(f"{path}: there is no column {name!r}; there are {', '.join(self._columns)}")
        kinds = dict.fromkeys(self._columns, "int64")
        values: set[str] = set()
        for number in range(1, len(self._rows)):
            row = self._rows[number]
            if len(row) != len(self._columns):
                raise DatasetError(f"{self._rows.where(number)}: {len(row)} cells for {len(self._columns)} columns")
            for name, cell in zip(self._columns, row, strict=True):
                kinds[name] = _kind(cell, kinds[name])
            if label is not None:
                values.add(row[self._columns.index(label)])
        self._kinds = kinds
        self.labels = sorted(values)
        self._numbers = {name: number for number, name in enumerate(self.labels)}

    @property
    def strata(self) -> list[str | None]:
        if self._label is None:
            return [None] * (len(self._rows) - 1)
        at = self._columns.index(self._label)
        return [self._rows[number][at] for number in range(1, len(self._rows))]

    @property
    def schema(self) -> Schema:
        entries: dict[str, Entry] = {}
        for name in self._columns:
            kind = "bytes" if name in self._files else "int64" if name == self._label else self._kinds[name]
            entries[name] = FixedLen((), kind)
        return Schema(entries)

    def features(self, row: int) -> dict[str, Any]:
        convert = {"int64": int, "float32": float, "bytes": str}
        values: dict[str, Any] = {}
        for name, cell in zip(self._columns, self._rows[row + 1], strict=True):
            if name == self._label:
                values[name] = self._numbers[cell]
            elif name not in self._files:
                values[name] = convert[self._kinds[name]](cell)
        return values

    def files(self, row: int) -> dict[str, str]:
        cells = dict(zip(self._columns, self._rows[row + 1], strict=True))
        return {name: cells[name] for name in self._files}


def _kind(cell: str, before: str) -> str:
    """The type of a column with one more cell."""
    if before == "int64":
        try:
            if -(1 << 63) <= int(cell) < 1 << 63 and "_" not in cell:
                return "int64"
        except ValueError:
            pass
    if before != "bytes":
        try:
            float(cell)
        except ValueError:
            return "bytes"
        return "float32" if "_" not in cell else "bytes"
    return "bytes"
