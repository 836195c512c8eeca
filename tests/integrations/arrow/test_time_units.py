"""All times of a column have the same unit and kind, in every shard of the data set and for every reader."""

from __future__ import annotations

import datetime
import subprocess
import sys
from pathlib import Path
from typing import Any

import anyio
import pyarrow as pa
import pytest

from asyncrec import FixedLen, Schema, VarLen, open_sharded_writer, open_storage
from asyncrec.errors import SchemaError
from asyncrec.integrations.arrow import open_batch_writer, open_batches, to_table, write_batches

pytestmark = pytest.mark.anyio

SECOND = datetime.datetime(2026, 1, 2, 3, 4, 5)
US, MS = pa.timestamp("us"), pa.timestamp("ms")


def times(kind: Any, *values: Any) -> Any:
    return pa.table({"when": pa.array(values, kind)})


def append(path: Path, *tables: Any, **options: Any) -> None:
    for table in tables:
        write_batches(path, table, **options)


def read_back(path: Path) -> Any:
    return to_table(path).column("when").combine_chunks()


async def table_of(path: Path | str, **options: Any) -> Any:
    async with open_batches(path, **options) as reader:
        return pa.Table.from_batches([batch async for batch in reader], reader.schema)


@pytest.mark.parametrize(("one", "two"), [(US, MS), (MS, US)], ids=str)
async def test_batches_are_cast_to_unit_of_writer(tmp_path: Path, one: Any, two: Any) -> None:
    async with open_batch_writer(tmp_path / "d", pa.schema({"when": one})) as writer:
        await writer.write(times(one, SECOND))
        await writer.write(times(two, SECOND).to_batches()[0])
        await writer.write(times(two, SECOND).slice(0, 0))
    found = await table_of(tmp_path / "d")
    assert found.column("when").combine_chunks().equals(pa.array([SECOND] * 2, one))


@pytest.mark.parametrize(
    ("one", "two", "value"),
    [
        (pa.timestamp("s", "UTC"), pa.timestamp("ns", "Europe/Berlin"), SECOND),
        (pa.duration("s"), pa.duration("ms"), datetime.timedelta(seconds=5)),
        (pa.time64("us"), pa.time64("ns"), datetime.time(1, 2, 3)),
        (pa.time32("s"), pa.time32("ms"), datetime.time(1, 2, 3)),
        (pa.list_(US), pa.list_(MS), [SECOND, SECOND]),
        (pa.list_(US), pa.large_list(MS), [SECOND, SECOND]),
        (pa.list_(US, 2), pa.list_(MS, 2), [SECOND, SECOND]),
        (pa.list_(pa.list_(US)), pa.list_(pa.list_(MS)), [[SECOND], []]),
    ],
    ids=str,
)
def test_appended_times_are_cast_to_stored_unit(tmp_path: Path, one: Any, two: Any, value: Any) -> None:
    for first, second in ((one, two), (two, one)):
        path = tmp_path / str(first) / "d"
        append(path, times(first, value), times(second, value), times(first, value))
        found = read_back(path)
        assert found.equals(pa.array([value] * 3, first)) or found.equals(pa.array([value] * 3, second).cast(first))
        assert found.to_pylist() == pa.array([value] * 3, first).to_pylist()


def test_appended_times_may_be_null_or_dictionary(tmp_path: Path) -> None:
    append(tmp_path / "d", times(US, SECOND, None), times(MS, None, SECOND))
    encoded = times(MS, SECOND, None).column(0).combine_chunks().dictionary_encode()
    append(tmp_path / "d", pa.table({"when": encoded}))
    assert read_back(tmp_path / "d").sort().equals(pa.array([SECOND] * 3 + [None] * 3, US))


@pytest.mark.parametrize(
    ("stored", "kind", "bad", "fault"),
    [
        (MS, US, 1500, r"timestamp\[us\] to timestamp\[ms\] would lose data: 1500"),
        (pa.timestamp("ns"), pa.timestamp("s"), 2**60, r"out of bounds timestamp: 1152921504606846976"),
        (pa.date32(), pa.date64(), 86_400_001, r"date64\[ms\] to date32\[day\] would lose data: 86400001"),
        (pa.list_(MS), pa.list_(US), [1500], r"would lose data: 1500"),
    ],
    ids=str,
)
async def test_time_out_of_range_for_unit_is_rejected(
    tmp_path: Path, stored: Any, kind: Any, bad: Any, fault: str
) -> None:
    good = [0] if isinstance(bad, list) else 0
    async with open_batch_writer(tmp_path / "d", pa.schema({"when": stored})) as writer:
        with pytest.raises(SchemaError, match=rf"d: column 'when': row 5 of the batch: .*{fault}; ") as raised:
            await writer.write(times(kind, *[good] * 5, bad, *[good] * 3))
        assert str(stored) in str(raised.value)
        assert writer.writer.stats().records == 0
        await writer.write(times(kind, bad, good).slice(1))
    assert (await table_of(tmp_path / "d")).column("when").combine_chunks().equals(pa.array([good], stored))


