"""The public API as a type checker sees it: ``make lint`` checks this file, nothing runs it.

The names resolve on first use, which would make each of them `Any` if the package did not tell type checkers otherwise.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, assert_type

import asyncrec
from asyncrec import Manifest, RecordReader, RecordWriter, Schema, ShardedWriter, blocking, pages
from asyncrec.datasets import WrittenSplits
from asyncrec.storage import ObjectInfo, Storage


async def writing(path: Path) -> None:
    async with asyncrec.open_writer(path, compression="GZIP", mode="x") as writer:
        assert_type(writer, RecordWriter)
        await writer.write(b"")
        await writer.write(memoryview(b""))
        await writer.write("")  # type: ignore[arg-type]  # text is no record
        await writer.write_many([b"", bytearray()])
        await writer.flush()
    async with asyncrec.open_writer(path, mode="r"):  # type: ignore[arg-type]  # there is no such mode
        pass
    assert_type(await asyncrec.write_records(path, [b""]), ObjectInfo)


async def reading(path: Path, storage: Storage) -> None:
    async with asyncrec.open_reader(str(path), verify=False, storage=storage) as reader:
        assert_type(reader, RecordReader)
        async for record in reader:
            assert_type(record, bytes)
        async for records in reader.batches():
            assert_type(records, list[bytes])
    assert_type(await asyncrec.read_records(path, limit=3), list[bytes])


async def sharding(path: str) -> None:
    async with asyncrec.open_sharded_writer(
        path, num_shards=8, compression=asyncrec.CompressionOptions(type="GZIP")
    ) as writer:
        assert_type(writer, ShardedWriter)
        ticket = await writer.write(b"", key="k", partition="p")
        assert_type(ticket, int)
        await writer.wait(ticket, "committed")
    assert_type(await asyncrec.read_manifest(path), Manifest)


async def streaming(path: str) -> None:
    async with asyncrec.interleave([path], shuffle_buffer=9, on_corrupt="skip") as stream:
        async for record in stream:
            assert_type(record, bytes)
        assert_type(stream.damage, list[asyncrec.ShardDamage])
    async with asyncrec.open_dataset(path) as dataset, dataset.shuffled(mode="global", on_corrupt="skip") as shuffled:
        async for records in shuffled.batches(9):
            assert_type(records, list[bytes])
        dataset.shuffled(on_corrupt="stop")  # type: ignore[arg-type]  # a record is there, or it is not


class Toy(asyncrec.example.DeclaredExample):
    @asyncrec.example.tfrecordable(dtype=asyncrec.example.DeclaredExample.Field.TYPE_INT32)
    def label(self) -> int:
        return 3


async def examples(path: str) -> None:
    schema = Schema({"label": asyncrec.FixedLen((), "int64"), "tags": asyncrec.VarLen("bytes")})
    record = asyncrec.encode_example({"label": 3, "tags": [b"a"]})
    assert_type(record, bytes)
    assert_type(Schema.infer([record]), Schema)
    feature = asyncrec.example.int64_feature(3)
    assert_type(feature, asyncrec.example.Feature)
    message = asyncrec.example.Example(features=asyncrec.example.Features(feature={"label": feature}))
    asyncrec.encode_example(message)
    async with asyncrec.open_sharded_writer(path, schema=schema):
        pass
    assert_type(await asyncrec.write_splits_from_csv(path, Toy, "a.csv", ratios=[0.5, 0.5], user="s"), WrittenSplits)
    paths = await asyncrec.datasets.get_tfrecord_filepaths(path)
    assert_type(paths, list[str])
    async with asyncrec.datasets.generate_dataset(paths, Toy) as dataset:
        assert_type(dataset, asyncrec.datasets.TupleReader)
        async for (label,) in dataset:
            print(label)


async def storing(url: str) -> None:
    async with asyncrec.open_storage(url) as storage:
        assert_type(storage, Storage)
        async for found in storage.list_objects("prefix/"):
            assert_type(found, ObjectInfo)


def errors(error: asyncrec.CorruptRecordError) -> None:
    assert_type(error.offset, int | None)
    as_value: ValueError = error
    as_ours: asyncrec.AsyncRecError = error
    del as_value, as_ours


async def crawling_again(path: Path) -> None:
    async with asyncrec.open_dataset(path) as dataset:
        known = await pages.conditions(dataset, "http://a/")
        headers: dict[str, str] = known
        page = pages.page("http://a/", headers=headers, before=known.page)
        assert_type(await pages.resolve(dataset, page), dict[str, Any])
        assert_type(await pages.resolve(dataset, [page]), list[dict[str, Any]])
        assert_type(pages.is_revisit(page), bool)
        await pages.resolve(dataset, b"record")  # type: ignore[arg-type]  # it has to be decoded
    with blocking.open_dataset(path) as opened:
        assert_type(blocking.resolve(opened, page), dict[str, Any])
        assert_type(blocking.resolve(opened, [page]), list[dict[str, Any]])
        assert_type(blocking.conditions(opened, "http://a/").page, dict[str, Any] | None)
        await pages.conditions(opened, "http://a/")  # type: ignore[arg-type]  # that one is called without async
