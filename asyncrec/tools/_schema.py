"""`schema` returns the schema in a manifest, or infers a schema that fits all records."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Any

from asyncrec._arguments import Size
from asyncrec._concurrency.tasks import in_thread
from asyncrec._framing.frames import MAX_RECORD_BYTES
from asyncrec.errors import DecodeError
from asyncrec.example._schema import Schema
from asyncrec.storage._base import Storage
from asyncrec.tools._head import FoundRecord, RecordStream
from asyncrec.tools._selection import Selection, selected


@dataclass(frozen=True, slots=True, kw_only=True)
class SchemaReport:
    """The result of `schema`.

    Attributes:
        schema: the schema in the form returned by `Schema.to_json`.
        records: the number of records from which the schema was inferred; `None` if it is from a manifest.
    """

    path: str
    schema: Mapping[str, Any]
    records: int | None


async def schema(
    path: str | os.PathLike[str],
    *,
    infer: bool = False,
    limit: int | None = None,
    max_record_bytes: Size = MAX_RECORD_BYTES,
    storage: Storage | None = None,
    storage_options: Mapping[str, Any] | None = None,
) -> SchemaReport:
    """Return the schema in the manifest of ``path``, or infer a schema from the records.

    Args:
        infer: infer the schema even if the manifest has one.
        limit: infer the schema from the first ``limit`` records; by default from all records.
        max_record_bytes: as for `asyncrec.open_reader`; longer records that a manifest allows are read in any case.

    Raises:
        SchemaError: there are no records, or a feature has different types in two records.
        DecodeError: a record is not an Example.
    """
    async with selected(
        path, max_record_bytes=max_record_bytes, storage=storage, storage_options=storage_options
    ) as selection:
        if selection.schema is not None and not infer:
            return SchemaReport(path=selection.path, schema=selection.schema, records=None)
        merged, seen = await infer_schema(selection, limit)
        return SchemaReport(path=selection.path, schema=(merged or Schema.infer([])).to_json(), records=seen)


async def infer_schema(selection: Selection, limit: int | None = None) -> tuple[Schema | None, int]:
    """Return the schema that fits all records, or the first ``limit`` records, and the number of records read.

    The schema is `None` if there are no records.
    """
    merged: Schema | None = None
    seen = 0
    async with AsyncExitStack() as stack:
        async for found in RecordStream(selection, (), stack):
            records = found[: None if limit is None else limit - seen]
            schema = await in_thread(_inferred, records)
            merged = schema if merged is None else merged.merge(schema)
            seen += len(records)
            if limit is not None and seen >= limit:
                break
    return merged, seen


def _inferred(records: Sequence[FoundRecord]) -> Schema:
    """Return the schema that fits all of these records. Blocks.

    Raises:
        DecodeError: a record is not an Example; the message names the record.
    """
    try:
        return Schema.infer([record.data for record in records])
    except DecodeError:
        for record in records:
            try:
                Schema.infer([record.data])
            except DecodeError as error:
                reason = str(error).removeprefix("record 0 of the batch: ")
                raise DecodeError(
                    f"record {record.number:,} (in {record.path}) is not an Example, so it has no features: {reason}"
                ) from None
        raise
