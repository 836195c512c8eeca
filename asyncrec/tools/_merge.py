"""`merge` writes the records of several sources, one after the other, as one new data set."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack
from typing import Any

from asyncrec._arguments import Size
from asyncrec._framing.frames import MAX_RECORD_BYTES
from asyncrec._shards.writing.ordered_writer import KeyedBatch
from asyncrec.errors import ArgumentValueError, DatasetError
from asyncrec.storage._base import Storage
from asyncrec.tools._keyed_records import (
    KeptCompression,
    KeyedRecords,
    NewTarget,
    WriteReport,
    schema_of_all,
    write_new,
)
from asyncrec.tools._parameters import Progress
from asyncrec.tools._selection import Selection, selected
from asyncrec.tools._shards_in_turn import has_keys


async def merge(
    sources: Sequence[str | os.PathLike[str]],
    target: str | os.PathLike[str],
    *,
    compression: KeptCompression = "keep",
    max_shard_bytes: Size | None = None,
    progress: Progress = lambda done, total: None,
    max_record_bytes: Size = MAX_RECORD_BYTES,
    storage: Storage | None = None,
    storage_options: Mapping[str, Any] | None = None,
    target_storage: Storage | None = None,
    target_storage_options: Mapping[str, Any] | None = None,
) -> WriteReport:
    """Write the records of all ``sources``, in their order, as the new data set ``target``: all or nothing.

    Records keep their keys. A record in two sources is written twice (`dedupe` removes duplicates). The sources must
    all have the same schema, or no schema. If the name of the target contains ``.tfrec``, the target is a single file.
    No source is changed.

    Args:
        compression: the compression of the new shards; by default that of most records.
        max_shard_bytes: the maximum size of a shard; by default 256 MiB.
        max_record_bytes: as for `asyncrec.open_reader`; also the limit for a target that is a single file. Longer
            records that a manifest allows are read in any case.

    Raises:
        DatasetError: the sources have different schemas or labels, or only some have a schema.
        FormatError: a source is damaged; no part of the target remains.
        ObjectChangedError: a shard is not the one in its manifest; no part of the target remains.
        ObjectExistsError: the target exists.
        SchemaError: two sources store the times of a column in different units.
    """
    if not sources:
        raise ArgumentValueError("no source was passed; pass at least one")
    into = NewTarget(target, compression, max_shard_bytes, max_record_bytes, target_storage, target_storage_options)
    async with AsyncExitStack() as stack:
        selections = [
            await stack.enter_async_context(
                selected(each, max_record_bytes=max_record_bytes, storage=storage, storage_options=storage_options)
            )
            for each in sources
        ]
        with_schema = [each for each in selections if each.schema is not None]
        if with_schema and schema_of_all(selections) is None:
            other = next((each for each in selections if each.schema != with_schema[0].schema), selections[0])
            which = "another schema than" if other.schema else "no schema, unlike"
            raise DatasetError(
                f"{other.path} has {which} {with_schema[0].path}; 'asyncrec schema' shows each. Merge data sets "
                "with the same schema"
            )
        made = {"merged": {"sources": [each.path for each in selections]}}
        report = await write_new(into, _all(selections, stack, progress), selections, made, carries=True)
        report.read = report.records
        return report


async def _all(selections: Sequence[Selection], stack: AsyncExitStack, progress: Progress) -> AsyncIterator[KeyedBatch]:
    keyed = any(has_keys(each) for each in selections)
    total, before = sum(each.bytes for each in selections), 0
    for selection in selections:

        def advance(done: int, _: int | None, before: int = before) -> None:
            progress(before + done, total)

        opened = await stack.enter_async_context(AsyncExitStack())
        async for batch in KeyedRecords(selection, opened, advance, keyed=keyed):
            yield batch
        before += selection.bytes
