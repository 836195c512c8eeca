"""Opens a storage of the plugin on a test's folder of the store, through the proxy."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

import anyio
from asyncrec_s3.plugin import open_s3
from asyncrec_s3.storage import S3Storage
from s3_proxy import Proxy
from s3_store import Store

Open = Callable[..., AbstractAsyncContextManager[S3Storage]]


def opener(store: Store, proxy: Proxy, prefix: str, **defaults: Any) -> Open:
    """Return a function that opens a storage; its options override the defaults."""

    @asynccontextmanager
    async def open_(**options: Any) -> AsyncIterator[S3Storage]:
        options = {"endpoint_url": proxy.endpoint} | defaults | options
        async with open_s3(f"s3://{store.bucket}/{prefix}", **options) as storage:
            assert isinstance(storage, S3Storage)
            yield storage

    return open_


async def until(condition: Callable[[], Any]) -> None:
    """Wait for a condition: the proxy runs in another thread, and notices a closed connection a moment later."""
    with anyio.fail_after(5):
        while not condition():  # noqa: ASYNC110  # an event cannot be set from aiohttp's book-keeping
            await anyio.sleep(0.005)
