"""Which indexes are believed, and what a shard without one is read for."""

from __future__ import annotations

from typing import Literal

import pytest

import asyncrec
from asyncrec._sampling.random_access.indexes import read_index
from asyncrec.errors import CorruptRecordError
from asyncrec.storage._memory import MemoryStorage

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("compression", ["", "GZIP", "ZLIB"])
async def test_the_index_of_every_shard_is_believed_that_of_an_empty_one_too(
    compression: Literal["", "GZIP", "ZLIB"], caplog: pytest.LogCaptureFixture
) -> None:
    storage = MemoryStorage()
    async with asyncrec.open_sharded_writer("x", storage=storage, num_shards=3, compression=compression) as writer:
        await writer.write_many([b"record", b"another"])
    manifest = await asyncrec.read_manifest("x", storage=storage)
    found = [await read_index(storage, entry) for entry in manifest.shards]
    assert [index is not None and len(index) for index in found] == [entry.records for entry in manifest.shards]
    assert 0 in [entry.records for entry in manifest.shards]
    assert not caplog.records


async def test_damage_that_is_found_where_there_is_no_index_names_the_shard() -> None:
    storage = MemoryStorage()
    async with asyncrec.open_sharded_writer("x", storage=storage, num_shards=1) as writer:
        await writer.write_many([b"record", b"another"])
    (entry,) = (await asyncrec.read_manifest("x", storage=storage)).shards
    assert entry.index is not None
    await storage.delete(entry.index.path)
    content = bytearray(await storage.get(entry.path))
    content[22 + 9] ^= 1  # the checksum of the second length
    await storage.put(entry.path, content)
    async with asyncrec.open_dataset("x", storage=storage) as dataset:
        with pytest.raises(CorruptRecordError, match=entry.path):
            await dataset.get(1)
