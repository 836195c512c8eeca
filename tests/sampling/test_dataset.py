"""`asyncrec.open_dataset` reads any record by number or key, with any compression, with or without indexes."""

from __future__ import annotations

import gzip
import logging
import random
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import numpy as np
import pytest

import asyncrec
from asyncrec import tools
from asyncrec._framing.frames import encode_frames
from asyncrec._sampling.random_access import range_reader
from asyncrec.errors import (
    ArgumentTypeError,
    CorruptRecordError,
    DatasetError,
    ObjectChangedError,
    ObjectNotFoundError,
)
from asyncrec.storage._base import ByteSource, Storage
from asyncrec.storage._local.storage import LocalStorage
from asyncrec.storage._memory import MemoryStorage
from asyncrec.testing._faults import Fault, FlakyStorage

pytestmark = pytest.mark.anyio

RECORDS = [b"record %05d " % i * (1 + i % 7) for i in range(1000)]


async def written(storage: Storage, records: list[bytes] = RECORDS, **options: Any) -> list[bytes]:
    """Write a data set "pages" of these records, and return them in the order of its shards."""
    options = {"max_shard_records": 130} | options
    async with asyncrec.open_sharded_writer("pages", storage=storage, **options) as writer:
        for number, record in enumerate(records):
            await writer.write(record, key=f"key {number}")
    manifest = await asyncrec.read_manifest("pages", storage=storage)
    found = []
    for shard in manifest.shards:
        found += await asyncrec.read_records(shard.path, storage=storage)
    return found


@pytest.mark.parametrize("compression", ["", "GZIP", "ZLIB"])
async def test_record_is_found_by_number_from_either_end(compression: str) -> None:
    storage = MemoryStorage()
    records = await written(storage, compression=compression)
    async with asyncrec.open_dataset("pages", storage=storage) as dataset:
        assert len(dataset) == 1000
        for number in (0, 1, 129, 130, 999, -1, -1000, np.int64(500)):
            assert await dataset.get(number) == records[number]
        assert await dataset.get_many([]) == []
        assert await dataset.get_many(range(1000)) == records


@pytest.mark.parametrize("compression", ["", "GZIP", "ZLIB"])
@pytest.mark.parametrize("indexed", [True, False])
async def test_get_many_keeps_requested_order_and_repeats(compression: str, indexed: bool) -> None:
    storage = MemoryStorage()
    records = await written(storage, compression=compression, index=indexed)
    wanted = random.Random(1).choices(range(-1000, 1000), k=2500)
    async with asyncrec.open_dataset("pages", storage=storage) as dataset:
        assert await dataset.get_many(wanted) == [records[number] for number in wanted]
        assert await dataset.get_many(np.array(wanted)) == [records[number] for number in wanted]


@pytest.mark.parametrize("number", [1000, -1001, 1 << 40])
async def test_out_of_range_number_is_named_in_index_error(number: int) -> None:
    storage = MemoryStorage()
    await written(storage)
    async with asyncrec.open_dataset("pages", storage=storage) as dataset:
        with pytest.raises(IndexError, match=str(number)):
            await dataset.get(number)
        with pytest.raises(IndexError, match=r"1,000 records"):
            await dataset.get_many([0, number])


@pytest.mark.parametrize("compression", ["", "GZIP"])
async def test_record_is_found_by_key(compression: str) -> None:
    storage = MemoryStorage()
    await written(storage, compression=compression)
    async with asyncrec.open_dataset("pages", storage=storage) as dataset:
        for number in (0, 1, 500, 999):
            assert await dataset.get_by_key(f"key {number}") == RECORDS[number]
        with pytest.raises(KeyError, match="key 1000"):
            await dataset.get_by_key("key 1000")


async def test_first_record_of_duplicate_key_is_found() -> None:
    storage = MemoryStorage()
    async with asyncrec.open_sharded_writer("pages", max_shard_records=2, storage=storage) as writer:
        for number in range(5):
            await writer.write(b"%d" % number, key="same" if number else None)
    async with asyncrec.open_sharded_writer("bare", storage=storage) as writer:
        await writer.write(b"")
    async with asyncrec.open_dataset("pages", storage=storage) as dataset:
        assert await dataset.find("same") == 1
    async with asyncrec.open_dataset("bare", storage=storage) as dataset:
        with pytest.raises(KeyError, match="key="):
            await dataset.find("same")


