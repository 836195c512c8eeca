"""Data and helpers for the tests of the tools; conftest.py makes this module importable by name."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio.to_thread
import numpy as np

import asyncrec
from asyncrec.storage._base import Storage

__all__ = ["SCHEMA", "change", "data_names", "example", "killed", "names", "write_pages"]

SCHEMA = asyncrec.Schema(
    {
        "label": asyncrec.FixedLen((), "int64"),
        "text": asyncrec.FixedLen((), "bytes"),
        "emb": asyncrec.FixedLen((4,), "float32"),
    }
)


class WatchedDisk:
    """Like `os`, but it calls ``reading`` with the position before each read of a file."""

    def __init__(self, reading: Callable[[int], None]) -> None:
        self._reading = reading

    def __getattr__(self, name: str) -> Any:
        return getattr(os, name)

    def pread(self, fd: int, size: int, position: int) -> bytes:
        self._reading(position)
        return os.pread(fd, size, position)

    def preadv(self, fd: int, buffers: list[memoryview], position: int, flags: int = 0) -> int:
        self._reading(position)
        return os.preadv(fd, buffers, position, flags)


def example(number: int) -> bytes:
    return asyncrec.encode_example(
        {"label": number % 3, "text": f"text {number}", "emb": np.full(4, number, np.float32)}
    )


async def write_pages(storage: Storage, path: str = "pages", *, records: int = 30, **options: Any) -> None:
    """Write a data set with keys, in shards of ten records, and close it."""
    async with asyncrec.open_sharded_writer(
        path, storage=storage, **({"max_shard_records": 10, "schema": SCHEMA, "metadata": {"made": "here"}} | options)
    ) as writer:
        for number in range(records):
            await writer.write(example(number), key=f"key {number}")


async def names(storage: Storage, prefix: str = "") -> list[str]:
    return [info.key async for info in storage.list_objects(prefix)]


async def data_names(storage: Storage, prefix: str = "") -> list[str]:
    """Return the names of all objects except the manifest's."""
    return [key for key in await names(storage, prefix) if "_manifest" not in key.split("/")]


async def change(storage: Storage, key: str, at: int, value: int | None = None) -> None:
    """Flip one bit of an object, or set a byte."""
    content = bytearray(await storage.get(key))
    content[at] = content[at] ^ 1 if value is None else value
    await storage.put(key, content)


_KILLED = """
import os, sys, threading, anyio
from asyncrec import tools

published = []

def dies(event, args):
    if len(published) == {shards} > 0 and published[-1] == threading.get_ident():
        os._exit(9)
    if event in ("os.link", "os.rename") and os.fspath(args[1]).endswith(".tfrecord"):
        published.append(threading.get_ident())

sys.addaudithook(dies)

async def main():
    await {call}

anyio.run(main)
"""


async def killed(folder: Path, call: str, *, shards: int) -> None:
    """Run a tool in another process, which is killed once this many shards are published but not yet listed."""
    command = [sys.executable, "-c", _KILLED.format(call=call, shards=shards)]
    done = await anyio.to_thread.run_sync(lambda: subprocess.run(command, cwd=folder, check=False))
    assert done.returncode == 9
