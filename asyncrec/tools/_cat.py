"""`get_record` reads one of the records that a path names, by its number or its key."""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import AsyncExitStack
from typing import Any

import numpy as np

from asyncrec._arguments import Size
from asyncrec._framing.frames import MAX_RECORD_BYTES
from asyncrec._sampling.random_access.dataset import Dataset
from asyncrec.errors import DatasetError, RecordIndexError, RecordKeyError
from asyncrec.storage._base import Storage
from asyncrec.tools._count import counts_of
from asyncrec.tools._head import FoundRecord, RecordStream
from asyncrec.tools._selection import Selection, selected


async def get_record(
    path: str | os.PathLike[str],
    *,
    record: int | None = None,
    key: str | None = None,
    max_record_bytes: Size = MAX_RECORD_BYTES,
    storage: Storage | None = None,
    storage_options: Mapping[str, Any] | None = None,
) -> FoundRecord:
    """Return one record: by its number among all records of ``path``, counted from 0 (from the end if negative), or by
    the key it was written with. From a data set it is read directly; in other files all records before it are read, and
    if the number is negative, the records are counted first.

    Args:
        max_record_bytes: as for `asyncrec.open_reader`; longer records that a manifest allows are read in any case.

    Raises:
        IndexError: there is no such record.
        KeyError: no record has the key.
        DatasetError: a key, and what ``path`` names has no keys.
        FormatError: it is damaged.
    """
    async with selected(
        path, max_record_bytes=max_record_bytes, storage=storage, storage_options=storage_options
    ) as selection:
        return await record_of(selection, record=record, key=key)


async def record_of(selection: Selection, *, record: int | None, key: str | None) -> FoundRecord:
    """As `get_record`, of what is selected already."""
    if len(selection.datasets) == 1 and selection.kind == "data set":
        found = selection.datasets[0]
        dataset = Dataset(found.folder, found.name, found.manifest)
        if key is not None:
            try:
                record = await dataset.find(key)
            except RecordKeyError as error:
                if any(name.startswith("source ") for name in found.manifest.metadata):
                    error.add_note(
                        "records that 'asyncrec convert' wrote have keys of the form '<file>#<number>', such as "
                        "rows.jsonl#0; pages from WARC files have their URLs as keys"
                    )
                raise
        assert record is not None, "one of the two is given"
        data = await dataset.get(record)
        number = record if record >= 0 else len(dataset) + record
        shard = int(np.searchsorted(dataset.starts, number, side="right")) - 1
        return FoundRecord(selection.shards[shard].display_path, number, data)
    if key is not None:
        raise DatasetError(f"{selection.path}: only a data set has keys; pass the folder and name of a data set")
    assert record is not None, "one of the two is given"
    number = record if record >= 0 else record + sum(await counts_of(selection))
    seen = 0
    async with AsyncExitStack() as stack:
        async for records in RecordStream(selection, (), stack):
            if seen <= number < seen + len(records):
                return records[number - seen]
            seen += len(records)
    raise RecordIndexError(f"{selection.path}: there is no record {record}; the file or data set has {seen:,} records")
