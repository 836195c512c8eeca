"""A remote store that counts reads, helpers that write data sets with keys to it, and the expected look-ups."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any

import asyncrec
from asyncrec._shards.writing.keys import key_digest
from asyncrec.storage import ByteSource, MemoryStorage, ObjectInfo

__all__ = ["PREFIX", "Far", "expected", "looked_up", "write"]

PREFIX = "_manifest/pages/"


class Far(MemoryStorage):
    """A remote store that counts each read."""

    read_ahead = 8 << 20

    def __init__(self) -> None:
        super().__init__(chunk_size=1 << 20)
        self.asked: list[str] = []

    def open_source(self, key: str, **options: Any) -> AbstractAsyncContextManager[ByteSource]:
        self.asked.append(key)
        return super().open_source(key, **options)

    async def list_objects(self, prefix: str = "", *, start_after: str = "") -> AsyncIterator[ObjectInfo]:
        self.asked.append(f"{prefix}*")
        async for info in super().list_objects(prefix, start_after=start_after):
            yield info

    async def runs(self) -> dict[str, ObjectInfo]:
        return {info.key: info async for info in super().list_objects(PREFIX + "~keys-")}


async def write(
    storage: MemoryStorage, keys: Sequence[str | None], *, writer: str, per_shard: int = 10, **more: Any
) -> None:
    async with asyncrec.open_sharded_writer(
        "pages", storage=storage, writer_id=writer, max_shard_records=per_shard, **more
    ) as opened:
        for number, key in enumerate(keys):
            await opened.write(f"{writer} {number}".encode(), key=key)


async def looked_up(storage: MemoryStorage, keys: Iterable[str]) -> dict[str, bytes | None]:
    found: dict[str, bytes | None] = {}
    async with asyncrec.open_dataset("pages", storage=storage) as dataset:
        for key in keys:
            try:
                found[key] = await dataset.get_by_key(key)
            except KeyError:
                found[key] = None
    return found


async def expected(storage: MemoryStorage, keys: Iterable[str]) -> dict[str, bytes | None]:
    """Return the records found by using only the shards' own keys files, searched in the order of commits."""
    manifest = await asyncrec.read_manifest("pages", storage=storage)
    async with asyncrec.open_dataset("pages", storage=storage) as dataset:
        records = [record async for record in dataset]
    found: list[tuple[str, int, bytes]] = []
    number = 0
    for shard in manifest.shards:
        content = bytes(16 * shard.records) if shard.keys is None else await storage.get(shard.keys.path)
        for at in range(shard.records):
            found.append((shard.committed, number, content[16 * at : 16 * at + 16]))
            number += 1
    of: dict[bytes, bytes] = {}
    for _, number, digest in sorted(found):
        of.setdefault(digest, records[number])
    return {key: of.get(key_digest(key)) for key in keys}
