"""Readers wait for a process that is fetching a piece, but not forever if it is stuck."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path
from typing import Any

import anyio
import pytest

import asyncrec
from asyncrec.testing import virtual_backend
from tests.storage.cache_kit import RECORDS, files, reads, stored

pytestmark = pytest.mark.anyio


@pytest.fixture(params=["asyncio", "trio"])
def anyio_backend(request: pytest.FixtureRequest) -> Any:
    return virtual_backend(request.param)


async def test_cache_gives_up_on_stuck_process_after_minute(tmp_path: Path) -> None:
    storage = await stored()
    async with asyncrec.open_dataset("pages", storage=storage, cache=tmp_path) as dataset:
        await dataset.locate(0)
        held = []
        for lock in range(256):
            held.append(os.open(tmp_path / f".lock-{lock:03d}", os.O_RDWR | os.O_CREAT))
            fcntl.flock(held[-1], fcntl.LOCK_EX)
        reads(storage)
        began = anyio.current_time()
        assert await dataset.get(0) == RECORDS[0]
        assert 60 <= anyio.current_time() - began < 70
        assert await dataset.get(1) == RECORDS[1]
        assert anyio.current_time() - began < 70
        assert reads(storage) == 2
        assert files(tmp_path) == []
        for fd in held:
            os.close(fd)
