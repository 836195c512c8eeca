"""A window is read as several concurrent ranges, which are joined; if one fails, the others are not awaited."""

from __future__ import annotations

import anyio
import pytest
from asyncrec_azure.source import AzureSource
from azure_api import FakeAzure
from azure_opening import CHUNK, open_quick
from serving import Fault, nth

from asyncrec.errors import ObjectChangedError, TransientStorageError
from asyncrec.testing._checks import content, receive_all

pytestmark = pytest.mark.anyio

LONG = content(3 * CHUNK + 5)


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("asyncrec_azure.source._PIECE", CHUNK)


async def test_ranges_are_reassembled_in_order(azure: FakeAzure) -> None:
    azure.store("key", LONG)
    async with (
        open_quick(azure.endpoint) as storage,
        storage.open_source("key", info=await storage.head("key")) as source,
    ):
        assert await receive_all(source, len(LONG)) == LONG
    assert azure.log.count("read") == 4


async def test_failed_range_ends_wait_for_stalled_range(azure: FakeAzure) -> None:
    azure.store("key", LONG)
    async with (
        open_quick(azure.endpoint) as storage,
        storage.open_source("key", info=await storage.head("key")) as source,
    ):
        first, second = nth(1, Fault("stall"), "read"), nth(2, Fault("status", 404), "read")
        azure.plan = lambda kind, n: first(kind, n) or second(kind, n)
        with anyio.fail_after(30), pytest.raises(ObjectChangedError):
            await source.receive(len(LONG))


async def test_short_range_fails_despite_overlong_neighbour(azure: FakeAzure, monkeypatch: pytest.MonkeyPatch) -> None:
    """Together, the two have the expected length."""
    download, asked = AzureSource._download, 0

    async def unequal(source: AzureSource, start: int, end: int) -> bytes:
        nonlocal asked
        asked += 1
        turn = asked
        block = await download(source, start, end)
        return block[:-1] if turn == 1 else block + b"x" if turn == 2 else block

    monkeypatch.setattr(AzureSource, "_download", unequal)
    azure.store("key", LONG)
    async with (
        open_quick(azure.endpoint) as storage,
        storage.open_source("key", info=await storage.head("key")) as source,
    ):
        with pytest.raises(TransientStorageError, match=r"the response had 65,53\d bytes"):
            await source.receive(len(LONG))
        assert await receive_all(source, len(LONG)) == LONG


@pytest.mark.parametrize("size", [1, CHUNK])
async def test_small_blob_is_read_in_one_request(azure: FakeAzure, size: int) -> None:
    azure.store("key", LONG[:size])
    async with open_quick(azure.endpoint) as storage:
        async with storage.open_source("key") as source:
            assert await receive_all(source) == LONG[:size]
        assert azure.log == ["read"]
        assert source.info == await storage.head("key")


async def test_empty_blob_is_read_in_two_requests(azure: FakeAzure) -> None:
    azure.store("key", b"")
    async with open_quick(azure.endpoint) as storage:
        assert await storage.get("key") == b""
    assert len(azure.log) == 2
