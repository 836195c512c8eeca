"""A page's key finds all of its versions, in the runs of a checkpoint and in the keys of newer shards."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import Any
from unittest import mock

import pytest

import asyncrec
from asyncrec import pages, tools
from asyncrec._shards.commit import key_runs
from asyncrec.storage import MemoryStorage

from .keyed_store import Far

pytestmark = pytest.mark.anyio

URLS = [f"http://a/{number}" for number in range(12)]


@pytest.fixture(params=[MemoryStorage, Far])
def storage(request: pytest.FixtureRequest) -> Iterator[MemoryStorage]:
    """Return a store, and make runs of a few dozen keys merge in the way that runs of millions of keys do."""
    with (
        mock.patch.object(key_runs, "_MOST_AT_ONCE", 64),
        mock.patch.object(key_runs, "_LEAST_ENTRIES", 8),
        mock.patch.object(key_runs, "_LEAST_STEP", 1),
    ):
        yield request.param()


async def commit(storage: MemoryStorage, versions: list[dict[str, Any]], writer_id: str) -> None:
    async with asyncrec.open_sharded_writer(
        "pages", storage=storage, max_shard_records=3, schema=pages.PAGE, key_feature="url", on_duplicate="write",
        writer_id=writer_id,
    ) as writer:  # fmt: skip
        for page in versions:
            await writer.write(page)


@pytest.mark.slow(but=["-0]"])
@pytest.mark.parametrize("seed", range(3))
async def test_page_lookup_finds_newest_version_and_revisited_bodies(storage: MemoryStorage, seed: int) -> None:
    """Writer ids, and therefore shard names, are not in chronological order."""
    random = Random(seed)
    versions: dict[str, list[dict[str, Any]]] = {url: [] for url in URLS}
    for turn in range(12):
        made = []
        for url in random.choices(URLS, k=random.choice((1, 4, 9))):
            body, tag = b"%d %d" % (turn, len(made)), {"ETag": f'"{turn} {len(made)}"'}
            made.append(pages.page(url, body, status=200, headers=tag, date=f"2026-11-{turn // 3 + 1:02}T00:00:00Z"))
            versions[url].append(made[-1])
        await commit(storage, made, f"{random.choice('abcz')}{turn}")
        if random.random() < 0.4:
            await tools.compact("pages", storage=storage)
        async with asyncrec.open_dataset("pages", storage=storage) as dataset:
            for url in random.sample(URLS, 6):
                known = await pages.conditions(dataset, url)
                assert known.get("If-None-Match") == (
                    f'"{versions[url][-1]["content"].decode()}"' if versions[url] else None
                )
            revisits = [
                pages.page(url, status=304, before=version) for url, those in versions.items() for version in those
            ]
            whole = await pages.resolve(dataset, revisits)
        assert [page["content"] for page in whole] == [page["content"] for those in versions.values() for page in those]


async def test_damaged_key_run_hides_no_version(storage: MemoryStorage, caplog: pytest.LogCaptureFixture) -> None:
    for turn in range(4):
        await commit(storage, [pages.page(URLS[0], b"%d" % turn, status=200, headers={"ETag": str(turn)})], f"w{turn}")
        if turn == 2:
            await tools.compact("pages", storage=storage)
    (run,) = [info.key async for info in storage.list_objects("_manifest/pages/~keys")]
    content = await storage.get(run)
    for damaged in (content[:-1], content[:40] + b"\xff" + content[41:], None):
        await storage.delete(run)
        if damaged is not None:
            await storage.put(run, damaged)
        async with asyncrec.open_dataset("pages", storage=storage) as dataset:
            assert await pages.conditions(dataset, URLS[0]) == {"If-None-Match": "3"}
            before = pages.page(URLS[0], b"0", status=200)
            assert (await pages.resolve(dataset, pages.page(URLS[0], status=304, before=before)))["content"] == b"0"
    assert "run of keys cannot be read" in caplog.text
