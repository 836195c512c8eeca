"""Once a storage is closed, its sinks send nothing more."""

from __future__ import annotations

from typing import Any

import anyio
import pytest
from s3_opening import Open

pytestmark = pytest.mark.anyio


async def test_sink_of_closed_storage_raises_without_request(open_storage: Open, proxy: Any) -> None:
    opening = open_storage()
    storage = await opening.__aenter__()
    writing = storage.open_sink("x")
    sink = await writing.__aenter__()
    await opening.__aexit__(None, None, None)
    asked = len(proxy.requests)
    with pytest.raises(anyio.ClosedResourceError, match="is not open"):
        await sink.flush([])
    with pytest.raises(anyio.ClosedResourceError, match="is not open"):
        await sink.send([b"some bytes"])
    await writing.__aexit__(KeyError, KeyError(), None)
    assert len(proxy.requests) == asked
