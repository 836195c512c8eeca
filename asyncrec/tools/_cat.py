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
    """Return one record: by its number among all records of ``path``, counted from 0 (from the end if negative), or by
    the key with which it was written. In a data set it is read directly. In other files all records before it are read,
    and if the number is negative, the records are counted first.

    Args:
        newest: a feature, such as ``"date"``: if several records have the key, the newest is returned (see
            `asyncrec.open_dataset`), not the first committed.
        max_record_bytes: as for `asyncrec.open_reader`; longer records that a manifest allows are read in any case.

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
    """Do the same as `get_record`, for an open selection."""
    if key is not None:
        async with keyed_dataset(selection, newest) as dataset:
            with _of_converted(dataset):
                number = await dataset.find(key)
            return _found(selection, dataset, number, await dataset.get(number))
    assert record is not None, "one of the two is given"
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
    """Add a note on the form of the keys in a converted data set to the error for a missing key."""
    try:
        yield
    except RecordKeyError as error:
        if any(name.startswith("source ") for name in dataset.manifest.metadata):
            error.add_note(
                "records that 'asyncrec convert' wrote have keys of the form '<file>#<number>', such as "
                "rows.jsonl#0; pages from WARC files have their URLs as keys"
            )
        raise
