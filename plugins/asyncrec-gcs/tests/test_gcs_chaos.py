"""Many objects pass through a store that fails one request in four, chosen by a seed."""

from __future__ import annotations

import pytest
from fake_gcs import UNIT, FakeGcs, chaos, nothing
from opening import open_quick
from store_checks import write_much

pytestmark = pytest.mark.anyio


@pytest.mark.slow(but=["0"])
@pytest.mark.parametrize("seed", range(3))
async def test_store_holds_exactly_successful_writes_after_chaos(gcs: FakeGcs, seed: int) -> None:
    def calm() -> None:
        gcs.plan = nothing

    gcs.plan = chaos(seed)
    with gcs.listening():
        async with open_quick() as storage:
            there = await write_much(storage, seed, unit=UNIT, calm=calm)
    assert all(gcs.objects["bucket", key].data == data for key, data in there.items())
    assert gcs.left == []
