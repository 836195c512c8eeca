"""Records for tests of writers that flush to a store, and helpers that write and read them."""

from __future__ import annotations

from typing import Any

import asyncrec
from asyncrec import tools
from asyncrec.storage import Storage

__all__ = ["RECORDS", "flush_entries", "recovered", "stored", "write"]

RECORDS = [b"record %06d" % number for number in range(100)]


async def flush_entries(storage: Storage) -> list[str]:
    return [info.key async for info in storage.list_objects("_flush/")]


async def stored(storage: Storage) -> list[bytes]:
    """Return all records, after checking that looking up each key finds its record."""
    assert (await tools.verify("pages", storage=storage)).ok
    async with asyncrec.open_dataset("pages", storage=storage) as dataset:
        found = [record async for record in dataset]
        if any(entry.keys for entry in dataset.manifest.shards):
            for record in found:
                assert await dataset.get_by_key(record) == record
    return sorted(found)


async def write(writer: asyncrec.ShardedWriter, records: list[bytes]) -> None:
    for record in records:
        await writer.write(record, key=record)


async def recovered(storage: Storage, **options: Any) -> list[bytes]:
    await asyncrec.recover("pages", storage=storage, **options)
    assert (await asyncrec.recover("pages", storage=storage)) == asyncrec.Recovery()
    return await stored(storage)
