"""`open_batches` reads the records of a file, a data set, a split or a share of one, in order and in bounded memory."""

from __future__ import annotations

import gc
import warnings
from pathlib import Path
from typing import Any

import anyio
import pyarrow as pa
import pytest
from anyio.lowlevel import checkpoint

from asyncrec import FixedLen, Schema, VarLen, blocking, encode_example, open_sharded_writer, open_storage, open_writer
from asyncrec.errors import CorruptRecordError, DatasetError, SchemaError
from asyncrec.integrations.arrow import open_batches, plan_batches, read_batches, read_parts, to_table
from asyncrec.integrations.arrow._plan import make_plan
from asyncrec.integrations.arrow._reading import open_parts
from asyncrec.storage._memory import MemoryStorage
from asyncrec.testing import cancel_at_every_checkpoint

pytestmark = pytest.mark.anyio

SCHEMA = Schema({"n": FixedLen((), "int64"), "text": FixedLen((), "str")})


def record(number: int) -> bytes:
    return encode_example({"n": number, "text": f"{number:08d}"})


async def write(path: Path | str, count: int = 1000, **options: Any) -> None:
    async with open_sharded_writer(path, schema=SCHEMA, **{"max_shard_records": 300, **options}) as writer:
        await writer.write_many(map(record, range(count)))


async def numbers(path: Path | str, **options: Any) -> list[int]:
    async with open_batches(path, **options) as reader:
        return [n async for batch in reader for n in batch.column("n").to_pylist()]


async def sizes(path: Path | str, **options: Any) -> list[int]:
    async with open_batches(path, **options) as reader:
        return [batch.num_rows async for batch in reader]


async def test_data_set_is_read_in_order_with_manifest_schema(tmp_path: Path) -> None:
    await write(tmp_path / "d")
    async with open_batches(tmp_path / "d") as reader:
        assert reader.schema.names == ["n", "text"]
        assert reader.records == 1000
    assert await numbers(tmp_path / "d") == list(range(1000))


async def test_batches_have_requested_number_of_rows(tmp_path: Path) -> None:
    await write(tmp_path / "d")
    assert await sizes(tmp_path / "d", batch_rows=300) == [300, 300, 300, 100]
    assert await sizes(tmp_path / "d", batch_rows=1) == [1] * 1000


async def test_batches_have_at_most_requested_bytes(tmp_path: Path) -> None:
    await write(tmp_path / "d")
    size = len(record(500))
    found = await sizes(tmp_path / "d", batch_bytes=10 * size)
    assert sum(found) == 1000
    assert max(found) <= 11  # records with small numbers are shorter
    assert await sizes(tmp_path / "d", batch_bytes=1) == [1] * 1000
    assert await sizes(tmp_path / "d", batch_bytes=10 * size, batch_rows=4) == [4] * 250


async def test_file_is_read_with_given_schema(tmp_path: Path) -> None:
    async with open_writer(tmp_path / "f.tfrecord") as writer:
        await writer.write_many(map(record, range(10)))
    assert await numbers(tmp_path / "f.tfrecord", schema=SCHEMA) == list(range(10))
    with pytest.raises(
        SchemaError, match=r"the data set has no schema; pass schema=, for example Schema\.infer\(records\)"
    ):
        await numbers(tmp_path / "f.tfrecord")


@pytest.mark.parametrize("compression", ["", "GZIP"])
async def test_workers_share_records_evenly(tmp_path: Path, compression: str) -> None:
    await write(tmp_path / "d", compression=compression)
    shares = [await numbers(tmp_path / "d", worker=(i, 7)) for i in range(7)]
    assert [n for share in shares for n in share] == list(range(1000))
    assert {len(share) for share in shares} == {142, 143}


async def test_workers_share_uncounted_files_without_splitting(tmp_path: Path) -> None:
    for name in "abc":
        async with open_writer(tmp_path / f"{name}.tfrecord") as writer:
            await writer.write(record(ord(name)))
    shares = [await numbers(tmp_path / "*.tfrecord", schema=SCHEMA, worker=(i, 2)) for i in range(2)]
    assert shares == [[97, 99], [98]]


async def test_split_slice_is_read(tmp_path: Path) -> None:
    await write(tmp_path / "train")
    assert await numbers(tmp_path, split="train[295:305]") == list(range(295, 305))
    assert await numbers(tmp_path, split="train[50%:]", worker=(1, 2)) == list(range(750, 1000))


async def test_data_set_is_read_from_open_store(tmp_path: Path) -> None:
    async with open_storage(f"memory://{tmp_path.name}") as store:
        await write("a/d", storage=store)
        assert await numbers("a/d", storage=store, worker=(1, 2)) == list(range(500, 1000))


async def test_reader_returns_requested_columns_only(tmp_path: Path) -> None:
    await write(tmp_path / "d", count=3)
    async with open_batches(tmp_path / "d", columns=["text"]) as reader:
        assert [batch.to_pydict() async for batch in reader] == [{"text": ["00000000", "00000001", "00000002"]}]


@pytest.mark.parametrize("options", [{"batch_rows": 0}, {"batch_bytes": 0}, {"worker": (2, 2)}, {"columns": ["x"]}])
async def test_invalid_options_are_rejected(tmp_path: Path, options: dict[str, Any]) -> None:
    await write(tmp_path / "d", count=1)
    with pytest.raises(ValueError, match=r"batch_|worker|column"):
        await numbers(tmp_path / "d", **options)


