"""A shard is read only if it is the one that was committed.

Every way of reading rejects another shard of equal size under its name, and accepts a copy stored anywhere.
"""

from __future__ import annotations

import dataclasses
import os
import shutil
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

import asyncrec
from asyncrec import blocking
from asyncrec.errors import FormatError, ObjectChangedError
from asyncrec.storage import MemoryStorage, ObjectInfo

pytestmark = pytest.mark.anyio

COUNT = 300


def record(number: int) -> bytes:
    return asyncrec.encode_example({"label": 1000 + number % 3, "number": 1000 + number})


async def written(folder: Any, *, shards: int = 3, **options: Any) -> list[str]:
    async with asyncrec.open_sharded_writer(
        f"{folder}/x" if isinstance(folder, Path) else "x", max_shard_records=COUNT // shards, **options
    ) as writer:
        for number in range(COUNT):
            await writer.write(record(number), key=str(number))
    return await asyncrec.list_shards(
        f"{folder}/x" if isinstance(folder, Path) else "x", storage=options.get("storage")
    )


def swap(first: str, second: str) -> None:
    os.rename(first, first + ".tmp")
    os.rename(second, first)
    os.rename(first + ".tmp", second)


async def by_number(dataset: asyncrec.Dataset) -> Any:
    return [await dataset.get(5)]


async def by_key(dataset: asyncrec.Dataset) -> Any:
    return [await dataset.get_by_key("5")]


async def many(dataset: asyncrec.Dataset) -> Any:
    return await dataset.get_many(range(150))


async def in_order(dataset: asyncrec.Dataset) -> Any:
    return [each async for records in dataset.batches() for each in records]


async def shuffled(dataset: asyncrec.Dataset) -> Any:
    async with dataset.shuffled(seed=1) as stream:
        return [each async for each in stream]


async def by_feature(dataset: asyncrec.Dataset) -> Any:
    async with asyncrec.ClassBalancedSampler(dataset, 2, 2, class_feature="label") as sampler:
        return await anext(sampler)


async def by_function(dataset: asyncrec.Dataset) -> Any:
    async with asyncrec.ClassBalancedSampler(dataset, 2, 2, class_fn=len) as sampler:
        return await anext(sampler)


WAYS = [by_number, by_key, many, in_order, shuffled, by_feature, by_function]


@pytest.mark.parametrize("way", WAYS)
async def test_swapped_shards_of_equal_size_are_rejected(
    way: Callable[[asyncrec.Dataset], Awaitable[Any]], tmp_path: Path
) -> None:
    first, second, _ = await written(tmp_path)
    assert os.path.getsize(first) == os.path.getsize(second)
    swap(first, second)
    async with asyncrec.open_dataset(tmp_path / "x") as dataset:
        with pytest.raises(ObjectChangedError, match="this is not the shard that the manifest lists"):
            await way(dataset)


async def test_swapped_shards_are_rejected_by_blocking_interface(tmp_path: Path) -> None:
    first, second, _ = await written(tmp_path)
    swap(first, second)
    with blocking.open_dataset(tmp_path / "x") as dataset:
        for read in (lambda: dataset[5], lambda: dataset.get_many([5, 7]), lambda: dataset.get_by_key("5")):
            with pytest.raises(ObjectChangedError, match="this is not the shard that the manifest lists"):
                read()


@pytest.mark.parametrize("compression", ["GZIP", "ZLIB"])
async def test_swapped_compressed_shards_are_rejected(compression: Any, tmp_path: Path) -> None:
    async with asyncrec.open_sharded_writer(tmp_path / "x", max_shard_records=1, compression=compression) as writer:
        for letter in b"ab":
            await writer.write(bytes([letter]) * 5, key=chr(letter))
    first, second = await asyncrec.list_shards(tmp_path / "x")
    assert os.path.getsize(first) == os.path.getsize(second)
    swap(first, second)
    async with asyncrec.open_dataset(tmp_path / "x") as dataset:
        with pytest.raises(ObjectChangedError, match="this is not the shard that the manifest lists"):
            await dataset.get_by_key("a")


async def test_shard_damaged_at_its_end_keeps_its_identity(tmp_path: Path) -> None:
    """The shard's intact records are read, and the damaged ones are named."""
    first, *_ = await written(tmp_path)
    content = Path(first).read_bytes()
    Path(first).write_bytes(content[:-12] + b"\xff\xff" + content[-10:])
    async with asyncrec.open_dataset(tmp_path / "x") as dataset:
        assert await dataset.get(5) == record(5)
        with pytest.raises(FormatError, match=os.path.basename(first)):
            await dataset.get(99)
        async with dataset.shuffled(on_corrupt="skip") as stream:
            found = [each async for each in stream]
            assert len(found) == COUNT - 1
            assert len(stream.damage) == 1


