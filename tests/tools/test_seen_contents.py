"""For the records that they keep, tools also keep the content digests that are stored with the keys."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

import asyncrec
from asyncrec import pages, tools
from asyncrec.errors import ArgumentError, DatasetError
from asyncrec.storage import MemoryStorage, Storage
from asyncrec.tools import Where

pytestmark = [pytest.mark.anyio, pytest.mark.parametrize("anyio_backend", ["asyncio"])]

COUNT = 30


def page(url: str, body: bytes) -> dict[str, Any]:
    return pages.page(f"http://{url}", body, status=200, date="2026-11-28T00:00:00Z")


async def write(storage: Storage, name: str, host: str, **options: Any) -> None:
    given = {"schema": pages.PAGE, "key_feature": "url", "on_duplicate": "write", "max_shard_records": 7}
    async with asyncrec.open_sharded_writer(name, storage=storage, **{**given, **options}) as writer:
        for number in range(COUNT):
            await writer.write(page(f"{host}/{number}", b"body %d" % (number % 20)))


async def knows(storage: Storage, name: str) -> list[str]:
    """Return the pages whose bodies a new writer recognizes."""
    options: dict[str, Any] = {"schema": pages.PAGE, "key_feature": "url", "on_duplicate": "write", "seen": "digest"}
    async with asyncrec.open_sharded_writer(name, storage=storage, **options) as writer:
        for number in range(20):
            await writer.write(page(f"new/{number}", b"body %d" % number))
    found = []
    async with asyncrec.open_dataset(name, storage=storage) as dataset:
        async for each in dataset.examples():
            if each["url"].startswith("http://new/") and pages.is_revisit(each):
                assert (await pages.resolve(dataset, each))["content"] != b""
                found.append(each["refers_to_url"][7:])
    assert (await tools.verify(name, storage=storage)).ok
    return sorted(found)


BODIES = sorted(f"a/{number}" for number in range(20))

CHANGES: dict[str, Callable[[Storage], Awaitable[Any]]] = {
    "reshard": lambda there: tools.reshard("pages", "new", max_shard_records=4, storage=there, target_storage=there),
    "reshard to gzip": lambda there: tools.reshard(
        "pages", "new", num_shards=3, compression="GZIP", storage=there, target_storage=there
    ),
    "shuffle": lambda there: tools.reshard("pages", "new", shuffle=True, storage=there, target_storage=there),
    "merge": lambda there: tools.merge(["pages"], "new", storage=there, target_storage=there),
    "dedupe": lambda there: tools.dedupe("pages", "new", by="key", storage=there, target_storage=there),
    "copy": lambda there: tools.copy("pages", "new", storage=there, target_storage=there),
    "filter": lambda there: tools.filter(
        "pages", "new", where=[Where("status", "200")], storage=there, target_storage=there
    ),
}


@pytest.mark.parametrize("change", CHANGES)
async def test_derived_data_set_keeps_known_bodies(change: str) -> None:
    storage = MemoryStorage()
    await write(storage, "pages", "a", seen="digest")
    await CHANGES[change](storage)
    assert await knows(storage, "new") == BODIES


async def test_compaction_keeps_known_contents(storage: Storage) -> None:
    await write(storage, "pages", "a", seen="digest")
    await tools.compact("pages", storage=storage)
    assert len((await asyncrec.read_manifest("pages", storage=storage)).shards) == 1
    assert await knows(storage, "pages") == BODIES


async def test_compaction_refuses_to_drop_needed_bodies(storage: Storage) -> None:
    await write(storage, "pages", "a", seen="digest")
    with pytest.raises(ArgumentError, match=r"a writer of this data set used seen="):
        await tools.compact("pages", drop_duplicates=True, storage=storage)
    assert len((await asyncrec.read_manifest("pages", storage=storage)).shards) == 5


@pytest.mark.parametrize("first", ["a", "b"])
async def test_shards_with_and_without_contents_are_joined(storage: Storage, first: str) -> None:
    for host in (first, *({"a", "b"} - {first})):
        await write(storage, "pages", host, **({"seen": "digest"} if host == "a" else {}))
    await tools.compact("pages", storage=storage)
    (shard,) = (await asyncrec.read_manifest("pages", storage=storage)).shards
    assert shard.keys is not None
    assert shard.keys.bytes == 32 * shard.records
    assert shard.to_json()["keys"]["format"] == 2
    async with asyncrec.open_dataset("pages", storage=storage) as dataset:
        for url in ("a/3", "b/3", "a/29", "b/29"):
            assert (await dataset.get_by_key(f"http://{url}")).find(f"http://{url}".encode()) > 0
    assert await knows(storage, "pages") == BODIES


async def test_merged_data_set_keeps_known_bodies_of_each_source(storage: Storage) -> None:
    await write(storage, "pages", "a", seen="digest")
    await write(storage, "others", "b")
    await tools.merge(["others", "pages"], "new", storage=storage, target_storage=storage)
    assert await knows(storage, "new") == BODIES


async def test_omitted_records_leave_no_known_bodies(storage: Storage) -> None:
    await write(storage, "pages", "a", seen="digest")
    where = [Where("url", "http://a/3")]
    await tools.filter("pages", "new", where=where, storage=storage, target_storage=storage)
    assert await knows(storage, "new") == ["a/3"]


async def test_copy_without_contents_has_no_known_bodies(tmp_path: Path) -> None:
    async with asyncrec.open_sharded_writer(
        tmp_path / "pages", schema=pages.PAGE, key_feature="url", seen="digest"
    ) as writer:
        await writer.write(page("a/1", b"body 1"))
    await tools.convert(tmp_path / "pages", tmp_path / "new.jsonl")
    await tools.convert(tmp_path / "new.jsonl", tmp_path / "new")
    (shard,) = (await asyncrec.read_manifest(tmp_path / "new")).shards
    assert shard.keys is None or shard.keys.bytes == 16 * shard.records


@pytest.mark.parametrize("cut", [1, 16, 32])
async def test_keys_file_of_wrong_size_is_reported(storage: Storage, cut: int) -> None:
    await write(storage, "pages", "a", seen="digest")
    shard = (await asyncrec.read_manifest("pages", storage=storage)).shards[1]
    assert shard.keys is not None
    await storage.put(shard.keys.path, (await storage.get(shard.keys.path))[:-cut])
    report = await tools.verify("pages", storage=storage)
    assert [problem.kind for each in report.shards for problem in each.problems] == ["keys"]
    with pytest.raises(DatasetError, match="keys"):
        async with asyncrec.open_dataset("pages", storage=storage) as dataset:
            await dataset.get_by_key("http://a/3")
    with pytest.raises(DatasetError, match="keys"):
        await tools.reshard("pages", "new", storage=storage, target_storage=storage)