async def test_every_record_before_damage_is_returned(tmp_path: Path) -> None:
    async with open_writer(tmp_path / "f.tfrecord") as writer:
        await writer.write_many(map(record, range(100)))
    data = bytearray((tmp_path / "f.tfrecord").read_bytes())
    data[-20] ^= 1
    (tmp_path / "f.tfrecord").write_bytes(data)
    found: list[int] = []
    with pytest.raises(CorruptRecordError):
        async with open_batches(tmp_path / "f.tfrecord", schema=SCHEMA) as reader:
            async for batch in reader:
                found += batch.column("n").to_pylist()
    assert found == list(range(99))


async def test_shard_shorter_than_manifest_raises(tmp_path: Path) -> None:
    await write(tmp_path / "d", count=200, num_shards=1, max_shard_records=None)
    (shard,) = tmp_path.glob("d-*.tfrecord")
    frame = len(record(150)) + 16
    shard.write_bytes(shard.read_bytes()[:-frame])
    with pytest.raises(
        DatasetError, match="the shard has 1 fewer records than the manifest lists; it was replaced or not"
    ):
        await numbers(tmp_path / "d")


async def test_cancelled_read_loses_no_batch(tmp_path: Path) -> None:
    await write(tmp_path / "d", count=20)
    found: list[int] = []
    async with open_batches(tmp_path / "d", batch_rows=3) as reader:
        while True:
            with anyio.move_on_after(0) as scope:
                try:
                    batch = await anext(reader)
                except StopAsyncIteration:
                    break
                found += batch.column("n").to_pylist()
            if scope.cancelled_caught:
                await anyio.lowlevel.checkpoint()
    assert found == list(range(20))


async def test_cancelled_reader_is_always_closed(tmp_path: Path) -> None:
    await write(tmp_path / "d", count=20)

    async def use() -> None:
        assert len(await numbers(tmp_path / "d", batch_rows=7)) == 20

    await cancel_at_every_checkpoint(use)


async def test_parts_of_any_size_cover_all_records_once(tmp_path: Path) -> None:
    await write(tmp_path / "d", compression="GZIP", num_shards=2, max_shard_records=None)
    await write(tmp_path / "e", num_shards=2, max_shard_records=None)

    def check(name: str) -> None:
        whole = blocking.read_manifest(tmp_path / name)
        for part_bytes in (300, 10_000, 1 << 30):
            plan = plan_batches(tmp_path / name, part_bytes=part_bytes)
            assert plan.records == 1000
            assert len(plan.parts) >= len(whole.shards)
            found = [
                n for part in plan.parts for n in read_parts(plan.maker, [part]).read_all().column("n").to_pylist()
            ]
            assert sorted(found) == list(range(1000))
            if name == "e":
                assert all(part.bytes <= max(part_bytes, len(record(999)) + 16) for part in plan.parts)

    await anyio.to_thread.run_sync(check, "d")
    await anyio.to_thread.run_sync(check, "e")


async def test_indexes_are_read_concurrently_for_cut_shards() -> None:
    class Watched(MemoryStorage):
        reading = most = 0

        async def get(self, key: str, **options: Any) -> bytes:
            self.reading += key.endswith(".index")
            self.most = max(self.most, self.reading)
            await checkpoint()
            try:
                return await super().get(key, **options)
            finally:
                self.reading -= key.endswith(".index")

    store = Watched()
    await write("d", storage=store, max_shard_records=100)
    plan = await make_plan("d", part_bytes=2000, storage=store)
    assert len(plan.parts) > 10
    assert store.most == 8
    async with open_parts(plan.maker, plan.parts, storage=store) as reader:
        assert [n async for batch in reader for n in batch.column("n").to_pylist()] == list(range(1000))


async def test_shards_of_split_are_cut_into_parts(tmp_path: Path) -> None:
    await write(tmp_path / "train", num_shards=2, max_shard_records=None)

    def check(split: str, expected: range) -> None:
        plan = plan_batches(tmp_path, split=split, part_bytes=10_000)
        assert len(plan.parts) > 4
        assert all(0 < part.bytes <= 10_000 for part in plan.parts)
        found = read_parts(plan.maker, plan.parts).read_all().column("n").to_pylist()
        assert found == expected_order[expected.start : expected.stop]

    expected_order = await numbers(tmp_path / "train")
    await anyio.to_thread.run_sync(check, "train", range(1000))
    await anyio.to_thread.run_sync(check, "train[100:900]", range(100, 900))


async def test_blocking_reader_needs_no_loop_and_closes_once_dropped(tmp_path: Path) -> None:
    await write(tmp_path / "d")

    def use() -> None:
        assert read_batches(tmp_path / "d").read_all().num_rows == 1000
        reader = read_batches(tmp_path / "d", batch_rows=10)
        assert reader.read_next_batch().num_rows == 10
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            del reader
            gc.collect()

    await anyio.to_thread.run_sync(use)


async def test_table_schema_is_inferred_from_all_records(tmp_path: Path) -> None:
    async with open_writer(tmp_path / "f.tfrecord") as writer:
        await writer.write_many([encode_example({"a": 1}), encode_example({"a": [1, 2], "b": "x"})])

    def use() -> None:
        assert to_table(tmp_path / "f.tfrecord").to_pydict() == {"a": [[1], [1, 2]], "b": [None, [b"x"]]}
        assert to_table(
            tmp_path / "f.tfrecord", schema=Schema({"a": VarLen("int8")}, allow_extra=True)
        ).schema.types == [pa.list_(pa.int8())]

    await anyio.to_thread.run_sync(use)
