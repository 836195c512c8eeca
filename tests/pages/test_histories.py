"""After any history of its pages and its data set, each stored version resolves to what the server had sent."""

from __future__ import annotations

import random
from contextlib import AsyncExitStack, suppress
from typing import Any

import pytest

import asyncrec
from asyncrec import pages, tools
from asyncrec.errors import ArgumentError
from asyncrec.storage import MemoryStorage
from asyncrec.tools import Where

pytestmark = pytest.mark.anyio

URLS = [f"http://a/{number}" for number in range(6)]
DAYS = 12
SEEDS = (1, 2, 3, 4, 5, 6)


class World:
    """A server, a data set of its pages, and the expected content of each version."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.storage = MemoryStorage()
        self.bodies = {url: b"<p>first of %s" % url.encode() for url in URLS}
        self.expected: dict[tuple[str, str], bytes] = {}
        self.deletions = self.refusals = self.revisits = 0

    def answer(self, url: str, headers: dict[str, str]) -> tuple[int, bytes, dict[str, str]]:
        """Respond as a server: some pages change or change back, some have an ETag, some servers ignore conditions."""
        body = self.bodies[url]
        tag = f'"{pages.payload_digest(body)}"'
        if headers.get("If-None-Match") == tag and self.chance.random() < 0.8:
            return 304, b"", {"ETag": tag} if self.chance.random() < 0.5 else {}
        return 200, body, {"ETag": tag} if self.chance.random() < 0.7 else {}

    async def crawl(self, day: int) -> None:
        for url in URLS:
            if self.chance.random() < 0.3:
                self.bodies[url] = b"<p>%d of %s" % (self.chance.randrange(4), url.encode())
        date = f"2026-11-{day:02}T00:00:00Z"
        async with AsyncExitStack() as stack:
            stored = None
            with suppress(asyncrec.ObjectNotFoundError):
                stored = await stack.enter_async_context(asyncrec.open_dataset("pages", storage=self.storage))
            async with asyncrec.open_sharded_writer(
                "pages", storage=self.storage, schema=pages.PAGE, key_feature="url", on_duplicate="write",
                max_shard_records=4,
            ) as writer:  # fmt: skip
                for url in self.chance.sample(URLS, 5):
                    known = await pages.conditions(stored, url)
                    status, body, headers = self.answer(url, known)
                    page = pages.page(url, body, status=status, headers=headers, date=date, before=known.page)
                    self.revisits += pages.is_revisit(page)
                    await writer.write(page)
                    self.expected[url, date] = self.bodies[url]

    async def change(self) -> None:
        what = self.chance.choice(["compact", "delete a page", "delete days", "delete some", "nothing"])
        if what == "compact":
            await tools.compact("pages", storage=self.storage)
        elif what == "delete a page":
            url = self.chance.choice(URLS)
            await tools.delete("pages", keys=[url], storage=self.storage)
            self.expected = {version: body for version, body in self.expected.items() if version[0] != url}
            self.deletions += 1
        elif what != "nothing":
            date = self.chance.choice(sorted({date for _, date in self.expected} or {"2026"}))
            where = [Where("date", date, "<")]
            if what == "delete some":
                where.append(Where("url", self.chance.choice(URLS)))
            try:
                await tools.delete("pages", where=where, storage=self.storage)
            except ArgumentError:
                self.refusals += 1
                return
            self.deletions += 1
            url = where[1].value if what == "delete some" else None
            self.expected = {
                version: body
                for version, body in self.expected.items()
                if version[1] >= date or (url is not None and version[0] != url)
            }

    async def stored(self) -> dict[tuple[str, str], bytes]:
        async with asyncrec.open_dataset("pages", storage=self.storage) as dataset:
            found: list[dict[str, Any]] = [page async for page in dataset.examples()]
            whole = await pages.resolve(dataset, found)
            assert all(page["status"] == 200 and not pages.is_revisit(page) for page in whole)
            assert {page["refers_to_url"] for page in found} <= {"", *URLS}
            assert len(found) == len(self.expected)
            return {(page["url"], page["date"]): page["content"] for page in whole}


@pytest.mark.slow(but=["1"])
@pytest.mark.parametrize("seed", SEEDS)
async def test_every_version_resolves_to_served_content(seed: int) -> None:
    world = World(seed)
    for day in range(1, DAYS + 1):
        await world.crawl(day)
        await world.change()
        assert await world.stored() == world.expected
    assert world.revisits > DAYS
    assert world.deletions, "some are done"
    assert world.refusals, "and others would take bodies alone"
