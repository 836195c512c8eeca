"""If a committed shard's name now refers to a different object, every tool rejects it and writes nothing."""

from __future__ import annotations

import random
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from tool_data import example, write_pages

import asyncrec
from asyncrec import tools
from asyncrec.errors import FormatError, ObjectChangedError
from asyncrec.storage import ByteSource, MemoryStorage, ObjectInfo, Storage
from asyncrec.testing import FlakyStorage
from asyncrec.tools import Where

pytestmark = pytest.mark.anyio

ALL = [Where("label", "0", ">=")]


@pytest.fixture(autouse=True)
def later(monkeypatch: pytest.MonkeyPatch) -> None:
    """Move the clock of `compact` forward: it sorts only shards that are older than its grace period."""
    monkeypatch.setattr("asyncrec.tools._compact.time", SimpleNamespace(time=lambda: time.time() + 100_000))


async def read(storage: Storage) -> None:
    async with tools.open_records("pages", storage=storage) as records:
        async for _ in records:
            pass


async def read_tail(storage: Storage) -> None:
    async with tools.open_tail("pages", records=20, storage=storage) as records:
        async for _ in records:
            pass


def make(tool: Callable[..., Awaitable[Any]], target: str = "made", **options: Any) -> Callable[[Storage], Any]:
    return lambda storage: tool("pages", target, storage=storage, target_storage=storage, **options)


def call(tool: Callable[..., Awaitable[Any]], **options: Any) -> Callable[[Storage], Any]:
    return lambda storage: tool("pages", storage=storage, **options)


REWRITING = {
    "delete --key": call(tools.delete, keys=["key 15"]),
    "delete all of a shard": call(tools.delete, keys=[f"key {number}" for number in range(10, 20)]),
    "delete --where": call(tools.delete, where=[Where("text", "text 15")]),
    "compact": call(tools.compact, max_shard_bytes=1 << 20),
    "compact --sort-by": call(tools.compact, drop_duplicates=True, sort_by="text"),
}
WAYS = {
    "read": read,
    "tail": read_tail,
    "count --where": call(tools.count, where=ALL),
    "count --by": call(tools.count, by="label"),
    "schema --infer": call(tools.schema, infer=True),
    "diff": lambda storage: tools.diff("pages", "pages", by="content", storage=storage),
    "filter": make(tools.filter, where=ALL),
    "reshard": make(tools.reshard, max_shard_records=7),
    "reshard --shuffle": make(tools.reshard, max_shard_records=7, shuffle=True),
    "reshard --group-by": make(tools.reshard, max_shard_records=7, group_by="label"),
    "dedupe": make(tools.dedupe),
    "dedupe --by": make(tools.dedupe, by="feature:text"),
    "dedupe --by-key": make(tools.dedupe, by="key"),
    "convert": make(tools.convert, "made.jsonl"),
    "merge": lambda storage: tools.merge(["pages"], "made", storage=storage, target_storage=storage),
    **REWRITING,
}


async def empty(storage: Storage, paths: list[str]) -> None:
    await storage.put(paths[1], b"")


async def cut(storage: Storage, paths: list[str]) -> None:
    """Replace the shard with one that contains only six of its records."""
    await asyncrec.write_records("cut", [example(number) for number in range(10, 16)], storage=storage)
    await storage.put(paths[1], await storage.get("cut"))
    await storage.delete("cut")


async def swap(storage: Storage, paths: list[str]) -> None:
    one, other = [await storage.get(path) for path in paths[1:3]]
    await storage.put(paths[1], other)
    await storage.put(paths[2], one)


async def objects(storage: Storage) -> dict[str, bytes]:
    """Return all objects except those that an unsuccessful job leaves behind."""
    keys = [info.key async for info in storage.list_objects()]
    return {key: await storage.get(key) for key in keys if not key.startswith("_manifest/made/")}


async def refused(storage: Storage, way: Callable[[Storage], Any]) -> str:
    before = await objects(storage)
    with pytest.raises(ObjectChangedError) as caught:
        await way(storage)
    assert await objects(storage) == before
    return str(caught.value)


async def paths_of(storage: Storage, of: str = "pages") -> list[str]:
    return [shard.path for shard in (await asyncrec.read_manifest(of, storage=storage)).shards]


@pytest.mark.parametrize("change", [empty, cut, swap])
@pytest.mark.parametrize("way", WAYS)
async def test_exchanged_shard_is_refused(
    storage: Storage, way: str, change: Callable[[Storage, list[str]], Awaitable[None]]
) -> None:
    await write_pages(storage)
    paths = await paths_of(storage)
    await change(storage, paths)
    assert paths[1] in await refused(storage, WAYS[way])


