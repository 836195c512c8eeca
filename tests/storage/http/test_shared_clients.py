"""All users with the same key share one client, which the first one creates and the last one closes."""

from __future__ import annotations

import anyio
import pytest

from asyncrec.errors import StorageError
from asyncrec.storage.http import SharedClients

pytestmark = pytest.mark.anyio


class Client:
    def __init__(self, key: str) -> None:
        self.key = key
        self.open = True


async def make(key: str) -> Client:
    await anyio.lowlevel.checkpoint()
    return Client(key)


async def close(client: Client) -> None:
    await anyio.lowlevel.checkpoint()
    client.open = False


async def test_equal_users_share_client_until_last_user_closes_it() -> None:
    clients = SharedClients("test-share", make, close)
    async with clients.use("a") as first:
        async with clients.use("a") as second, clients.use("b") as other:
            assert first is second
            assert other is not first
        assert first.open
        assert not other.open
    assert not first.open
    async with clients.use("a") as anew:
        assert anew is not first


async def test_concurrent_users_wait_for_one_client_creation() -> None:
    clients = SharedClients("test-at-once", make, close)
    seen: set[Client] = set()

    async def use() -> None:
        async with clients.use("a") as client:
            seen.add(client)
            await anyio.lowlevel.checkpoint()

    async with anyio.create_task_group() as group:
        for _ in range(20):
            group.start_soon(use)
    assert len(seen) == 1
    assert not seen.pop().open


async def test_failed_client_creation_is_retried() -> None:
    refuse = True

    async def fail(key: str) -> Client:
        if refuse:
            raise StorageError("no")
        return await make(key)

    clients = SharedClients("test-fails", fail, close)
    with pytest.raises(StorageError):
        async with clients.use("a"):
            pass
    refuse = False
    async with clients.use("a") as client:
        assert client.open
