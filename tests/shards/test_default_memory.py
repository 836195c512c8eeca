"""A sharded writer's default memory limit is small for local shards; for a store, it fits the open shards' parts."""

from __future__ import annotations

from pathlib import Path

import pytest

import asyncrec
from asyncrec.storage import MemoryStorage

pytestmark = pytest.mark.anyio

MIB = 1 << 20


@pytest.mark.parametrize("shards", [1, 16, 64])
async def test_local_shards_default_to_64_mib_memory_limit(tmp_path: Path, shards: int) -> None:
    async with asyncrec.open_sharded_writer(tmp_path / "pages", num_shards=shards) as writer:
        assert writer.stats().memory_limit == 64 * MIB


async def test_spool_defaults_to_64_mib_memory_limit(tmp_path: Path) -> None:
    storage = MemoryStorage(chunk_size=8 * MIB)
    async with asyncrec.open_sharded_writer("pages", storage=storage, spool=tmp_path, open_shards=16) as writer:
        await writer.write_many([bytes(100)] * 1000)
        assert writer.stats().memory_limit == 64 * MIB


@pytest.mark.parametrize(("shards", "limit"), [(1, 64), (2, 64), (4, 128), (8, 256), (24, 256)])
async def test_memory_limit_grows_with_parts_of_open_shards(shards: int, limit: int) -> None:
    storage = MemoryStorage(chunk_size=8 * MIB)
    async with asyncrec.open_sharded_writer("pages", storage=storage, num_shards=shards) as writer:
        assert writer.stats().memory_limit == limit * MIB


async def test_shards_exceeding_256_mib_are_rejected() -> None:
    with pytest.raises(ValueError, match="too small"):
        async with asyncrec.open_sharded_writer("pages", storage=MemoryStorage(chunk_size=8 * MIB), num_shards=25):
            pass


async def test_explicit_memory_limit_is_not_changed(tmp_path: Path) -> None:
    async with asyncrec.open_sharded_writer(tmp_path / "pages", num_shards=4, memory_limit=5 * MIB) as writer:
        assert writer.stats().memory_limit == 5 * MIB