@pytest.mark.parametrize("way", ["filter", "delete --where"])
async def test_exchanged_compressed_shard_is_refused(storage: Storage, way: str) -> None:
    await write_pages(storage, compression="ZLIB")
    paths = await paths_of(storage)
    await cut(storage, paths)
    assert paths[1] in await refused(storage, WAYS[way])


async def test_exchanged_shard_of_pattern_is_refused(storage: Storage) -> None:
    await write_pages(storage)
    await swap(storage, await paths_of(storage))
    with pytest.raises(ObjectChangedError):
        await tools.merge(["pages-*"], "made", storage=storage, target_storage=storage)


async def test_info_describes_set_with_exchanged_shard(storage: Storage) -> None:
    await write_pages(storage)
    paths = await paths_of(storage)
    await storage.put(paths[0], b"")
    report = await tools.info("pages", storage=storage)
    assert report.records == 30
    assert paths[0] in (report.damage or "")


class Untold(MemoryStorage):
    """A remote store that keeps no checksums."""

    read_ahead = 1 << 20

    async def head(self, key: str) -> ObjectInfo:
        return replace(await super().head(key), crc32c=None)

    @asynccontextmanager
    async def open_source(self, key: str, **options: Any) -> AsyncIterator[ByteSource]:
        async with super().open_source(key, **options) as source:
            source.info = replace(source.info, crc32c=None)
            yield source


async def write_long(storage: Storage, path: str, labels: tuple[int, int], compression: str) -> None:
    """Write two records with keys to one shard."""
    async with asyncrec.open_sharded_writer(path, storage=storage, compression=compression) as writer:
        for label in labels:
            record = asyncrec.encode_example({"label": label, "text": random.Random(label).randbytes(9999)})
            await writer.write(record, key=f"key {label}")


@pytest.mark.parametrize("compression", ["", "GZIP"])
@pytest.mark.parametrize("untold", [True, False], ids=["store", "local"])
@pytest.mark.parametrize(
    "way",
    [
        call(tools.delete, keys=["key 0"]),
        call(tools.delete, keys=["key 0", "key 1"]),
        call(tools.delete, where=[Where("label", "0")]),
        call(tools.compact, drop_duplicates=True, sort_by="label"),
        call(tools.compact, compression="ZLIB"),
        *(WAYS[name] for name in ("filter", "merge", "reshard", "reshard --shuffle", "dedupe --by-key")),
    ],
)
async def test_shard_with_equal_end_is_refused(
    storage: Storage, way: Callable[[Storage], Any], compression: str, untold: bool
) -> None:
    """Neither the size, the last bytes nor the store's metadata tell the shards apart: only their full contents do."""
    store = Untold() if untold else storage
    await write_long(store, "pages", (0, 1), compression)
    if compression:
        (path,) = await paths_of(store)
        content = bytearray(await store.get(path))
        content[4] ^= 1  # the time in the header
    else:
        await write_long(store, "other", (2, 1), compression)
        (path,), (other,) = await paths_of(store), await paths_of(store, "other")
        content = bytearray(await store.get(other))
    assert (len(content), content[-5000:]) == (len(await store.get(path)), (await store.get(path))[-5000:])
    await store.put(path, content)
    assert path in await refused(store, way)


async def test_damaged_shard_is_not_mistaken_for_another(storage: Storage) -> None:
    await write_pages(storage)
    path = (await paths_of(storage))[1]
    content = bytearray(await storage.get(path))
    content[-9] ^= 1
    await storage.put(path, content)
    for way in ("read", "filter", "reshard", "delete --key"):
        with pytest.raises(FormatError):
            await WAYS[way](storage)
    report = await tools.reshard("pages", "made", storage=storage, target_storage=storage, on_corrupt="skip")
    assert report.records == 29
    assert (await WAYS["delete all of a shard"](storage)).records == 10


async def test_lost_shard_may_be_deleted_whole(storage: Storage) -> None:
    await write_pages(storage)
    await storage.delete((await paths_of(storage))[1])
    assert (await WAYS["delete all of a shard"](storage)).records == 10


@pytest.mark.parametrize("way", ["read", "count --where", "filter", "reshard"])
async def test_reading_asks_once_for_each_shard(way: str) -> None:
    inner = MemoryStorage()
    inner.read_ahead = 1 << 20
    await write_pages(inner)
    storage = FlakyStorage(inner)
    paths = await paths_of(inner)
    await WAYS[way](storage)
    asked = [key for operation, key in storage.operations if operation in ("open_source", "head") and key in paths]
    assert sorted(asked) == paths
