"""Batches are written as records of a data set, and the manifest describes their types."""

from __future__ import annotations

import base64
import datetime
from pathlib import Path
from typing import Any

import anyio
import pyarrow as pa
import pytest

from asyncrec import FixedLen, Schema, VarLen, open_dataset, open_sharded_writer, read_manifest
from asyncrec.errors import SchemaError
from asyncrec.integrations.arrow import open_batch_writer, open_batches, read_batches, to_batch, write_batches

pytestmark = pytest.mark.anyio

TABLE = pa.table(
    {
        "when": pa.array([datetime.datetime(2026, 1, 1), datetime.datetime(2026, 1, 2)], pa.timestamp("us")),
        "day": pa.array([datetime.date(2026, 1, 1)] * 2, pa.date32()),
        "maybe": pa.array([None, 2], pa.int16()),
        "name": pa.array(["a", "b"], pa.large_string()),
        "words": pa.array([["x"], []], pa.large_list(pa.string())),
        "hash": pa.array([b"1234", b"5678"], pa.binary(4)),
    }
)


async def test_table_round_trips_with_types(tmp_path: Path) -> None:
    def use() -> None:
        assert write_batches(tmp_path / "d", TABLE) == 2
        assert read_batches(tmp_path / "d").read_all().replace_schema_metadata().equals(TABLE)
        some = read_batches(tmp_path / "d", columns=["maybe", "when"]).read_all()
        assert some.replace_schema_metadata().equals(TABLE.select(["maybe", "when"]))

    await anyio.to_thread.run_sync(use)
    manifest = await read_manifest(tmp_path / "d")
    assert Schema.from_json(manifest.schema or {}).features["maybe"] == VarLen("int16")


async def test_writer_accepts_batches_tables_and_keys(tmp_path: Path) -> None:
    table = pa.table({"url": ["a", "b", "c"], "n": [1, 2, 3]})
    async with open_batch_writer(tmp_path / "d", table.schema, key="url") as writer:
        assert await writer.write(table.slice(0, 2)) == 2
        assert await writer.write(table.slice(2).to_batches()[0]) == 3
        assert writer.writer.stats().records == 3
    async with open_dataset(tmp_path / "d") as dataset:
        assert writer.schema.decode(await dataset.get_by_key("b")) == {"url": "b", "n": 2}


async def test_forbidden_null_is_reported_with_remedy(tmp_path: Path) -> None:
    arrow = pa.schema({"n": pa.int64()})
    with pytest.raises(
        SchemaError, match="column 'n': row 1 is null, which only a VarLen or a FixedLen with a default may be;"
    ):
        async with open_batch_writer(tmp_path / "d", arrow) as writer:
            await writer.write(pa.table({"n": [1, None]}))
    async with open_batch_writer(tmp_path / "e", Schema({"n": VarLen("int64")})) as writer:
        await writer.write(pa.table({"n": [1, None]}))
    async with open_batches(tmp_path / "e") as reader:
        assert [batch.to_pydict() async for batch in reader] == [{"n": [[1], None]}]


@pytest.mark.parametrize(
    ("last", "fault"),
    [
        ({"url": "x", "n": None}, "column 'n': row 2005 is null"),
        ({"url": "x", "n": 2**63}, "row 2005 of the batch: feature 'n'"),
        ({"url": None, "n": 1}, "row 2005 of the batch: the key column 'url' has the value None; a key must be text"),
    ],
    ids=["a column", "a value", "a key"],
)
async def test_row_number_counts_from_start_of_input(tmp_path: Path, last: dict[str, Any], fault: str) -> None:
    """The input is written in pieces, and arrives in chunks."""
    arrow = pa.schema({"url": pa.string(), "n": pa.uint64(), "body": pa.binary()})
    rows = [{"url": "x", "n": 1, "body": bytes(1000)}] * 2005
    table = pa.Table.from_pylist([*rows, {**last, "body": b""}], arrow)
    chunks = pa.concat_tables([table.slice(0, 3), table.slice(3)])
    schema = Schema({"url": VarLen("str"), "n": FixedLen((), "uint64"), "body": FixedLen((), "bytes")})
    with pytest.raises(SchemaError, match=fault):
        async with open_batch_writer(tmp_path / "d", schema, key="url") as writer:
            await writer.write(chunks)


async def test_large_batch_is_written_in_pieces(tmp_path: Path) -> None:
    body = [bytes([n % 256]) * 10_000 for n in range(500)]
    async with open_batch_writer(tmp_path / "d", pa.schema({"body": pa.binary()}), memory_limit=4 << 20) as writer:
        assert await writer.write(pa.table({"body": body})) == 500
    async with open_batches(tmp_path / "d") as reader:
        assert [each async for batch in reader for each in batch.column("body").to_pylist()] == body


async def test_any_iterable_of_batches_is_written(tmp_path: Path) -> None:
    def use() -> None:
        assert write_batches(tmp_path / "a", iter(TABLE.select(["day"]).to_batches(max_chunksize=1))) == 2
        reader = TABLE.select(["day"]).to_reader(max_chunksize=1)
        assert write_batches(tmp_path / "b", reader) == 2
        assert write_batches(tmp_path / "c", [], schema=Schema({"n": FixedLen((), "int64")})) == 0
        with pytest.raises(SchemaError, match="the stream has no batches to take a schema from; pass schema="):
            write_batches(tmp_path / "e", [])
        with pytest.raises(TypeError, match="not a dict"):
            write_batches(tmp_path / "e", [{"n": 1}])

    await anyio.to_thread.run_sync(use)


async def test_non_text_key_column_is_rejected(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no such column"):
        async with open_batch_writer(tmp_path / "d", pa.schema({"n": pa.int64()}), key="x"):
            pass
    with pytest.raises(
        SchemaError, match="row 0 of the batch: the key column 'n' has the value 1; a key must be text or bytes"
    ):
        async with open_batch_writer(tmp_path / "d", pa.schema({"n": pa.int64()}), key="n") as writer:
            await writer.write(pa.table({"n": [1]}))


@pytest.mark.parametrize(
    "told",
    [
        "no base64",
        base64.b64encode(b"no Arrow").decode(),
        7,
        base64.b64encode(pa.schema({"n": pa.string(), "x": pa.int64()}).serialize().to_pybytes()).decode(),
        "A" * (2 << 20),
    ],
    ids=["text", "bytes", "number", "another type", "too long"],
)
async def test_wrong_arrow_schema_in_manifest_is_ignored(tmp_path: Path, told: Any) -> None:
    schema = Schema({"n": FixedLen((), "int64")})
    async with open_sharded_writer(tmp_path / "d", schema=schema, metadata={"ARROW:schema": told}) as writer:
        await writer.write_many([b"\n\x0c\n\n\n\x01n\x12\x05\x1a\x03\n\x01\x05"])
    async with open_batches(tmp_path / "d") as reader:
        assert reader.schema.types == [pa.int64()]
        assert [batch.to_pydict() async for batch in reader] == [{"n": [5]}]


async def test_written_batches_read_back_equal_to_direct_conversion(tmp_path: Path) -> None:
    schema = Schema({"n": FixedLen((), "int64"), "words": VarLen("str")})
    table = pa.table({"n": range(100), "words": [["a"] * (n % 3) for n in range(100)]})
    async with open_batch_writer(tmp_path / "d", schema) as writer:
        await writer.write(table)
    async with open_dataset(tmp_path / "d") as dataset:
        records = await dataset.get_many(range(100))
    async with open_batches(tmp_path / "d") as reader:
        assert [batch async for batch in reader] == [to_batch(records, schema)]
