"""Many objects pass through a store that fails one request in four, chosen by a seed."""

from __future__ import annotations

import pytest
from azure_api import FakeAzure
from azure_opening import CHUNK, open_quick
from serving import chaos, nothing
from store_checks import write_much

pytestmark = pytest.mark.anyio


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
async def test_store_holds_exactly_successful_writes_after_chaos(azure: FakeAzure, seed: int) -> None:
    def calm() -> None:
        azure.plan = nothing

    azure.plan = chaos(seed)
    async with open_quick(azure.endpoint) as storage:
        there = await write_much(storage, seed, unit=CHUNK, calm=calm)
    assert all(azure.blobs[key].data == data for key, data in there.items())
