"""A writer that discards its shards deletes each shard before its keys, even if it dies before it has finished."""

from __future__ import annotations

import errno
import math
import os
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

import asyncrec
from asyncrec.errors import ObjectNotFoundError, StorageError
from asyncrec.storage._local.storage import LocalStorage

pytestmark = pytest.mark.anyio


class Dying:
    """A replacement for `os` that stops removing files after some removals, as if the process had been killed."""

    def __init__(self, removals: float) -> None:
        self.removed: list[str] = []
        self._removals = removals

    def __getattr__(self, name: str) -> Any:
        return getattr(os, name)

    def unlink(self, path: str) -> None:
        if len(self.removed) >= self._removals:
            raise OSError(errno.EIO, os.strerror(errno.EIO), path)
        os.unlink(path)
        self.removed.append(path)


RECORDS = [bytes([n]) * (1 << 20) for n in range(12)]  # more than fits into memory, so most of it is on disk


async def discard(folder: Path, system: Dying) -> None:
    storage = LocalStorage(folder, system=system)
    with suppress(StorageError, KeyError):
        async with asyncrec.open_sharded_writer(
            "pages", storage=storage, on_error="discard", memory_limit="4MiB"
        ) as writer:
            for n, record in enumerate(RECORDS):
                await writer.write(record, key=f"key {n}")
            raise KeyError("the body's")


async def test_recovered_record_keeps_key_after_interrupted_discard(tmp_path: Path) -> None:
    whole = Dying(math.inf)
    await discard(tmp_path / "whole", whole)
    for removals in range(len(whole.removed)):
        folder = tmp_path / str(removals)
        await discard(folder, Dying(removals))
        with suppress(ObjectNotFoundError):  # no object is left, so there is no data set
            await asyncrec.recover(folder / "pages")
            async with asyncrec.open_dataset(folder / "pages") as dataset:
                for n in range(len(dataset)):
                    assert await dataset.get_by_key(f"key {n}") == RECORDS[n], removals
