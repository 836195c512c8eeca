"""The schema is the one in the manifest, or is inferred so that it fits every record."""

from __future__ import annotations

import pytest
from tool_data import SCHEMA, write_pages

import asyncrec
from asyncrec import tools
from asyncrec.errors import DecodeError, SchemaError
from asyncrec.storage._base import Storage

pytestmark = pytest.mark.anyio


async def test_schemas_are_stored_or_inferred_from_all_records(storage: Storage) -> None:
    await write_pages(storage)
    stored = await tools.schema("pages", storage=storage)
    assert (stored.schema, stored.records) == (SCHEMA.to_json(), None)
    assert (await tools.schema("pages", infer=True, limit=12, storage=storage)).records == 12
    records = [asyncrec.encode_example({"a": [1] * (number % 2 + 1)}) for number in range(5)]
    await asyncrec.write_records("a.tfrecord", records, storage=storage)
    inferred = await tools.schema("a.tfrecord", storage=storage)
    assert asyncrec.Schema.from_json(inferred.schema) == asyncrec.Schema({"a": asyncrec.VarLen("int64")})
    await storage.put("empty.tfrecord", b"")
    with pytest.raises(SchemaError, match="cannot be inferred from no records"):
        await tools.schema("empty.tfrecord", storage=storage)


async def test_undecodable_record_is_named_by_shard_and_number(storage: Storage) -> None:
    records = [asyncrec.encode_example({"a": 1})] * 3 + [b"<html>"]
    await asyncrec.write_records("a.tfrecord", records, storage=storage)
    with pytest.raises(DecodeError, match=r"record 3 \(in a\.tfrecord\) is not an Example, so it has no features: "):
        await tools.schema("a.tfrecord", storage=storage)
