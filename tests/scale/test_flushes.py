"""The requests, traffic and memory of a writer that flushes to its store match `docs/scale.md`."""

from __future__ import annotations

from pathlib import Path

import anyio
import pytest

import asyncrec
from asyncrec.storage import MemoryStorage

from . import flushes
from .paper import Prices

pytestmark = [pytest.mark.anyio, pytest.mark.virtual_clock]

SHOWN = (Path(__file__).parents[2] / "docs" / "scale.md").read_text("utf-8")
MIB = 1 << 20


@pytest.mark.slow
@pytest.mark.parametrize("case", flushes.CASES, ids=str)
def test_documented_request_counts_match_measured_writer(case: tuple[int, float]) -> None:
    """One flush more or less is accepted."""
    row = flushes.flushing(*case, Prices())
    [shown] = [line for line in SHOWN.splitlines() if line.startswith(f"| {' | '.join(row[:2])} |")]
    for asked, said in zip(row[2:], shown.strip("| ").split(" | ")[2:], strict=True):
        assert _number(asked) == pytest.approx(_number(said), rel=0.04, abs=0.01)


def _number(text: str) -> float:
    return float(text.replace(",", ""))


async def test_slow_writer_sends_records_at_most_three_times() -> None:
    assert (await flushes.crawl(100_000, seconds=3600)).times <= 3.1


@pytest.mark.slow(but=["GZIP"])
@pytest.mark.parametrize("compression", ["", "GZIP"])
async def test_chunk_filling_writer_sends_records_at_most_twice(compression: asyncrec.Compression) -> None:
    """The chunk is a part for S3 of 8 MiB, filled within the 30 seconds of `flush_seconds`."""
    assert (await flushes.crawl(MIB // 2, seconds=600, compression=compression)).times <= 2.1


@pytest.mark.parametrize("open_shards", [1, 8])
async def test_flushing_writer_stays_within_its_memory_limit(open_shards: int) -> None:
    """This includes what is kept for flushes: the writer is faster than its flushes, and its store takes a second."""

    class Slow(MemoryStorage):
        async def put(self, *args, **options):  # type: ignore[no-untyped-def]  # as inherited
            await anyio.sleep(1)
            return await super().put(*args, **options)

    limit = 16 * MIB
    most = 0
    async with asyncrec.open_sharded_writer(
        "pages", storage=Slow(chunk_size=MIB // 2), memory_limit=limit, open_shards=open_shards
    ) as writer:
        for number in range(1000):
            await writer.write(bytes(100_000))
            if number % 10 == 0:
                await anyio.sleep(0.1)
            stats = writer.stats()
            most = max(most, stats.buffered_bytes + stats.reserved_bytes)
    assert limit // 2 < most <= limit