OTHER_KINDS = [
    (US, pa.timestamp("us", "UTC")),
    (US, pa.duration("us")),
    (US, pa.date64()),
    (US, pa.int64()),
    (pa.int64(), US),
    (pa.date64(), pa.int64()),
    (pa.date64(), pa.date32()),
    (pa.duration("s"), pa.time64("us")),
    (pa.list_(US), pa.list_(pa.int64())),
]


@pytest.mark.parametrize(("one", "two"), OTHER_KINDS, ids=str)
def test_times_of_different_kind_are_not_appended(tmp_path: Path, one: Any, two: Any) -> None:
    value = [0] if pa.types.is_list(one) else 0
    append(tmp_path / "d", times(one, value))
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(SchemaError, match="d: column 'when' is ") as raised:
        append(tmp_path / "d", times(two, value))
    assert str(one) in str(raised.value)
    assert str(two) in str(raised.value)
    assert sorted(tmp_path.rglob("*")) == before
    append(tmp_path / "d", times(two, value), mode="replace")
    assert read_back(tmp_path / "d").equals(pa.array([value], two))


@pytest.mark.parametrize(("one", "two"), [pair for pair in OTHER_KINDS if pair[1] != pa.date32()], ids=str)
async def test_batch_of_different_kind_is_rejected(tmp_path: Path, one: Any, two: Any) -> None:
    value = [0] if pa.types.is_list(one) else 0
    async with open_batch_writer(tmp_path / "d", pa.schema({"when": one})) as writer:
        with pytest.raises(SchemaError, match="d: column 'when' is "):
            await writer.write(times(two, value))
        assert writer.writer.stats().records == 0


@pytest.mark.parametrize("schema", [Schema({"when": FixedLen((), "int64")}), Schema({"when": VarLen("int64")})])
async def test_writer_with_schema_uses_stored_unit(tmp_path: Path, schema: Schema) -> None:
    async with open_batch_writer(tmp_path / "d", pa.schema({"when": US})) as writer:
        await writer.write(times(US, SECOND))
    for _ in range(2):
        async with open_batch_writer(tmp_path / "d", schema) as writer:
            await writer.write(times(MS, SECOND))
            with pytest.raises(SchemaError, match="'when' is int64"):
                await writer.write(times(pa.int64(), 1))
    found = (await table_of(tmp_path / "d")).column("when").to_pylist()
    assert [value[0] if isinstance(value, list) else value for value in found] == [SECOND] * 3


async def test_first_batch_decides_unit_without_arrow_schema(tmp_path: Path) -> None:
    async with open_batch_writer(tmp_path / "d", Schema({"when": FixedLen((), "int64")})) as writer:
        await writer.write(times(MS, 5))
        await writer.write(times(US, 6000))
        with pytest.raises(SchemaError, match="'when' is int64"):
            await writer.write(times(pa.int64(), 7))
    assert (await table_of(tmp_path / "d")).to_pydict() == {"when": [5, 6]}


async def test_times_are_not_appended_to_plain_integers(tmp_path: Path) -> None:
    schema = Schema({"when": FixedLen((), "int64")})
    async with open_sharded_writer(tmp_path / "d", schema=schema) as writer:
        await writer.write({"when": 5})
    with pytest.raises(SchemaError, match=r"column 'when' is timestamp\[us\], .* integers without a unit"):
        async with open_batch_writer(tmp_path / "d", pa.schema({"when": US})):
            pass
    assert (await table_of(tmp_path / "d")).to_pydict() == {"when": [5]}


async def test_unit_is_found_in_an_open_storage(tmp_path: Path) -> None:
    async with open_storage(f"memory://{tmp_path.name}") as storage:
        for kind in (US, MS):
            async with open_batch_writer("d", pa.schema({"when": kind}), storage=storage) as writer:
                await writer.write(times(kind, SECOND))
        found = await table_of("d", storage=storage)
    assert found.column("when").combine_chunks().equals(pa.array([SECOND] * 2, US))


KILLED = """
import os, sys, anyio, pyarrow as pa
from asyncrec.integrations.arrow import open_batch_writer

async def main():
    async with open_batch_writer(sys.argv[1], pa.schema({"when": pa.timestamp("us")})) as writer:
        await writer.write(pa.table({"when": pa.array([7000000], pa.timestamp("us"))}))
        await writer.writer.flush()
        os._exit(9)

anyio.run(main)
"""


