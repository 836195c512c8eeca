"""Pages for tests of the writer's ``seen=`` option, and a helper that looks them up."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import AbstractAsyncContextManager, suppress
from typing import Any, NamedTuple

import asyncrec
from asyncrec import pages
from asyncrec.storage import Storage

__all__ = ["Stored", "opened", "page", "stored", "write"]


class Stored(NamedTuple):
    """A stored page: its URL, the URL that it refers to if it is a revisit, and the body that a reader gets."""

    url: str
    refers_to: str
    body: bytes | None


def page(url: str, body: bytes, **more: Any) -> dict[str, Any]:
    return pages.page(f"http://{url}", body, **{"status": 200, "date": "2026-11-28T00:00:00Z", **more})


def opened(storage: Storage, **options: Any) -> AbstractAsyncContextManager[asyncrec.ShardedWriter]:
    given = {"schema": pages.PAGE, "key_feature": "url", "on_duplicate": "write", "seen": "digest"}
    return asyncrec.open_sharded_writer("pages", storage=storage, **{**given, **options})


async def write(storage: Storage, written: Iterable[dict[str, Any]], **options: Any) -> None:
    async with opened(storage, **options) as writer:
        for each in written:
            await writer.write(each)


async def stored(storage: Storage, *, keyed: bool = True) -> list[Stored]:
    """Return the pages for all URLs, in the order of the URLs; a missing body is `None`."""
    found = []
    async with asyncrec.open_dataset("pages", storage=storage) as dataset:
        async for each in dataset.examples():
            if keyed:
                versions = [pages.PAGE.decode(record)["url"] for record in await dataset.history(each["url"])]
                assert set(versions) == {each["url"]}
            body = None
            with suppress(KeyError):
                body = (await pages.resolve(dataset, each))["content"]
            found.append(Stored(each["url"][7:], each["refers_to_url"][7:], body))
    return sorted(found)
