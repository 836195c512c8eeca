"""A simulated day asks what the paper says, and loses nothing where the store has no room for its requests."""

from __future__ import annotations

from typing import Any

import pytest

from asyncrec.testing import virtual_backend

from .day import simulate
from .paper import Crawl, the_day

pytestmark = pytest.mark.anyio

# Three hours, with a commit every ten minutes; every writer is restarted once.
CRAWL = Crawl(writers=5, hours=3.0, rate=1.0, shard_seconds=600.0, status_seconds=300.0, part_bytes=5 << 20)


@pytest.fixture
def anyio_backend() -> tuple[str, dict[str, Any]]:
    return virtual_backend("asyncio")


async def test_what_is_simulated_is_what_was_computed() -> None:
    """Writes exactly; reads but for the moments at which somebody opens while others commit."""
    day, found = the_day(CRAWL), await simulate(CRAWL)
    assert (found.records, found.shards) == (found.committed, day.shards)
    assert found.records == day.records
    for kind in {*day.total, *found.requests}:
        computed, simulated = day.total[kind], found.requests[kind]
        if kind in ("GetObject", "HeadObject", "ListObjectsV2", "DeleteObject"):
            assert simulated == pytest.approx(computed, rel=0.1)
        else:
            assert simulated == computed
    assert not found.store.refused


async def test_a_store_that_answers_503_loses_nothing() -> None:
    """All begin in one second, on a store that answers three writes and three reads of it."""
    found = await simulate(CRAWL, writes_a_second=3, reads_a_second=3)
    assert found.store.refused.total() > 10
    assert found.store.busiest == {"writes": 3, "reads": 3}
    assert found.records == found.committed == the_day(CRAWL).records
