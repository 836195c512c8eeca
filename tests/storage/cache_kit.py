"""A data set in memory whose requests are counted, and helpers that inspect a cache folder."""

from __future__ import annotations

import fcntl
from pathlib import Path

import asyncrec
from asyncrec.storage._memory import MemoryStorage
from asyncrec.testing._faults import FlakyStorage

RECORDS = [b"%04d" % number * 5 for number in range(400)]


async def stored() -> FlakyStorage:
    storage = MemoryStorage()
    async with asyncrec.open_sharded_writer("pages", max_shard_records=100, storage=storage, writer_id="w") as writer:
        await writer.write_many(RECORDS)
    return FlakyStorage(storage)


def reads(storage: FlakyStorage) -> int:
    """Return how often a shard was opened in the store since the last call of this function."""
    count = sum(kind == "open_source" and key.endswith(".tfrecord") for kind, key in storage.operations)
    storage.operations.clear()
    return count


def taken(folder: Path) -> int:
    """Return the total size of all cache files except locks, at a moment when nothing is being cached or evicted."""
    with open(folder / ".lock-evict", "a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        return sum(path.stat().st_size for path in folder.iterdir() if not path.name.startswith(".lock-"))


def files(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.tfrecord"))


def damage_all(folder: Path, at: int = 250) -> None:
    for path in files(folder):
        data = bytearray(path.read_bytes())
        data[at] ^= 1
        path.write_bytes(data)
