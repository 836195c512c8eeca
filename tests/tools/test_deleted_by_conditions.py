"""Conditions that do not fit the records delete nothing, even if only reading the records shows the mismatch."""

from __future__ import annotations

from typing import Any

import pytest
from tool_data import SCHEMA, example, write_pages

import asyncrec
from asyncrec import pages, tools
from asyncrec.errors import ArgumentValueError
from asyncrec.storage._base import Storage
from asyncrec.tools import Where

pytestmark = pytest.mark.anyio

# Neither case restricts which features records may have.
of_unknown_features = pytest.mark.parametrize(
    "schema", [None, asyncrec.Schema(SCHEMA.features, allow_extra=True)], ids=["no schema", "more features"]
)


async def refused(storage: Storage, *where: str, **options: Any) -> str:
    """Check that deleting by these conditions fails and changes no object; return the error message."""
    before = {info.key: await storage.get(info.key) async for info in storage.list_objects()}
    with pytest.raises(ArgumentValueError) as caught:
        await tools.delete("pages", where=[Where.parse(each) for each in where], storage=storage, **options)
    assert {info.key: await storage.get(info.key) async for info in storage.list_objects()} == before
    return str(caught.value)


@of_unknown_features
@pytest.mark.parametrize("where", [("labl=1",), ("labl!=1",), ("label=1", "labl!=1")], ids=str)
@pytest.mark.parametrize("dry_run", [True, False])
async def test_unknown_feature_deletes_nothing(
    storage: Storage, where: tuple[str, ...], schema: asyncrec.Schema | None, dry_run: bool
) -> None:
    await write_pages(storage, schema=schema)
    assert "no feature 'labl'; the features are emb, label, text" in await refused(storage, *where, dry_run=dry_run)


@of_unknown_features
async def test_feature_of_last_record_is_known(storage: Storage, schema: asyncrec.Schema | None) -> None:
    await write_pages(storage, schema=schema)
    more = asyncrec.encode_example({**asyncrec.decode_example(example(0)), "last": 1})
    async with asyncrec.open_sharded_writer("pages", storage=storage, schema=schema) as writer:
        await writer.write(more)
    assert (await tools.delete("pages", where=[Where("last", "1", "!=")], storage=storage)).records == 30
    assert await asyncrec.read_records(await only_shard(storage), storage=storage) == [more]


async def only_shard(storage: Storage) -> str:
    (shard,) = (await asyncrec.read_manifest("pages", storage=storage)).shards
    return shard.path


async def test_feature_of_other_kind_in_last_shard_deletes_nothing(storage: Storage) -> None:
    async with asyncrec.open_sharded_writer("pages", storage=storage, max_shard_records=2) as writer:
        await writer.write_many([asyncrec.encode_example({"lang": lang}) for lang in ("en", "en", "en", "en", 7)])
    assert "'en' cannot be parsed" in await refused(storage, "lang=en")


async def test_unknown_feature_deletes_no_shared_bodies(storage: Storage) -> None:
    schema = asyncrec.Schema(pages.PAGE.features, allow_extra=True)
    async with asyncrec.open_sharded_writer(
        "pages", storage=storage, schema=schema, key_feature="url", seen="digest"
    ) as writer:
        for host in "ab":
            await writer.write(pages.page(f"http://{host}/", b"body"))
    assert "no feature 'hots'" in await refused(storage, "hots!=a", content=True)
    report = await tools.delete("pages", where=[Where("url", "http://a/")], content=True, storage=storage)
    assert report.records == 2
