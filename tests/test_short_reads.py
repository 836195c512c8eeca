"""Everything that reads copes with a source that returns only one or a few bytes at a time, as its contract allows."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

import asyncrec
from asyncrec import tools
from asyncrec.storage._base import ByteSource
from asyncrec.storage._memory import MemoryStorage
from asyncrec.storage._resuming_source import ResumingSource, read_head, receive_exactly

pytestmark = pytest.mark.anyio

RECORDS = [bytes([number]) * number for number in range(60)]
KEYS = [f"key {number}" for number in range(60)]


class Stingy(MemoryStorage):
    """A storage whose sources return 1, 2, ..., ``most`` bytes per receive, and then start again at 1."""

    most = 0  # 0 means no limit

    @asynccontextmanager
    async def _stingy(self, source: Any) -> AsyncIterator[ByteSource]:
        async with source as inner:
            receive, sizes = inner.receive, itertools.cycle(range(1, self.most + 1))
            if self.most:
                inner.receive = lambda max_bytes: receive(min(max_bytes, next(sizes)))
            yield inner

    def open_source(self, key: str, **options: Any) -> Any:
        return self._stingy(super().open_source(key, **options))


async def written(compression: str) -> Stingy:
    store = Stingy()
    await asyncrec.write_records("plain/a.tfrecord", RECORDS, compression=compression, storage=store)
    async with asyncrec.open_sharded_writer(
        "set/x", storage=store, compression=compression, max_shard_records=25
    ) as writer:
        for record, key in zip(RECORDS, KEYS, strict=True):
            await writer.write(record, key=key)
    return store


async def all_read(store: Stingy) -> list[Any]:
    return await asyncrec.read_records("plain/a.tfrecord", storage=store)


async def all_skipped(store: Stingy) -> list[Any]:
    async with asyncrec.open_reader("plain/a.tfrecord", storage=store, on_corrupt="skip") as reader:
        return [record async for record in reader]


async def interleaved(store: Stingy) -> list[Any]:
    paths = await asyncrec.list_shards("set/x", storage=store)
    async with asyncrec.interleave(paths, storage=store) as stream:
        return [record async for record in stream]


async def counted(store: Stingy) -> list[Any]:
    return [(await tools.count(path, storage=store)).records for path in ("plain/a.tfrecord", "set/x")]


async def described(store: Stingy) -> list[Any]:
    report = await tools.info("plain/a.tfrecord", storage=store)
    return [(each.records, each.compression, each.bytes) for each in report.files]


async def indexed(store: Stingy) -> list[Any]:
    await tools.index("plain/a.tfrecord", storage=store, force=True)
    made = [info.key async for info in store.list_objects("plain/")]
    return [made, await store.get("plain/_index/a.tfrecord.index")]


async def verified(store: Stingy) -> list[Any]:
    report = await tools.verify("set/x", storage=store)
    return [report.records, [each.problems for each in report.shards]]


async def at_random(store: Stingy) -> list[Any]:
    async with asyncrec.open_dataset("set/x", storage=store) as dataset:
        return await dataset.get_many([3, 59, 0, 25])


async def at_random_without_manifest(store: Stingy) -> list[Any]:
    async with asyncrec.open_dataset("plain/a.tfrecord", storage=store) as dataset:
        return await dataset.get_many([3, 59, 0, 25])


async def by_key(store: Stingy) -> list[Any]:
    return [(await tools.get_record("set/x", key=key, storage=store)).data for key in KEYS[::20]]


async def resharded(store: Stingy) -> list[Any]:
    await tools.reshard("set/x", "set/y", storage=store, target_storage=store, max_shard_records=17)
    return [(await tools.get_record("set/y", key=key, storage=store)).data for key in KEYS[::20]]


WAYS: list[Callable[[Stingy], Awaitable[list[Any]]]] = [
    all_read, all_skipped, interleaved, counted, described, indexed, verified, at_random, at_random_without_manifest,
    by_key, resharded,
]  # fmt: skip


@pytest.mark.slow(but=["all_read", "counted", "at_random-GZIP", "by_key-", "interleaved-GZIP"])
@pytest.mark.parametrize("compression", ["", "GZIP", "ZLIB"])
@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
async def test_short_reads_give_same_results_as_whole_reads(
    way: Callable[[Stingy], Awaitable[list[Any]]], compression: str
) -> None:
    expected = await way(await written(compression))
    assert expected
    for most in (1, 5):
        store = await written(compression)
        store.most = most
        assert await way(store) == expected


async def test_receive_exactly_returns_fewer_bytes_only_at_end() -> None:
    store = Stingy()
    store.most = 3
    await store.put("a", b"0123456789")
    async with ResumingSource(store, "a", read_ahead=0) as source:
        assert [await receive_exactly(source, size) for size in (0, 4, 5, 6, 1)] == [b"", b"0123", b"45678", b"9", b""]
    head, info = await read_head(store, "a", 4)
    assert (head, info.size) == (b"0123", 10)
    assert (await read_head(store, "a", 40))[0] == b"0123456789"
