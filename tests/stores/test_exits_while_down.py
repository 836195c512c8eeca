"""A cancelled writer exits in time, even if its store is down or does not respond."""

from __future__ import annotations

import random
from pathlib import Path

import anyio
import anyio.lowlevel
import pytest
from places import Failing, Place

import asyncrec

pytestmark = pytest.mark.anyio

EXIT_TIMEOUT, CLEAN_UP = 0.5, 2.0
# The delay allowed on a busy machine. A back-off would take more than a minute.
SLACK = 3.0


class _Longest(random.Random):
    """A source of jitter that makes every wait as long as possible."""

    def uniform(self, a: float, b: float) -> float:
        return b


@pytest.mark.usefixtures("patient")
@pytest.mark.parametrize("spooled", [False, True], ids=["without a spool", "with a spool"])
@pytest.mark.parametrize("how", ["down", "silent"])
@pytest.mark.parametrize("size", [9, 300_000], ids=["one request", "parts"])
async def test_cancelled_exit_ends_within_exit_timeout(
    place: Place, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, how: Failing, spooled: bool, size: int
) -> None:
    monkeypatch.setattr("asyncrec.storage._retry._jitter", _Longest())
    path = f"{place.url}/pages"
    spool = tmp_path / "spool" if spooled else None
    options = {"storage_options": place.options, "spool": spool, "exit_timeout": EXIT_TIMEOUT}
    begun = ended = 0.0
    with anyio.CancelScope() as scope:
        async with asyncrec.open_sharded_writer(path, **options) as writer:  # type: ignore[arg-type]
            await writer.write(b"before")
            await writer.commit()
            place.fail(place.requests, how)
            await writer.write(random.Random(1).randbytes(size))
            begun = anyio.current_time()
            scope.cancel()
            await anyio.lowlevel.checkpoint()
    ended = anyio.current_time()
    place.calm()
    assert scope.cancelled_caught
    assert ended - begun < EXIT_TIMEOUT + CLEAN_UP + SLACK
