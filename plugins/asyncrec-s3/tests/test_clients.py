"""Storages share one client, which is closed with the last of them and works only on its own event loop."""

from __future__ import annotations

import pickle
from typing import Any

import anyio
import anyio.to_thread
import pytest
from asyncrec_s3 import client as clients
from asyncrec_s3.sdk import parse_date
from asyncrec_s3.storage import S3Storage
from s3_opening import Open, until

import asyncrec

pytestmark = pytest.mark.anyio

CHUNK = 5 << 20


async def test_found_by_scheme(store: Any, proxy: Any, prefix: str) -> None:
    """The installed plugin handles s3:// wherever asyncrec accepts a path."""
    root = f"s3://{store.bucket}/{prefix}"
    async with asyncrec.open_storage(root, endpoint_url=proxy.endpoint) as storage:
        await storage.put("x", b"here")
    assert store.get(f"{prefix}/x") == b"here"


async def test_clients_are_shared_and_closed(open_storage: Open, proxy: Any) -> None:
    """Storages with equal options share a client, closed with the last of them; another region has its own."""
    async with open_storage() as one:
        async with open_storage(chunk_size=2 * CHUNK) as two, open_storage(region="eu-west-1") as other:
            mine = [storage.shared.bucket._connection.client for storage in (one, two, other)]
            assert mine[0] is mine[1]
            assert mine[0] is not mine[2]
            await two.put("x", b"x")
        await one.put("y", b"y")
    assert not clients._CLIENTS._clients.get()
    await until(lambda: proxy.connections == 0)


async def test_storages_opened_concurrently_create_one_client(
    open_storage: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = 0
    make = clients._make

    async def counting(*args: Any) -> Any:
        nonlocal made
        made += 1
        return await make(*args)

    monkeypatch.setattr(clients, "_make", counting)

    async def work() -> None:
        async with open_storage() as storage:
            await storage.put("x", b"x")

    async with anyio.create_task_group() as group:
        for _ in range(5):
            group.start_soon(work)
    assert made == 1


async def test_storage_rejects_use_from_another_event_loop(open_storage: Open, anyio_backend: str) -> None:
    """If the client is used on a different event loop, it raises an error instead of hanging."""

    async def use(storage: S3Storage) -> None:
        await storage.put("x", b"x")

    async with open_storage() as storage:
        for backend in ("asyncio", "trio"):
            with pytest.raises(RuntimeError, match="another event loop"):
                await anyio.to_thread.run_sync(lambda backend=backend: anyio.run(use, storage, backend=backend))


async def test_storage_rejects_use_after_fork(open_storage: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    """The child process has the parent's connections, and must not use them."""
    async with open_storage() as storage:
        await storage.put("x", b"x")
        with monkeypatch.context() as patch:
            patch.setattr("os.getpid", lambda: -1)
            for operation in (storage.head, storage.get, storage.delete, lambda key: storage.put(key, b"y")):
                with pytest.raises(RuntimeError, match=r"was opened before a fork, .* open another storage"):
                    await operation("x")
            with pytest.raises(RuntimeError, match=r"was opened before a fork, .* open another storage"):
                storage.list_objects()


async def test_closed_storage_raises_closed_resource_error(open_storage: Open) -> None:
    async with open_storage() as storage:
        source = storage.open_source("x")
    with pytest.raises(anyio.ClosedResourceError):
        await storage.put("x", b"x")
    with pytest.raises(anyio.ClosedResourceError):
        await source.__aenter__()
    with pytest.raises(TypeError, match="open another storage there"):
        pickle.dumps(storage)


async def test_listing_parses_dates_with_own_parser(open_storage: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    parsed: list[Any] = []

    def parse(value: Any) -> Any:
        parsed.append(value)
        return parse_date(value)

    monkeypatch.setattr(clients, "parse_date", parse)
    async with open_storage(connect_timeout=9.75) as storage:  # different options, so a separate client
        await storage.put("x", b"data")
        parsed.clear()
        assert [info.key async for info in storage.list_objects()] == ["x"]
    assert parsed
