"""`filter` writes the records that meet conditions to a new data set or a new file.

With ``newest``, only the newest version of each key is tested. An outdated record is not in the result, even if the
conditions hold for it.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any

from asyncrec._arguments import Size
from asyncrec._concurrency.tasks import in_thread
from asyncrec._framing.frames import MAX_RECORD_BYTES
from asyncrec._sampling.record_set import RecordSet
from asyncrec._shards.writing.ordered_writer import KeyedBatch
from asyncrec.storage._base import Storage
from asyncrec.tools._conditions import Conditions, Where, features_of
from asyncrec.tools._keyed_records import (
    KeptCompression,
    KeyedRecords,
    NewTarget,
    WriteReport,
    in_set,
    picked,
    write_chosen,
)
from asyncrec.tools._newest import newest_records
from asyncrec.tools._parameters import Progress
from asyncrec.tools._selection import selected


async def filter(  # noqa: A001  # named like the command
    source: str | os.PathLike[str],
    target: str | os.PathLike[str],
    *,
    where: Sequence[Where] = (),
    newest: str | None = None,
    compression: KeptCompression = "keep",
    max_shard_bytes: Size | None = None,
    progress: Progress = lambda done, total: None,
    max_record_bytes: Size = MAX_RECORD_BYTES,
    storage: Storage | None = None,
    storage_options: Mapping[str, Any] | None = None,
    target_storage: Storage | None = None,
    target_storage_options: Mapping[str, Any] | None = None,
) -> WriteReport:
    """Write the records of ``source`` for which every condition of ``where`` holds as the new data set ``target``.

    The target is written as a whole or not at all. Records keep their order and keys, and the data set keeps its schema
    and metadata. If the name of the target contains ``.tfrec``, it is a single file. The source is not changed.

    Args:
        newest: a feature, such as ``"date"``, by which the newest version of each key is chosen (see
            `asyncrec.open_dataset`). Only that version is tested, and written if the conditions hold for it, so a page
            whose newest version is a 404 does not reappear as an older version. The source must be a data set.
        compression: the compression of the new shards; by default that of the source.
        max_shard_bytes: the maximum size of a shard; by default 256 MiB.
        max_record_bytes: as for `asyncrec.open_reader`, and for a file that is written; longer records that a manifest
            allows are always read.

    Raises:
        ValueError: no record has the feature of a condition, or the feature cannot have that value; or the values of
            the feature ``newest`` have no order.
        DatasetError: ``newest`` was passed, but the source is not a data set, or no record has a key.
        FormatError: the source is damaged; no part of the target remains.
        ObjectChangedError: a shard is not the one in its manifest; no part of the target remains.
        ObjectExistsError: the target exists.
    """
    into = NewTarget(target, compression, max_shard_bytes, max_record_bytes, target_storage, target_storage_options)
    async with selected(
        source, max_record_bytes=max_record_bytes, storage=storage, storage_options=storage_options
    ) as selection:
        conditions = Conditions(where, features_of(selection.schema), selection.path)
        made: dict[str, Any] = {"source": selection.path, "where": [str(each) for each in where]}
        chosen = None
        if newest is not None:
            made["newest"] = newest
            chosen = await newest_records(selection, newest)
        return await write_chosen(
            into,
            selection,
            lambda records: _chosen(records, chosen, conditions),
            {"filtered": made},
            progress,
            count=None if chosen is None else chosen.size,
        )


async def _chosen(records: KeyedRecords, newest: RecordSet | None, conditions: Conditions) -> AsyncIterator[KeyedBatch]:
    async for each in records:
        batch = each if newest is None else in_set(each, records.given, newest)
        positions = await in_thread(conditions.chosen, batch.records)
        if positions:
            yield picked(batch, positions)
    conditions.end()
