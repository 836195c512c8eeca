"""The client reads only a limited amount of a store's response."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from asyncrec_azure import transport

from asyncrec.errors import StorageError

pytestmark = [pytest.mark.anyio, pytest.mark.parametrize("anyio_backend", ["asyncio"])]

BLOCK = 10


class Endless:
    """A response that never ends."""

    def __init__(self, status: int) -> None:
        self.status_code = status
        self.internal_response = self
        self.asked = 0
        self.closed = False

    async def iter_raw(self) -> AsyncIterator[bytes]:
        while self.asked < 1000:
            self.asked += 1
            yield bytes(BLOCK)

    def close(self) -> None:
        self.closed = True


@pytest.fixture(autouse=True)
def small_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transport, "_MOST_BYTES", 5 * BLOCK)
    monkeypatch.setattr(transport, "_ERROR_BYTES", 2 * BLOCK)


async def read(answer: Any) -> bytes:
    async with asyncio.timeout(60) as patience:
        return await transport._read(answer, patience)


async def test_error_body_is_read_up_to_limit() -> None:
    answer = Endless(503)
    assert await read(answer) == bytes(3 * BLOCK)
    assert (answer.asked, answer.closed) == (3, True)


async def test_response_longer_than_limit_is_rejected() -> None:
    answer = Endless(206)
    with pytest.raises(StorageError, match="longer than the limit of 50 bytes"):
        await read(answer)
    assert (answer.asked, answer.closed) == (6, True)