async def test_state_is_rejected_over_swapped_shards(tmp_path: Path) -> None:
    first, second, _ = await written(tmp_path)
    async with asyncrec.open_dataset(tmp_path / "x") as dataset, dataset.shuffled(seed=1) as stream:
        for _ in range(100):
            await anext(stream)
        state = stream.state_dict()
    swap(first, second)
    async with asyncrec.open_dataset(tmp_path / "x") as dataset, dataset.shuffled(seed=1) as stream:
        stream.load_state_dict(state)
        with pytest.raises(ObjectChangedError, match="this is not the shard that the manifest lists"):
            await anext(stream)


async def test_store_checksums_reveal_swapped_shards() -> None:
    storage = MemoryStorage()
    first, second, _ = await written(storage, storage=storage)
    await storage.put(first, await storage.get(second))
    async with asyncrec.open_dataset("x", storage=storage) as dataset:
        assert await dataset.get(250) == record(250)
        with pytest.raises(ObjectChangedError, match="this is not the shard that the manifest lists"):
            await dataset.get(5)


class TellsChecksumsByHead(MemoryStorage):
    """Like S3, it does not return an object's checksum for a range."""

    read_ahead = 1 << 20
    heads = 0

    @asynccontextmanager
    async def open_source(self, key: str, **options: Any) -> AsyncIterator[Any]:
        async with super().open_source(key, **options) as source:
            source.info = dataclasses.replace(source.info, crc32c=None)
            yield source

    async def head(self, key: str) -> ObjectInfo:
        self.heads += key.endswith(".tfrecord")
        return await super().head(key)


@pytest.mark.parametrize("way", WAYS[:-1])
async def test_shard_checksum_is_requested_once_from_store(
    way: Callable[[asyncrec.Dataset], Awaitable[Any]],
) -> None:
    storage = TellsChecksumsByHead()
    first, second, _ = await written(storage, storage=storage)
    async with asyncrec.open_dataset("x", storage=storage) as dataset:
        await in_order(dataset)
        await way(dataset)
        assert storage.heads == 3
    await storage.put(first, await storage.get(second))
    async with asyncrec.open_dataset("x", storage=storage) as dataset:
        with pytest.raises(ObjectChangedError, match="this is not the shard that the manifest lists"):
            await way(dataset)


async def test_copy_without_original_times_or_inodes_is_read(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    await written(tmp_path / "a")
    shutil.copytree(tmp_path / "a", tmp_path / "b", copy_function=shutil.copyfile)
    async with asyncrec.open_dataset(tmp_path / "b" / "x") as dataset:
        assert await in_order(dataset) == list(map(record, range(COUNT)))


@pytest.mark.slow(but=["-1-", "-3-"])
@pytest.mark.parametrize("compacted", [False, True])
@pytest.mark.parametrize("shards", [1, 3, 100])
async def test_every_committed_shard_passes_identity_check(shards: int, compacted: bool, tmp_path: Path) -> None:
    """This includes shards with fewer bytes than the part that is checked, and shards listed in a checkpoint."""
    await written(tmp_path, shards=shards)
    if compacted:
        await asyncrec.tools.compact(tmp_path / "x", manifest_only=True)
    manifest = await asyncrec.read_manifest(tmp_path / "x")
    assert all(shard.end_crc32c is not None for shard in manifest.shards)
    async with asyncrec.open_dataset(tmp_path / "x") as dataset:
        assert await many(dataset) == list(map(record, range(150)))
        assert await in_order(dataset) == list(map(record, range(COUNT)))


@pytest.mark.parametrize("way", [by_feature, by_function])
async def test_classes_and_records_come_from_same_shard_version(
    way: Callable[[asyncrec.Dataset], Awaitable[Any]], tmp_path: Path
) -> None:
    """A shard is read, and then replaced by one with the same size and the same last bytes."""
    first, _, _ = await written(tmp_path)
    async with asyncrec.open_dataset(tmp_path / "x") as dataset:
        await dataset.get(5)
        shutil.copyfile(first, tmp_path / "other")
        os.replace(tmp_path / "other", first)
        with pytest.raises(ObjectChangedError):
            await way(dataset)
