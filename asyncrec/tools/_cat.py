"""`get_record` reads one record of a path, by its number or its key."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import AsyncExitStack, contextmanager
from typing import Any

import numpy as np

from asyncrec._arguments import Size
from asyncrec._framing.frames import MAX_RECORD_BYTES
from asyncrec._sampling.random_access.dataset import Dataset
from asyncrec.errors import ArgumentValueError, RecordIndexError, RecordKeyError
from asyncrec.storage._base import Storage
from asyncrec.tools._count import counts_of
from asyncrec.tools._head import FoundRecord, RecordStream
from asyncrec.tools._newest import keyed_dataset
from asyncrec.tools._selection import Selection, selected


async def get_record(
    path: str | os.PathLike[str],
    *,
    record: int | None = None,
    key: str | None = None,
    newest: str | None = None,
    max_record_bytes: Size = MAX_RECORD_BYTES,
    storage: Storage | None = None,
    storage_options: Mapping[str, Any] | None = None,
) -> FoundRecord:
    """Return one record of ``path``, by its number or by its key.

    Numbers count all records of ``path`` from 0; negative numbers count from the end. The key is that with which the
    record was written. A record of a data set is read directly. In other files, all records before it are read, and for
    a negative number, the records are counted first.

    Args:
        newest: a feature, such as ``"date"``, by which the newest of several records with the key is chosen (see
            `asyncrec.open_dataset`) rather than the first committed.
        max_record_bytes: as for `asyncrec.open_reader`; longer records that a manifest allows are always read.

    Raises:
        IndexError: there is no such record.
        KeyError: no record has the key.
        ValueError: the values of the feature ``newest`` have no order, or no key was passed.
        DatasetError: a key was passed, but ``path`` has no keys.
        FormatError: the file is damaged.
    """
    if newest is not None and key is None:
        raise ArgumentValueError("newest was passed without a key; only records with one key have versions")
    async with selected(
        path, max_record_bytes=max_record_bytes, storage=storage, storage_options=storage_options
    ) as selection:
        return await record_of(selection, record=record, key=key, newest=newest)


async def record_of(selection: Selection, *, record: int | None, key: str | None, newest: str | None) -> FoundRecord:
    """Return one record of an open selection, as `get_record` does."""
    if key is not None:
        async with keyed_dataset(selection, newest) as dataset:
            with _of_converted(dataset):
                number = await dataset.find(key)
            return _found(selection, dataset, number, await dataset.get(number))
    assert record is not None, "a record or a key is passed"
    if len(selection.datasets) == 1 and selection.kind == "data set":
        async with keyed_dataset(selection, None) as dataset:
            return _found(selection, dataset, record % max(1, len(dataset)), await dataset.get(record))
    number = record if record >= 0 else record + sum(await counts_of(selection))
    seen = 0
    async with AsyncExitStack() as stack:
        async for records in RecordStream(selection, (), stack):
            if seen <= number < seen + len(records):
                return records[number - seen]
            seen += len(records)
    raise RecordIndexError(f"{selection.path}: there is no record {record}; the file or data set has {seen:,} records")


async def versions_of(selection: Selection, key: str, newest: str | None) -> list[FoundRecord]:
    """Return all versions of a key, in the order of `asyncrec.Dataset.history`."""
    async with keyed_dataset(selection, newest) as dataset:
        with _of_converted(dataset):
            numbers, records = await dataset.numbered_history(key)
        return [
            _found(selection, dataset, number, record) for number, record in zip(numbers.tolist(), records, strict=True)
        ]


def _found(selection: Selection, dataset: Dataset, number: int, data: bytes) -> FoundRecord:
    shard = int(np.searchsorted(dataset.starts, number, side="right")) - 1
    return FoundRecord(selection.shards[shard].display_path, number, data)


@contextmanager
def _of_converted(dataset: Dataset) -> Iterator[None]:
    """If the data set was converted, add a note to the error for a missing key that shows what its keys look like."""
    try:
        yield
    except RecordKeyError as error:
        if any(name.startswith("source ") for name in dataset.manifest.metadata):
            error.add_note(
                "records that 'asyncrec convert' wrote have keys of the form '<file>#<number>', such as "
                "rows.jsonl#0; pages from WARC files have their URLs as keys"
            )
        raise
