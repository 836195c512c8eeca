"""Records are deleted while processes die, and while others write, read, compact, replace and delete.

At every moment each record that is not deleted is in the data set once; behind the delete, none that is deleted.
"""

from __future__ import annotations

import hashlib
import itertools
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

import asyncrec
from asyncrec import tools
from asyncrec.errors import AsyncRecError
from asyncrec.storage import MemoryStorage, Storage
from asyncrec.storage._local.storage import LocalStorage

from .mortal import Process

pytestmark = [pytest.mark.anyio, pytest.mark.virtual_clock]

KEYS = ["1", "2", "11", "12"]
DELETED = {b"canary %d." % number for number in (1, 2, 11, 12)}
KEPT = Counter(b"record %d." % number for number in range(20) if str(number) not in KEYS)


async def write(storage: Storage, first: int = 0, last: int = 20, **options: Any) -> None:
    async with asyncrec.open_sharded_writer("pages", storage=storage, max_shard_records=5, **options) as writer:
        for number in range(first, last):
            word = b"canary" if str(number) in KEYS else b"record"
            await writer.write(b"%b %d." % (word, number), key=f"{number}")


async def delete(storage: Storage) -> tools.DeleteReport:
    return await tools.delete("pages", keys=KEYS, storage=storage)


async def found(storage: Storage) -> Counter[bytes]:
    async with asyncrec.open_dataset("pages", storage=storage) as dataset:
        return Counter([record async for record in dataset])


async def check_gone(storage: Storage) -> None:
    """Nothing of what was deleted is left, and nothing of the job that has done it."""
    keys = [info.key async for info in storage.list_objects()]
    contents = {key: await storage.get(key) for key in keys}
    digests = [hashlib.blake2b(key.encode(), digest_size=16).digest() for key in KEYS]
    left = [key for key, content in contents.items() if any(each in content for each in (*DELETED, *digests))]
    assert left == []
    assert [key for key in keys if key.endswith("-000000.jsonl")] == []
    verified = await tools.verify("pages", storage=storage, min_age=-60)
    assert verified.ok
    assert verified.orphans == []
    assert await found(storage) == KEPT


@pytest.mark.slow(but=["store-compacted"])
@pytest.mark.parametrize("compacted", [False, True], ids=["", "compacted"])
@pytest.mark.parametrize("kind", ["disk", "store"])
async def test_killed_anywhere_it_goes_on(tmp_path: Path, kind: str, compacted: bool) -> None:
    """Killed at each of its requests, or changes of its disk; the next call does what is left."""
    folders = (tmp_path / f"{number}" for number in itertools.count())
    first = LocalStorage(next(folders)) if kind == "disk" else MemoryStorage()
    await write(first)
    if compacted:
        await tools.compact("pages", storage=first)
    before = {info.key: await first.get(info.key) async for info in first.list_objects()}
    for step in itertools.count(0, 7 if kind == "disk" else 1):
        storage = LocalStorage(next(folders)) if kind == "disk" else MemoryStorage()
        for key, content in before.items():
            await storage.put(key, content)
        process = Process(storage, after=step)
        with suppress(AsyncRecError):
            await delete(process.storage)
        ended = process.after is None or process.after > 0
        half = await found(storage)
        assert half & KEPT == KEPT, step
        assert set(half) <= {*KEPT, *DELETED}, step
        assert max(half.values()) == 1, step
        await delete(storage)
        await check_gone(storage)
        if ended:
            assert step > 20
            return
