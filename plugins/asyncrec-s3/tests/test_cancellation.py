"""Cancelled at any request, a write has all or no effect, a read can be repeated, and no connection stays in use."""

from __future__ import annotations

import random
from typing import Any

import anyio
import anyio.from_thread
import anyio.lowlevel
import pytest
from s3_opening import Open, until
from s3_store import CHUNK

pytestmark = pytest.mark.anyio

SMALL = random.Random(1).randbytes(1_000)
LARGE = random.Random(2).randbytes(CHUNK + 1_000)


@pytest.mark.parametrize("when", ["stall", "stall-after"])
@pytest.mark.parametrize("data", [SMALL, LARGE], ids=["put", "upload"])
async def test_write_cancelled_at_any_request_leaves_consistent_state(
    open_impatient: Open, proxy: Any, whole: Any, monkeypatch: pytest.MonkeyPatch, when: str, data: bytes
) -> None:
    """Either the object exists and `published` is set, or nothing is left: no object, upload or connection in use."""
    monkeypatch.setattr("asyncrec_s3.upload._CLEAN_SECONDS", 1.0)
    token = anyio.lowlevel.current_token()
    number, reached = 0, True
    while reached:
        scope = anyio.CancelScope()
        proxy.reset()

        def plan(request: Any, number: int = number, scope: anyio.CancelScope = scope) -> str | None:
            if request.number != number:
                return None
            anyio.from_thread.run_sync(scope.cancel, token=token)
            return when

        proxy.plan = plan
        key = f"x-{number}"
        async with open_impatient() as storage:
            sink = storage.open_sink(key)
            with scope:
                async with sink as opened:
                    view = memoryview(data)
                    while view:
                        size = opened.chunk_size
                        await opened.send([view[:size]])
                        view = view[size:]
            reached = len(proxy.requests) > number
            published = sink.published is not None  # type: ignore[attr-defined]  # the sink is its own context
            await whole(key, data if published else None)
            assert published or reached
            await until(lambda: proxy.in_flight == 0)
        await until(lambda: proxy.connections == 0)
        number += 1
    assert number > (1 if data is SMALL else 5)


@pytest.mark.parametrize("when", ["stall", "truncate"])
async def test_read_cancelled_at_any_request_can_be_repeated(open_impatient: Open, proxy: Any, when: str) -> None:
    """No connection stays in use, and the same bytes can be received again."""
    token = anyio.lowlevel.current_token()
    async with open_impatient() as storage:
        await storage.put("x", LARGE)
        for number in range(3):
            scope = anyio.CancelScope()
            proxy.reset()

            def plan(request: Any, number: int = number, scope: anyio.CancelScope = scope) -> str | None:
                if request.number != number:
                    return None
                anyio.from_thread.run_sync(scope.cancel, token=token)
                return when

            proxy.plan = plan
            got = b""
            with scope:
                async with storage.open_source("x") as source:
                    got += await source.receive(1_000)
                    got += await source.receive(LARGE.__len__())
            assert LARGE.startswith(got)
            await until(lambda: proxy.in_flight == 0)
        assert await storage.get("x") == LARGE
    await until(lambda: proxy.connections == 0)
