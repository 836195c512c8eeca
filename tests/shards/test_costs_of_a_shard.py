"""The cost of each additional local shard for a writer, measured in hops to worker threads."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from anyio import to_thread

import asyncrec

pytestmark = pytest.mark.anyio


async def test_additional_shard_with_index_takes_four_thread_hops(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A shard's file and index each take one hop to create and one to publish and close; names share one look-up."""
    run_sync = to_thread.run_sync
    hops = 0

    async def counted(*args: Any, **options: Any) -> Any:
        nonlocal hops
        hops += 1
        return await run_sync(*args, **options)

    monkeypatch.setattr(to_thread, "run_sync", counted)

    async def hops_for(shards: int) -> int:
        before = hops
        async with asyncrec.open_sharded_writer(tmp_path / f"pages{shards}", num_shards=shards):
            pass
        return hops - before

    await hops_for(1)  # creates the folders
    assert await hops_for(12) - await hops_for(2) == 4 * 10
