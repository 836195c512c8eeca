"""`asyncrec.open_split` reads all or part of a split, whichever library wrote it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anyio
import pytest
from anyio.lowlevel import checkpoint

import asyncrec
from asyncrec._datasets.from_generator.writer import DatasetWriter
from asyncrec._datasets.reading.reader import find_split, open_split
from asyncrec._framing.compression import CompressionOptions
from asyncrec.errors import CorruptRecordError, DatasetError, ManifestError, ObjectNotFoundError, SchemaError
from asyncrec.example._codec import encode_example
from asyncrec.storage._base import ObjectInfo, Storage
from asyncrec.storage._memory import MemoryStorage

pytestmark = pytest.mark.anyio


def numbered(split: str, count: int) -> Iterator[tuple[int, dict[str, Any]]]:
    for i in range(count):
        yield i, {"id": i, "pad": bytes(50)}


async def written(storage: Storage, **counts: int) -> None:
    for split, count in counts.items():
        await DatasetWriter(numbered, None, "", split, storage=storage, num_shards=3, count=count).create_records()


async def ids(storage: Storage, split: str, path: str = "") -> list[int]:
    async with open_split(path, split, storage=storage) as reader:
        found = [features["id"] async for features in reader]
        assert len(found) == len(reader)
    return found


async def test_split_slices_behave_like_list_slices() -> None:
    storage = MemoryStorage()
    await written(storage, train=100, extra=25)
    train, extra = await ids(storage, "train"), await ids(storage, "extra")
    assert sorted(train) == list(range(100))
    assert await ids(storage, "train[:80%]+extra[10:20]") == train[:80] + extra[10:20]
    assert await ids(storage, "train[-5%:]+train[33%:66%]") == train[-5:] + train[33:66]
    assert await ids(storage, "extra[5:5]") == []
    for start in range(0, 100, 7):
        assert await ids(storage, f"train[{start}:{min(start + 40, 100)}]") == train[start : start + 40]
    assert await ids(storage, str(asyncrec.parse_split("extra"))) == extra


@pytest.mark.parametrize("compression", ["", "ZLIB", CompressionOptions(type="GZIP", member_bytes=2000)])
async def test_index_locates_part_in_any_compression(compression: Any) -> None:
    storage = MemoryStorage()
    writer = DatasetWriter(
        numbered, None, "", "train", storage=storage, num_shards=2, count=500, compression=compression
    )
    await writer.create_records()
    train = await ids(storage, "train")
    for start in (0, 1, 30, 31, 249, 250, 251, 499):
        assert await ids(storage, f"train[{start}:]") == train[start:]


async def test_split_slice_is_read_without_index() -> None:
    storage = MemoryStorage()
    await written(storage, train=100)
    train = await ids(storage, "train")
    await storage.delete("_index/train-00001-of-00003.tfrecord.index")
    assert await ids(storage, "train[50:60]") == train[50:60]


async def test_reader_skips_bytes_before_part() -> None:
    class Counting(MemoryStorage):
        starts: list[int]

        def open_source(
            self, key: str, *, start: int = 0, end: int | None = None, info: ObjectInfo | None = None
        ) -> Any:
            if key.endswith(".tfrecord"):
                self.starts.append(start)
            return super().open_source(key, start=start, end=end, info=info)

    storage = Counting()
    storage.starts = []
    await written(storage, train=300)
    train = await ids(storage, "train")
    storage.starts = []
    assert await ids(storage, "train[150:160]") == train[150:160]
    (start,) = storage.starts
    size = (await storage.head("train-00001-of-00003.tfrecord")).size
    assert size * 0.45 < start < size * 0.55


async def test_reader_mixes_single_records_and_batches() -> None:
    storage = MemoryStorage()
    await written(storage, train=100)
    train = await ids(storage, "train")
    async with open_split("", "train", storage=storage) as reader:
        first = await anext(reader)
        rest = [record async for batch in reader.batches() for record in batch]
        assert reader.schema is not None
        assert [first["id"], *(reader.schema.decode(record)["id"] for record in rest)] == train
        with pytest.raises(StopAsyncIteration):
            await anext(reader)


async def test_reader_tolerates_early_exit_inside_callers_scope(tmp_path: Path) -> None:
    await DatasetWriter(numbered, None, tmp_path, "train", count=5000, num_shards=3).create_records()
    async with open_split(tmp_path, "train") as reader:
        with anyio.CancelScope():
            await anext(reader)
        await checkpoint()
        with anyio.CancelScope():
            async for _ in reader.batches():
                break


async def test_open_split_accepts_path_url_and_prefix(tmp_path: Path) -> None:
    await DatasetWriter(numbered, None, tmp_path / "a" / "b", "train", count=5).create_records()
    for path in (tmp_path / "a" / "b", f"{tmp_path}/a/b/", (tmp_path / "a" / "b").as_uri()):
        async with open_split(path, "train") as reader:
            assert len(reader) == 5
    async with asyncrec.open_storage(str(tmp_path)) as storage:
        assert len(await ids(storage, "train", "a/b")) == 5


async def test_schemas_of_several_splits_are_merged_or_rejected() -> None:
    def other(split: str, value: Any) -> Iterator[tuple[int, dict[str, Any]]]:
        yield 0, {"id": value}

    storage = MemoryStorage()
    await DatasetWriter(other, None, "", "one", storage=storage, value=[1]).create_records()
    await DatasetWriter(other, None, "", "two", storage=storage, value=[1, 2]).create_records()
    await DatasetWriter(other, None, "", "text", storage=storage, value="x").create_records()
    async with open_split("", "one+two", storage=storage) as reader:
        assert [features["id"].tolist() async for features in reader] == [[1], [1, 2]]
    with pytest.raises(SchemaError, match="feature 'id'"):
        async with open_split("", "one+text", storage=storage):
            pass


async def test_combined_splits_lose_schema_missing_from_any_split() -> None:
    storage = MemoryStorage()
    plain: Any = lambda features: b"\xff%d" % features["id"]  # noqa: E731  # no Example
    await written(storage, one=3)
    await DatasetWriter(numbered, plain, "", "two", storage=storage, count=3).create_records()
    for split in ("one+two", "two+one"):
        async with open_split("", split, storage=storage) as reader:
            assert reader.schema is None
            assert sum([len(batch) async for batch in reader.batches()]) == 6


async def test_combined_table_marks_features_dense_in_all_splits(tmp_path: Path) -> None:
    def examples(split: str, **features: Any) -> Iterator[tuple[int, dict[str, Any]]]:
        yield 0, {name: value[0] for name, value in features.items()}
        yield 1, {name: value[-1] for name, value in features.items()}

    for split, features in {
        "one": {"both": [1], "once": [2], "list": [[1], [1, 2]]},
        "two": {"both": [3], "list": [[1], [2]]},
    }.items():
        await DatasetWriter(examples, None, str(tmp_path), split, **features).create_records()
    found = await find_split(tmp_path, "one+two")
    assert {name: feature["dense"] for name, feature in found.table.items()} == {
        "both": True,
        "list": False,
        "once": False,
    }
    assert {name for name, feature in (await find_split(tmp_path, "one")).table.items() if feature["dense"]} == {
        "both",
        "once",
    }


async def test_records_without_schema_are_returned_as_bytes() -> None:
    storage = MemoryStorage()
    plain: Any = lambda features: b"\xff%d" % features["id"]  # noqa: E731  # no Example
    await DatasetWriter(numbered, plain, "", "train", storage=storage, count=3).create_records()
    async with open_split("", "train", storage=storage) as reader:
        assert reader.schema is None
        with pytest.raises(DatasetError, match="has no schema"):
            await anext(reader)
        assert sorted([record async for batch in reader.batches() for record in batch]) == [
            b"\xff%d" % i for i in range(3)
        ]


async def test_open_split_reads_shards_of_open_sharded_writer() -> None:
    storage = MemoryStorage()
    async with asyncrec.open_sharded_writer(
        "train", storage=storage, max_shard_records=10, schema={"version": 1, "features": {}}, validate="none"
    ) as writer:
        await writer.write_many([b"%d" % i for i in range(35)])
    async with open_split("", "train[5:25]", storage=storage) as reader:
        found = [record async for batch in reader.batches() for record in batch]
    assert len(found) == 20


class TestErrors:
    async def test_missing_split_raises_value_error(self) -> None:
        with pytest.raises(
            ValueError, match=r": there is no split 'train', because this folder has no data sets\. A split is a"
        ):
            async with open_split("", "train", storage=MemoryStorage()):
                pass
        with pytest.raises(
            ValueError, match=r"^crawl/pages: there is no split 'train'.* use open_split\('crawl', 'pages"
        ):
            async with open_split("crawl/pages", "train[:80%]", storage=MemoryStorage()):
                pass
        storage = MemoryStorage()
        await written(storage, train=5, test=5)
        await storage.put("shard_info.json", b'{"old": {"old-00000-of-00001.tfrecord": 3}}')
        with pytest.raises(ValueError, match="there is no split 'val'; the splits are: 'old', 'test', 'train'"):
            async with open_split("", "train+val", storage=storage):
                pass

    async def test_error_names_split_in_subfolder(self) -> None:
        """`write_splits_from_csv` writes splits to such subfolders."""
        storage = MemoryStorage()
        async with asyncrec.open_sharded_writer("csvc/train/train", storage=storage) as writer:
            await writer.write(b"x")
        for folder, path in (("csvc", "csvc/train"), ("csvc/", "csvc/train")):
            with pytest.raises(ValueError, match=rf"there is one in a subfolder; use open_split\('{path}', 'train'\)"):
                async with open_split(folder, "train[:80%]", storage=storage):
                    pass
        async with open_split(path, "train", storage=storage) as reader:
            assert [record async for batch in reader.batches() for record in batch] == [b"x"]

    async def test_slice_bound_beyond_split_raises_value_error(self) -> None:
        storage = MemoryStorage()
        await written(storage, train=5)
        with pytest.raises(ValueError, match=r"train\[:6\] is out of range, because 'train' has only 5 records"):
            async with open_split("", "train[:6]", storage=storage):
                pass

    async def test_damage_is_raised_after_all_earlier_records(self) -> None:
        storage = MemoryStorage()
        await written(storage, train=90)
        train = await ids(storage, "train")
        content = bytearray(await storage.get("train-00001-of-00003.tfrecord"))
        content[-20] ^= 1
        await storage.put("train-00001-of-00003.tfrecord", content)
        found = []
        async with open_split("", "train", storage=storage) as reader:
            with pytest.raises(CorruptRecordError, match=r"/train-00001-of-00003\.tfrecord, record 29"):
                async for features in reader:
                    found.append(features["id"])
        assert found == train[:59]

    async def test_short_or_missing_shard_raises_dataset_error(self) -> None:
        storage = MemoryStorage()
        await written(storage, train=90)
        await asyncrec.write_records(
            "train-00001-of-00003.tfrecord", [encode_example({"id": 1, "pad": b""})], storage=storage
        )
        with pytest.raises(
            DatasetError, match=r"memory:///train-00001-of-00003\.tfrecord: the file has 29 fewer records than its"
        ):
            await ids(storage, "train")
        await storage.delete("train-00001-of-00003.tfrecord")
        with pytest.raises(ObjectNotFoundError):
            await ids(storage, "train")


class TestOfDatum:
    """Splits written by datum itself, without a manifest and without indexes."""

    async def put(self, storage: Storage) -> None:
        for shard in range(2):
            records = [encode_example({"id": 10 * shard + i, "image": b"\xff\xd8"}) for i in range(10)]
            await asyncrec.write_records(f"train-0000{shard}-of-00002.tfrecord", records, storage=storage)
        info = {"train": {"train-00001-of-00002.tfrecord": 10, "train-00000-of-00002.tfrecord": 10}}
        table = {
            "id": {"type": "int", "shape": [], "dense": True},
            "image": {"type": "string", "shape": [28, 28, 3], "dense": True},
        }
        await storage.put("shard_info.json", json.dumps(info).encode())
        await storage.put("datum_to_type_and_shape_mapping.json", json.dumps(table).encode())

    async def test_datum_splits_are_read_through_their_json_files(self) -> None:
        storage = MemoryStorage()
        await self.put(storage)
        assert await ids(storage, "train") == list(range(20))
        assert await ids(storage, "train[25%:-5]") == list(range(5, 15))

    async def test_datum_splits_combine_with_own_splits(self) -> None:
        storage = MemoryStorage()
        await self.put(storage)

        def ours(split: str) -> Iterator[tuple[int, dict[str, Any]]]:
            yield 0, {"id": 100, "image": b""}

        await DatasetWriter(ours, None, "", "test", storage=storage).create_records()
        assert await ids(storage, "train[-2:]+test") == [18, 19, 100]

    @pytest.mark.parametrize(
        "content",
        [b"[]", b"{", b'{"train": 3}', b'{"train": {"../train": 1}}', b'{"train": {"a/b": 1}}', b'{"train": {"x": -1}}',
         b'{"train": {".hidden": 1}}', b'{"train": {"x": "many"}}'],
    )  # fmt: skip
    async def test_invalid_shard_info_is_rejected(self, content: bytes) -> None:
        storage = MemoryStorage()
        await storage.put("shard_info.json", content)
        with pytest.raises(ManifestError, match=r"shard_info\.json"):
            async with open_split("", "train", storage=storage):
                pass