async def test_unit_of_killed_writer_is_kept(tmp_path: Path) -> None:
    command = [sys.executable, "-P", "-c", KILLED, str(tmp_path / "d")]
    killed = await anyio.to_thread.run_sync(lambda: subprocess.run(command, check=False))
    assert killed.returncode == 9
    with pytest.raises(SchemaError, match=r"d: another writer, .* open the writer again"):  # it recovers the records
        async with open_batch_writer(tmp_path / "d", pa.schema({"when": MS})):
            pass
    async with open_batch_writer(tmp_path / "d", pa.schema({"when": MS})) as writer:
        await writer.write(times(MS, 8000))
    found = (await table_of(tmp_path / "d")).column("when").combine_chunks()
    assert found.sort().equals(pa.array([7_000_000, 8_000_000], US))


async def test_replaced_times_do_not_type_new_integers(tmp_path: Path) -> None:
    async with open_batch_writer(tmp_path / "d", pa.schema({"when": US})) as writer:
        await writer.write(times(US, SECOND))
    schema = Schema({"when": FixedLen((), "int64")})
    async with open_batch_writer(tmp_path / "d", schema, mode="replace") as writer:
        await writer.write(times(pa.int64(), 5))
    assert (await table_of(tmp_path / "d")).to_pydict() == {"when": [5]}


@pytest.mark.parametrize("kind", [MS, pa.timestamp("ns"), pa.list_(MS)], ids=str)
async def test_reader_casts_times_to_requested_unit(tmp_path: Path, kind: Any) -> None:
    stored = pa.list_(US) if pa.types.is_list(kind) else US
    value = [SECOND] if pa.types.is_list(kind) else SECOND
    async with open_batch_writer(tmp_path / "d", pa.schema({"when": stored, "n": pa.int64()})) as writer:
        await writer.write(times(stored, value).append_column("n", [[1]]))
    wanted = pa.schema({"when": kind})
    found = await table_of(tmp_path / "d", schema=wanted)
    assert found.column("when").combine_chunks().equals(pa.array([value], kind))


async def test_reader_rejects_lossy_unit_and_another_kind(tmp_path: Path) -> None:
    async with open_batch_writer(tmp_path / "d", pa.schema({"when": US})) as writer:
        await writer.write(times(US, 1500))
    for kind, fault in ((MS, "would lose data: 1500"), (pa.duration("us"), "'when'.*cannot be converted")):
        with pytest.raises(SchemaError, match=fault):
            await table_of(tmp_path / "d", schema=pa.schema({"when": kind}))
    assert (await table_of(tmp_path / "d", schema=pa.schema({"when": pa.int64()}))).to_pydict() == {"when": [1500]}


async def test_reader_rejects_times_of_different_width(tmp_path: Path) -> None:
    async with open_batch_writer(tmp_path / "d", pa.schema({"when": pa.date64()})) as writer:
        await writer.write(times(pa.date64(), 86_400_000))
    with pytest.raises(SchemaError, match=r"d: column 'when' is stored as date64\[ms\].*request date64\[ms\]"):
        await table_of(tmp_path / "d", schema=pa.schema({"when": pa.date32()}))


async def test_data_sets_with_same_unit_read_as_times(tmp_path: Path) -> None:
    for name, text in (("a", pa.string()), ("b", pa.large_string())):
        write_batches(tmp_path / name, times(US, SECOND).append_column("text", pa.array(["x"], text)))
    assert (await table_of(tmp_path, split="a+b[:0]")).to_pydict() == {"when": [SECOND], "text": ["x"]}
    assert (await table_of(tmp_path, split="a+b")).to_pydict() == {"when": [SECOND] * 2, "text": ["x"] * 2}
    for name in ("c", "d/e", "d/f"):
        write_batches(tmp_path / name, times(US, SECOND))
    assert (await table_of(tmp_path, split="c")).column("when").combine_chunks().equals(pa.array([SECOND], US))
    assert (await table_of(tmp_path / "d")).column("when").combine_chunks().equals(pa.array([SECOND] * 2, US))
    assert (await table_of(tmp_path / "d", split="e+f")).to_pydict() == {"when": [SECOND] * 2}


@pytest.mark.parametrize("other", [MS, pa.timestamp("us", "UTC"), pa.duration("us")], ids=str)
async def test_data_sets_with_other_times_are_not_read_together(tmp_path: Path, other: Any) -> None:
    for name, kind in (("a", US), ("b", other)):
        table = pa.table({"when": pa.array([5], pa.int64()).cast(kind), "n": [1]})
        write_batches(tmp_path / name, table)
    for options in ({}, {"split": "a+b"}, {"schema": pa.schema({"when": US})}):
        with pytest.raises(SchemaError, match=r"column 'when' is timestamp\[us\] in one data set, but .*in another;"):
            await table_of(tmp_path, **options)
    assert (await table_of(tmp_path, columns=["n"])).to_pydict() == {"n": [1, 1]}
    assert (await table_of(tmp_path, schema=pa.schema({"when": pa.int64()}))).to_pydict() == {"when": [5, 5]}
