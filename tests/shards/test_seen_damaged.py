"""Damaged or missing objects may cause a body to be stored twice, but no page is ever lost."""

from __future__ import annotations

import logging
from random import Random

import pytest

import asyncrec
from asyncrec import tools
from asyncrec.storage import MemoryStorage

from .keyed_store import Far
from .seeing import Stored, opened, page, stored, write

pytestmark = [pytest.mark.anyio, pytest.mark.parametrize("anyio_backend", ["asyncio"])]


async def made(storage: MemoryStorage) -> None:
    await write(storage, [page(f"a/{n}", b"%d" % n) for n in range(12)], max_shard_records=4)
    await tools.compact("pages", storage=storage, manifest_only=True)


async def run_of_contents(storage: MemoryStorage) -> str:
    """Return the key of the run of contents that the checkpoint names."""
    async with asyncrec.open_dataset("pages", storage=storage) as dataset:
        [name] = [run.name for run in dataset.manifest.shards.runs if run.contents]
    return f"_manifest/pages/{name}"


@pytest.mark.parametrize("part", ["tail", "block", "gone", "cut", "other"])
async def test_unreadable_key_run_is_skipped(part: str, caplog: pytest.LogCaptureFixture) -> None:
    storage = Far()
    await made(storage)
    key = await run_of_contents(storage)
    content = bytearray(await storage.get(key))
    if part == "gone":
        await storage.delete(key)
    else:
        content[-5 if part == "tail" else 19] ^= 1
        if part == "cut":
            content = content[:100]
        elif part == "other":
            content = bytearray(Random(1).randbytes(len(content)))
        await storage.put(key, bytes(content))
    caplog.clear()
    await write(storage, [page("b/7", b"7")])
    assert [line for line in caplog.records if "a run of keys cannot be read" in line.getMessage()]
    assert Stored("b/7", "a/7", b"7") in await stored(storage)
    await tools.compact("pages", storage=storage, manifest_only=True)
    await write(storage, [page("c/7", b"7")])
    await tools.compact("pages", storage=storage, manifest_only=True)
    caplog.clear()
    await write(storage, [page("d/7", b"7")])
    assert Stored("d/7", "a/7", b"7") in await stored(storage)
    assert not [line for line in caplog.records if line.levelno >= logging.WARNING]


@pytest.mark.slow
async def test_damaged_byte_of_run_or_keys_keeps_bodies() -> None:
    storage = MemoryStorage()
    await write(storage, [page(f"a/{n}", b"%d" % n) for n in range(2)])
    await tools.compact("pages", storage=storage, manifest_only=True)
    key = await run_of_contents(storage)
    content = await storage.get(key)
    names = {info.key: await storage.get(info.key) async for info in storage.list_objects()}
    for at in range(len(content)):
        again = MemoryStorage()
        for name, data in names.items():
            await again.put(name, data)
        await again.put(key, content[:at] + bytes([content[at] ^ 0x55]) + content[at + 1 :])
        await write(again, [page("b/", b"1")])
        assert Stored("b/", "a/1", b"1") in await stored(again), at


@pytest.mark.parametrize("what", ["shard", "record", "index", "no index"])
async def test_unreadable_body_is_stored_again(what: str, caplog: pytest.LogCaptureFixture) -> None:
    storage = MemoryStorage()
    await write(storage, [page("a/", b"1" * 50)], index=what != "no index")
    (shard,) = (await asyncrec.read_manifest("pages", storage=storage)).shards
    if what == "shard":
        await storage.delete(shard.path)
    elif what == "record":
        content = bytearray(await storage.get(shard.path))
        content[40] ^= 1
        await storage.put(shard.path, bytes(content))
    elif what == "index" and shard.index is not None:
        await storage.put(shard.index.path, b"7 7\n")
    caplog.clear()
    await write(storage, [page("b/", b"1" * 50), page("c/", b"1" * 50)])
    assert len([line for line in caplog.records if "is stored again" in line.getMessage()]) == 1
    [new] = [
        each for each in (await asyncrec.read_manifest("pages", storage=storage)).shards if each.path != shard.path
    ]
    assert new.bytes > 0
    async with opened(storage) as writer:
        assert writer.schema is not None
        found = [writer.schema.decode(each) for each in await _records(storage, new.path)]
    assert [(each["url"], each["refers_to_url"], each["content"]) for each in found] == [
        ("http://b/", "", b"1" * 50),
        ("http://c/", "http://b/", b""),
    ]


async def _records(storage: MemoryStorage, path: str) -> list[bytes]:
    async with asyncrec.open_reader(path, storage=storage) as reader:
        return [record async for record in reader]
