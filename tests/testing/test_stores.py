"""`LaxStorage` breaks the promises that it was asked to break, and keeps all others."""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager
from typing import Literal

import anyio
import pytest

from asyncrec.errors import ObjectExistsError, ObjectNotFoundError, TransientStorageError
from asyncrec.storage._base import Storage
from asyncrec.storage._memory import MemoryStorage
from asyncrec.testing import LaxStorage, StorageConformance
from asyncrec.testing._checks import content, send_all

pytestmark = [pytest.mark.anyio, pytest.mark.virtual_clock]

CHUNK = 100
SHORT, LONG = content(CHUNK - 1), content(2 * CHUNK + 1)


class _Lax(StorageConformance):
    lax: LaxStorage

    async def raw_put(self, storage: Storage, key: str, data: bytes) -> None:
        await self.lax.memory.put(key, data)

    async def raw_get(self, storage: Storage, key: str) -> bytes | None:
        try:
            return await self.lax.memory.get(key)
        except ObjectNotFoundError:
            return None

    async def raw_list(self, storage: Storage) -> Collection[str]:
        return [info.key async for info in self.lax.memory.list_objects()]

    async def raw_unfinished(self, storage: Storage) -> Collection[str]:
        return []


class TestAllHonoured(_Lax):
    """When asked to break nothing, it is a correct storage; late responses and short reads are allowed."""

    @asynccontextmanager
    async def open_storage(self) -> AsyncIterator[Storage]:
        self.lax = LaxStorage(MemoryStorage(chunk_size=1_000), honours="all", late=0.5, short=True)
        yield self.lax


class TestLikeCeph(_Lax):
    """The store fulfils the contract, which promises no more for long objects."""

    exclusive_parts = False

    @asynccontextmanager
    async def open_storage(self) -> AsyncIterator[Storage]:
        self.lax = LaxStorage(MemoryStorage(chunk_size=1_000))
        yield self.lax


async def race(store: Storage, data: bytes) -> int:
    """Return how many of two exclusive writers get no error, if both send everything before either publishes."""
    async with store.open_sink("k", exclusive=True) as first:
        await send_all(first, data)
        won = 1
        try:
            async with store.open_sink("k", exclusive=True) as second:
                await send_all(second, data[::-1])
        except ObjectExistsError:
            won = 0
    return won + 1


@pytest.mark.parametrize(
    ("honours", "data", "winners"),
    [("all", LONG, 1), ("puts", SHORT, 1), ("puts", content(CHUNK), 2), ("puts", LONG, 2), ("nothing", SHORT, 2)],
)
async def test_unhonoured_exclusive_write_has_two_winners(
    honours: Literal["all", "puts", "nothing"], data: bytes, winners: int
) -> None:
    store = LaxStorage(MemoryStorage(chunk_size=CHUNK), honours=honours)
    try:
        told = await race(store, data)
    except ObjectExistsError:
        told = 1  # the second one won
    assert told == winners
    assert await store.get("k") in (data, data[::-1])


@pytest.mark.parametrize("data", [b"", SHORT, LONG])
async def test_existing_object_is_protected_for_any_new_length(data: bytes) -> None:
    store = LaxStorage(MemoryStorage(chunk_size=CHUNK))
    await store.put("k", b"older")
    with pytest.raises(ObjectExistsError):
        await store.put("k", data, exclusive=True)
    assert await store.get("k") == b"older"


async def test_lost_response_raises_although_object_exists() -> None:
    store = LaxStorage(lost=lambda key: key.startswith("claims/"))
    await store.put("other", b"x")
    with pytest.raises(TransientStorageError, match="claims/1"):
        await store.put("claims/1", b"x", exclusive=True)
    assert await store.get("claims/1") == b"x"


async def test_late_response_reports_effect_despite_cancellation() -> None:
    store = LaxStorage(late=60.0)
    with anyio.move_on_after(1.0):
        async with store.open_sink("k") as sink:
            await sink.send([b"x"])
    assert anyio.current_time() == pytest.approx(1.0)
    assert sink.published is not None
    assert await store.get("k") == b"x"


async def test_short_reads_return_half_of_requested_bytes() -> None:
    store = LaxStorage(short=True)
    await store.put("k", b"0123456789")
    async with store.open_source("k", start=1) as source:
        assert [await source.receive(n) for n in (4, 1, 100, 5)] == [b"12", b"3", b"456789", b""]
        assert source.info.size == 10
    assert await store.get("k") == b"0123456789"


async def test_listing_is_stale_but_head_is_current() -> None:
    store = LaxStorage(stale=5.0)

    async def listed() -> dict[str, int]:
        return {info.key: info.size async for info in store.list_objects()}

    await store.put("a", b"1")
    assert await listed() == {}
    assert (await store.head("a")).size == 1
    await anyio.sleep(5.0)
    assert await listed() == {"a": 1}
    await store.put("a", b"22")
    await store.put("b", b"1")
    await store.put("b", b"333")
    assert await listed() == {"a": 1}
    await store.delete("a")
    await anyio.sleep(4.9)
    assert await listed() == {"a": 1}
    await anyio.sleep(0.1)
    assert await listed() == {"b": 3}
