"""A reader that keeps up reads an entire object of S3 or GCS from a single response."""

from __future__ import annotations

import random
from contextlib import AsyncExitStack

import pytest
from asyncrec_gcs.source import GcsSource
from asyncrec_s3.source import S3Source
from places import Place
from s3_proxy import Proxy

from asyncrec.errors import ObjectChangedError
from asyncrec.storage import ObjectInfo
from asyncrec.storage._resuming_source import ResumingSource
from asyncrec.storage.http import StreamSlots
from asyncrec.testing import check_source
from asyncrec.testing._checks import receive_all

pytestmark = pytest.mark.anyio

DATA = random.Random(1).randbytes(3 << 20)


def narrow(monkeypatch: pytest.MonkeyPatch, window: int) -> None:
    """Start streaming after ``window`` bytes."""
    for source in (S3Source, GcsSource):
        monkeypatch.setattr(source, "window", window)


async def test_object_range_takes_one_request(place: Place) -> None:
    async with place.open() as storage:
        await storage.put("key", DATA)
        place.calm()
        for start, end in ((10, len(DATA) - 10), (0, None), (5, 10)):
            async with storage.open_source("key", start=start, end=end) as source:
                assert await receive_all(source, 1 << 20) == DATA[start:end]
        assert place.requests == 3


async def test_known_version_takes_one_request(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    narrow(monkeypatch, 64 << 10)
    async with place.open() as storage:
        known = await storage.put("key", DATA)
        place.calm()
        async with storage.open_source("key", info=known) as source:
            assert place.requests == 0
            assert await receive_all(source, 1 << 20) == DATA
        assert place.requests == 1


async def test_empty_object_takes_at_most_two_requests(place: Place) -> None:
    async with place.open() as storage:
        await storage.put("key", b"")
        place.calm()
        assert await storage.get("key") == b""
        assert place.requests <= 2


@pytest.mark.parametrize("place", ["s3"], indirect=True)
async def test_waiting_streams_hold_at_most_quarter_of_connections(
    place: Place, s3_proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Additional readers use range requests. Otherwise, the first readers would occupy all connections."""
    window = 64 << 10
    narrow(monkeypatch, window)
    async with place.open(max_connections=8) as storage, AsyncExitStack() as stack:
        await storage.put("key", DATA)
        place.calm()
        for _ in range(3):
            source = await stack.enter_async_context(storage.open_source("key"))
            await source.receive(window)
            while source.buffered:
                await source.receive(window)
            await source.receive(window)
        asked = [request.headers.get("Range") for request in s3_proxy.requests]
    assert asked == [None, None, "bytes=0-2047", f"bytes=2048-{2048 + window - 1}"]


@pytest.mark.usefixtures("patient")
async def test_stream_passes_source_kit(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """The kit also cancels at every await, after which the same bytes must be returned again."""
    narrow(monkeypatch, 50)
    data = DATA[:2_000]
    async with place.open() as storage:
        await storage.put("key", data)

        def opened(*, start: int = 0, end: int | None = None, info: ObjectInfo | None = None):  # type: ignore[no-untyped-def]
            return storage.open_source("key", start=start, end=end, info=info)

        await check_source(opened, data)


async def test_streams_through_chaos_are_complete(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    narrow(monkeypatch, 64 << 10)
    async with place.open() as storage:
        await storage.put("key", DATA)
        for seed in range(8):
            place.chaos(seed)
            async with ResumingSource(storage, "key", read_ahead=256 << 10) as source:
                assert await receive_all(source, 1 << 20) == DATA
        place.calm()


async def test_object_replaced_before_second_request_is_detected(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """The bytes already received are not in the new version."""
    monkeypatch.setattr(StreamSlots, "__init__", lambda slots, count: setattr(slots, "left", 0))
    async with place.open() as storage:
        await storage.put("key", DATA)
        async with storage.open_source("key") as source:
            await source.receive(1 << 10)
            await storage.put("key", DATA[::-1])
            with pytest.raises(ObjectChangedError, match="key"):
                await receive_all(source, 1 << 20)


async def test_object_replaced_before_stream_is_detected(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    narrow(monkeypatch, 64 << 10)
    async with place.open() as storage:
        known = await storage.put("key", DATA)
        async with storage.open_source("key", info=known) as source:
            await source.receive(1 << 10)
            await storage.put("key", DATA[::-1])
            with pytest.raises(ObjectChangedError, match="key"):
                await receive_all(source, 1 << 20)