async def test_missing_or_wrongly_sized_keys_raise_dataset_error() -> None:
    storage = MemoryStorage()
    await written(storage)
    async with asyncrec.open_dataset("pages", storage=storage) as dataset:
        await storage.put(dataset.manifest.shards[0].keys.path, bytes(16))
        with pytest.raises(DatasetError, match=r"the file has 16 bytes, but the keys of 130 records"):
            await dataset.find("key 1")
        await storage.delete(dataset.manifest.shards[0].keys.path)
        with pytest.raises(ObjectNotFoundError):
            await dataset.find("key 1")


async def test_locate_returns_frame_offset_and_size() -> None:
    storage = MemoryStorage()
    records = await written(storage)
    async with asyncrec.open_dataset("pages", storage=storage) as dataset:
        for number in (0, 131, -1):
            where = await dataset.locate(number)
            data = (await storage.get(where.path.rpartition("/")[2]))[where.offset :][: where.size]
            assert data == b"".join(encode_frames([records[number]]))
            assert where.member is None
        with pytest.raises(IndexError):
            await dataset.locate(1000)


async def test_locate_in_gzip_shard_returns_member(tmp_path: Path) -> None:
    records = [bytes([number]) * 700_000 for number in range(20)]
    async with asyncrec.open_sharded_writer(tmp_path / "pages", compression="GZIP") as writer:
        await writer.write_many(records)
    async with asyncrec.open_dataset(tmp_path / "pages") as dataset:
        found = [await dataset.locate(number) for number in range(20)]
        assert len({where.member for where in found}) > 2, "a member about every 4 MiB"
        assert Path(found[0].path).exists()
        for number, where in enumerate(found):
            unpacked = gzip.decompress(Path(where.path).read_bytes()[where.member :])
            assert unpacked[where.offset : where.offset + where.size] == b"".join(encode_frames([records[number]]))
        assert await dataset.get_many([19, 0, 11]) == [records[19], records[0], records[11]]


@pytest.mark.parametrize("kind", ["none", "gzip", "zlib"])
async def test_tensorflow_files_are_counted_and_read_without_index(kind: str, vectors: Path) -> None:
    path = vectors / f"records-{kind}.tfrecord"
    expected = await asyncrec.read_records(path)
    async with asyncrec.open_dataset(path) as dataset:
        assert len(dataset) == len(expected)
        assert await dataset.get_many(range(len(expected))) == expected
        assert await dataset.get(-1) == expected[-1]
        assert dataset.schema is None
        async with dataset.shuffled() as stream:
            assert sorted([record async for record in stream]) == sorted(expected)


async def test_records_spanning_gzip_members_are_read() -> None:
    """Other writers begin a new member at any byte."""
    storage = MemoryStorage()
    frames = b"".join(encode_frames(RECORDS))
    pieces = [frames[at : at + 999] for at in range(0, len(frames), 999)]
    await storage.put("cut-0.tfrecord", b"".join(gzip.compress(piece) for piece in pieces))
    async with asyncrec.open_dataset("cut-*", storage=storage) as dataset:
        assert await dataset.get_many(range(999, -1, -1)) == RECORDS[::-1]


