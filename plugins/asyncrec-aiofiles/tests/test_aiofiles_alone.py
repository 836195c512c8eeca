"""Why plain paths do not use aiofiles, demonstrated with the installed release.

If one of these tests fails, aiofiles has changed: see docs/design/clients-of-stores.md.
"""

from __future__ import annotations

import asyncio
import os
import threading
from pathlib import Path

import aiofiles
import pytest
import trio

SIZE = 1 << 20  # sixteen times the capacity of a pipe


def test_aiofiles_write_outlives_cancelled_caller(tmp_path: Path) -> None:
    """A thread could still write to a file that is being published or removed, so `settled` waits for the thread."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    begun, cancelled = threading.Event(), threading.Event()
    came: list[bytes] = []

    def read() -> None:
        with open(pipe, "rb", buffering=0) as reader:
            came.append(reader.read(1))
            begun.set()
            cancelled.wait()
            while block := reader.read(SIZE):
                came.append(block)

    async def write() -> None:
        async with aiofiles.open(pipe, "wb", buffering=0) as file:
            task = asyncio.create_task(file.write(b"x" * SIZE))
            await asyncio.to_thread(begun.wait)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert sum(map(len, came)) == 1  # the task has ended, but the write has not
            cancelled.set()

    thread = threading.Thread(target=read)
    thread.start()
    asyncio.run(write())
    thread.join()
    assert sum(map(len, came)) == SIZE


def test_aiofiles_needs_asyncio(tmp_path: Path) -> None:
    async def write() -> None:
        async with aiofiles.open(tmp_path / "a", "wb"):
            pass

    with pytest.raises(RuntimeError, match="no running event loop"):
        trio.run(write)