async def test_record_of_cached_member_is_read_without_thread(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    storage = MemoryStorage()
    records = await written(storage, compression="GZIP")
    async with asyncrec.open_dataset("pages", storage=storage) as dataset:
        assert await dataset.get(7) == records[7]
        monkeypatch.setattr(range_reader, "in_thread", None)
        assert [await dataset.get(number) for number in (0, 8, 129)] == [records[number] for number in (0, 8, 129)]
        assert await dataset.get_many([3, 90, 3]) == [records[3], records[90], records[3]]


async def test_large_gzip_member_is_read_in_bounded_memory() -> None:
    storage = MemoryStorage()
    records = [bytes([number]) * (1 << 20) for number in range(40)]
    await storage.put("one.tfrecord", gzip.compress(b"".join(encode_frames(records)), 1))
    async with asyncrec.open_dataset("one", storage=storage) as dataset:
        assert await dataset.get_many([39, 3, 20]) == [records[39], records[3], records[20]]
        assert dataset.lookup.reader._members.weight == 0, "more than is kept"


async def test_shards_without_manifest_follow_pattern_in_name_order() -> None:
    storage = MemoryStorage()
    for number in (2, 0, 1):
        await asyncrec.write_records(f"data/train-{number}.tfrecord", [b"%d" % number] * 2, storage=storage)
    await asyncrec.write_records("data/_train-3.tfrecord", [b"hidden"], storage=storage)
    for path in ("data/train", "data/train-*.tfrecord", "data/*"):
        async with asyncrec.open_dataset(path, storage=storage) as dataset:
            assert await dataset.get_many(range(len(dataset))) == [b"0", b"0", b"1", b"1", b"2", b"2"]
            identity = dataset.manifest.id
    async with asyncrec.open_dataset("data/train", storage=storage) as dataset:
        assert dataset.manifest.id == identity
    for path in ("data/tests", "data/*.rec"):
        with pytest.raises(
            ObjectNotFoundError,
            match=re.escape(f"{path}: there is no manifest and no matching shard; pass the folder and name of a data"),
        ):
            async with asyncrec.open_dataset(path, storage=storage):
                pass


@pytest.mark.parametrize("where", ["memory", "disk", "cache"])
async def test_folder_with_one_data_set_opens_as_data_set(tmp_path: Path, where: str) -> None:
    storage: Storage = MemoryStorage() if where != "disk" else LocalStorage(str(tmp_path))
    options: dict[str, Any] = {"storage": storage, "cache": tmp_path / "cache" if where == "cache" else None}
    async with asyncrec.open_sharded_writer("crawl/pages", storage=storage) as writer:
        await writer.write(b"0", key="zero")
    await asyncrec.write_records("crawl/deep/other.tfrecord", [b"1"], storage=storage)
    await asyncrec.write_records("crawl.tfrecord", [b"2"], storage=storage)  # its name starts with the same letters
    async with asyncrec.open_dataset("crawl", **options) as dataset:
        assert dataset.manifest.path.endswith("crawl/pages")
        assert await dataset.get_by_key("zero") == b"0"
        assert (dataset.cache is None) == (where != "cache")
        manifest = dataset.manifest
    async with asyncrec.open_dataset(manifest, **options) as dataset:
        assert [record async for record in dataset] == [b"0"]


async def test_folder_of_bare_shards_opens_as_those_shards() -> None:
    storage = MemoryStorage()
    for number in range(3):
        await asyncrec.write_records(f"crawl/part-{number}", [b"%d" % number], storage=storage)
    await asyncrec.write_records("crawl/_hidden", [b"9"], storage=storage)
    await asyncrec.write_records("crawl.py", [b"8"], storage=storage)  # its name starts with the same letters
    async with asyncrec.open_dataset("crawl", storage=storage) as dataset:
        assert [record async for record in dataset] == [b"0", b"1", b"2"]


async def test_folder_with_several_data_sets_is_rejected_with_names() -> None:
    storage = MemoryStorage()
    for name in ("train", "eval"):
        async with asyncrec.open_sharded_writer(f"crawl/{name}", storage=storage) as writer:
            await writer.write(b"0")
    with pytest.raises(
        ObjectNotFoundError, match=r"crawl: this folder contains 2 data sets: eval, train; .*'crawl/eval'"
    ):
        async with asyncrec.open_dataset("crawl", storage=storage):
            pass


async def test_shards_are_not_matched_by_name_prefix() -> None:
    storage = MemoryStorage()
    await written(storage)
    assert await asyncrec.list_shards("page", storage=storage) == []
    with pytest.raises(
        ObjectNotFoundError, match="page: there is no data set with this name; the folder contains pages"
    ):
        async with asyncrec.open_dataset("page", storage=storage):
            pass


async def test_pattern_of_data_set_names_is_rejected_with_fix() -> None:
    storage = MemoryStorage()
    for name in ("pages-2026-11-23", "pages-2026-11-24", "pages-2026-12-01"):
        async with asyncrec.open_sharded_writer(f"crawl/{name}", storage=storage) as writer:
            await writer.write(b"0")
    pattern = "crawl/pages-2026-11-2[3-9]"
    told = r"data sets do: pages-2026-11-23, pages-2026-11-24; .*'crawl/pages-2026-11-2\[3-9\]-\*'$"
    with pytest.raises(ObjectNotFoundError, match=told):
        async with asyncrec.open_dataset(pattern, storage=storage):
            pass
    with pytest.raises(ObjectNotFoundError, match=told):
        await tools.count(pattern, storage=storage)
    async with asyncrec.open_dataset(pattern + "-*", storage=storage) as dataset:
        assert len(dataset) == 2
    assert (await tools.count(pattern + "-*", storage=storage)).records == 2


async def test_list_of_paths_is_rejected_with_alternatives() -> None:
    with pytest.raises(ArgumentTypeError, match=r"not a list; .*a pattern such as .*, or interleave"):
        async with asyncrec.open_dataset(["crawl/a", "crawl/b"]):  # type: ignore[arg-type]
            pass


async def test_shards_of_several_data_sets_trigger_naming_warning(
    caplog: pytest.LogCaptureFixture,
) -> None:
    storage = MemoryStorage()
    for name in ("py-a/test", "py-a/train", "py-a/train-2"):
        async with asyncrec.open_sharded_writer(name, max_shard_records=3, storage=storage) as writer:
            await writer.write_many([b"%d" % n for n in range(6)])
    await asyncrec.write_records("py-a/other.tfrecord", [b"other"], storage=storage)

    async def opened(path: str) -> int:
        caplog.clear()
        with caplog.at_level(logging.WARNING, "asyncrec.sampling"):
            async with asyncrec.open_dataset(path, storage=storage) as dataset:
                return len(dataset)

    for path in ("py-a/", "py-a/*.tfrecord"):
        assert await opened(path) == 19
        assert caplog.messages == [
            f"{path}: the shards of 3 data sets are read together: test, train, train-2; to read only "
            "one of them, pass open_dataset('py-a/test')"
        ]
    for path in ("py-a/train*", "py-a/tr*.tfrecord", "py-a/train-*"):
        assert await opened(path) == 12
        (told,) = caplog.messages
        assert (
            "2 data sets are read together: train, train-2; to read only one of them, pass open_dataset('py-a/train')"
            in told
        )
    for path, count in {"py-a/train": 6, "py-a/test-*": 6, "py-a/train-2-*": 6, "py-a/o*": 1, "py-a/other": 1}.items():
        assert await opened(path) == count
        assert caplog.messages == []


async def test_manifest_opens_same_snapshot_after_later_commits() -> None:
    storage = MemoryStorage()
    await written(storage)
    manifest = await asyncrec.read_manifest("pages", storage=storage)
    await written(storage)
    async with asyncrec.open_dataset(manifest, storage=storage) as dataset:
        assert len(dataset) == 1000
        assert repr(dataset) == "<Dataset pages: 1,000 records in 8 shards>"
    async with asyncrec.open_dataset("pages", storage=storage) as dataset:
        assert len(dataset) == 2000


async def test_data_set_schema_comes_from_manifest() -> None:
    storage = MemoryStorage()
    schema = asyncrec.Schema.infer([asyncrec.encode_example({"label": 3})])
    async with asyncrec.open_sharded_writer("pages", schema=schema, storage=storage) as writer:
        await writer.write(asyncrec.encode_example({"label": 4}))
    async with asyncrec.open_dataset("pages", storage=storage) as dataset:
        assert dataset.schema == schema


@pytest.mark.parametrize(
    "text",
    [b"", b"0 17\n", b"nonsense\n", b"0 30\n" * 130, b"\xff\xfe", None],
    ids=["", "short", "text", "gap", "b", "-"],
)
@pytest.mark.parametrize("compression", ["", "GZIP"])
async def test_unusable_index_is_rebuilt(text: bytes | None, compression: str) -> None:
    storage = MemoryStorage()
    records = await written(storage, compression=compression)
    async with asyncrec.open_dataset("pages", storage=storage) as dataset:
        key = dataset.manifest.shards[1].index.path
        if text is None:
            await storage.delete(key)
        else:
            await storage.put(key, text)
        assert await dataset.get_many(range(100, 200)) == records[100:200]


async def test_indexes_are_read_once_and_only_for_needed_shards() -> None:
    storage = FlakyStorage(MemoryStorage())
    await written(storage)
    async with asyncrec.open_dataset("pages", storage=storage) as dataset:
        storage.operations.clear()
        for _ in range(3):
            await dataset.get_many([140, 145, 150])
        opened = [key for kind, key in storage.operations if kind == "open_source"]
        assert [key for key in opened if key.endswith(".index")] == [dataset.manifest.shards[1].index.path]
        assert len(opened) == 1 + 3, "the three records stand near each other: one read"


async def test_damaged_record_is_named_and_neighbours_are_read() -> None:
    storage = MemoryStorage()
    records = await written(storage)
    async with asyncrec.open_dataset("pages", storage=storage) as dataset:
        where = await dataset.locate(200)
        shard = dataset.manifest.shards[1]
        data = bytearray(await storage.get(shard.path))
        data[where.offset + 12] ^= 1
        await storage.put(shard.path, data)
        with pytest.raises(CorruptRecordError) as raised:
            await dataset.get_many([10, 200])
        error = raised.value
        assert (error.record, error.offset, error.part) == (70, where.offset, "data")
        assert str(error.path).endswith(shard.path)
        assert await dataset.get_many([199, 201]) == [records[199], records[201]]


async def test_damage_in_gzip_member_names_member() -> None:
    storage = MemoryStorage()
    await written(storage, compression="GZIP")
    async with asyncrec.open_dataset("pages", storage=storage) as dataset:
        shard = dataset.manifest.shards[1]
        data = bytearray(await storage.get(shard.path))
        data[len(data) // 2] ^= 0xFF
        await storage.put(shard.path, data)
        for _ in range(2):
            with pytest.raises(CorruptRecordError) as raised:
                await dataset.get_many([200])
            assert str(raised.value.path).endswith(shard.path)
            assert raised.value.member_offset == 0


async def test_missing_or_rewritten_shard_is_named() -> None:
    storage = MemoryStorage()
    await written(storage)
    async with asyncrec.open_dataset("pages", storage=storage) as dataset:
        gone, longer, other = (shard.path for shard in dataset.manifest.shards[:3])
        await dataset.get(270)
        await storage.delete(gone)
        await storage.put(longer, await storage.get(longer) + b"more")
        await storage.put(other, await storage.get(other))
        with pytest.raises(ObjectNotFoundError, match=gone) as caught:
            await dataset.get(0)
        assert "the manifest lists this shard, but it does not exist" in str(caught.value)
        assert "'asyncrec verify'" in str(caught.value)
        with pytest.raises(ObjectChangedError, match=longer):
            await dataset.get(140)
        with pytest.raises(ObjectChangedError, match=other):
            await dataset.get(270)


async def test_missing_shard_is_never_skipped_as_damage() -> None:
    storage = MemoryStorage()
    await written(storage)
    async with asyncrec.open_dataset("pages", storage=storage) as dataset:
        await storage.delete(dataset.manifest.shards[0].path)
        with pytest.raises(ObjectNotFoundError, match="the manifest lists this shard, but it does not exist"):
            async for _ in dataset:
                pass
        with pytest.raises(ObjectNotFoundError, match="the manifest lists this shard, but it does not exist"):
            async with dataset.shuffled(seed=1, on_corrupt="skip") as stream:
                async for _ in stream.batches(10):
                    pass


async def test_reads_survive_faults_and_store_errors_are_raised() -> None:
    inner = MemoryStorage()
    records = await written(inner)
    storage = FlakyStorage(inner, seed=1, rate=0.05, faults=[Fault("short")])
    async with asyncrec.open_dataset("pages", storage=inner) as dataset:
        dataset.files.folder = storage
        assert await dataset.get_many(range(1000)) == records
        assert storage.failed
        dataset.files.folder = FlakyStorage(inner, {2: Fault(error=ObjectNotFoundError, for_good=True)})
        with pytest.raises(ObjectNotFoundError):
            await dataset.get_many(range(1000))


class Remote(FlakyStorage):
    """A store that is slow enough to be read ahead. Its next ``garbled`` reads return damaged data."""

    def __init__(self, inner: Storage) -> None:
        super().__init__(inner)
        self.read_ahead = 1 << 20
        self.garbled = 0

    @asynccontextmanager
    async def open_source(self, key: str, **options: Any) -> AsyncIterator[ByteSource]:
        async with super().open_source(key, **options) as source:
            if self.garbled:
                self.garbled -= 1
                receive = source.receive

                async def garbling(max_bytes: int) -> bytes:
                    return bytes(byte ^ 1 for byte in await receive(max_bytes))

                source.receive = garbling  # type: ignore[method-assign]
            yield source


async def test_transit_damage_is_repaired_by_rereading() -> None:
    inner = MemoryStorage()
    records = await written(inner)
    storage = Remote(inner)
    async with asyncrec.open_dataset("pages", storage=storage) as dataset:
        await dataset.locate(0)
        storage.garbled = 1
        assert await dataset.get(0) == records[0]
        storage.garbled = 2
        with pytest.raises(CorruptRecordError) as raised:
            await dataset.get(0)
        assert "stored object itself is damaged" in raised.value.__notes__[0]


async def test_shard_with_fewer_records_than_manifest_raises() -> None:
    storage = MemoryStorage()
    await written(storage, index=False)
    async with asyncrec.open_dataset("pages", storage=storage) as dataset:
        path = dataset.manifest.shards[0].path
        size = dataset.manifest.shards[0].bytes
        await storage.put(path, b"".join(encode_frames([bytes(size - 16)])))
        # The store keeps a checksum, which differs, so it raises before the records are counted.
        with pytest.raises(ObjectChangedError, match="this is not the shard that the manifest lists"):
            await dataset.get(0)


@pytest.mark.parametrize("kind", [np.int8, np.int64, np.uint8, np.uint16, np.uint32, np.uint64])
async def test_record_numbers_of_any_integer_type_are_exact(kind: Any) -> None:
    """No number turns into a different one when it is cast."""
    storage = MemoryStorage()
    records = await written(storage)
    limits = np.iinfo(kind)
    numbers = {0, 1, 99, limits.max, limits.max - 24, limits.min, limits.min + 1, limits.max // 2 + 1, 999, 1000}
    async with asyncrec.open_dataset("pages", storage=storage) as dataset:
        for number in sorted(numbers):
            if not limits.min <= number <= limits.max:
                continue
            if -1000 <= number < 1000:
                assert await dataset.get_many(np.array([number], kind)) == [records[number]]
                assert await dataset.get(kind(number)) == records[number]
            else:
                with pytest.raises(IndexError, match=str(number)):
                    await dataset.get_many(np.array([0, number], kind))


async def test_indices_must_be_one_dimensional_integers() -> None:
    storage = MemoryStorage()
    await written(storage)
    async with asyncrec.open_dataset("pages", storage=storage) as dataset:
        for wrong in (np.zeros(2), np.zeros((2, 2), int)):
            with pytest.raises(
                TypeError, match=r"must be a one-dimensional array of integers, not an array of \w+ with the shape \("
            ):
                await dataset.get_many(wrong)
        with pytest.raises(TypeError, match="must be an int, not float"):
            await dataset.get_many([1.5])  # type: ignore[list-item]  # deliberately wrong
        with pytest.raises(TypeError, match="must be an int, not str; to look up a key, use get_by_key"):
            await dataset.get("a key")  # type: ignore[arg-type]  # deliberately wrong


async def test_data_set_rejects_reads_outside_context() -> None:
    storage = MemoryStorage()
    await written(storage)
    async with asyncrec.open_dataset("pages", storage=storage) as dataset:
        await dataset.get(0)
        stream = dataset.shuffled()
    for read in (
        lambda: dataset.get(0),
        lambda: dataset.get_many([0, 1]),
        lambda: dataset.get_many([]),
        lambda: dataset.find("0"),
        lambda: dataset.get_by_key("0"),
        lambda: dataset.locate(0),
        lambda: anext(aiter(dataset)),
        lambda: anext(dataset.batches()),
    ):
        with pytest.raises(anyio.ClosedResourceError, match="a data set must be read inside its `async with`"):
            await read()
    async with stream:
        with pytest.raises(anyio.ClosedResourceError, match="must be read inside"):
            await anext(stream)
    assert len(dataset) == 1000, "what needs no reading is still told"
