"""Fixtures shared by the tests of the tools. Tools behave the same on memory and on disk."""

from __future__ import annotations

import random
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

# Test modules are imported by path, but helper modules, including shards/mortal.py, are imported by name.
sys.path.insert(0, str(Path(__file__).parent.parent / "shards"))
sys.path.insert(0, str(Path(__file__).parent))

import asyncrec
from asyncrec.storage._base import Storage


class _NoJitter(random.Random):
    def uniform(self, a: float, b: float) -> float:
        return 0.0


@pytest.fixture
def no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the back-off between retries zero, so that nothing sleeps."""
    monkeypatch.setattr("asyncrec.storage._retry._jitter", _NoJitter())


@pytest.fixture
async def storage(tmp_path: Path, anyio_backend: str) -> AsyncIterator[Storage]:
    """Use a disk on asyncio and memory on trio: each test runs on both, in half the time of all four combinations."""
    where = f"memory://{tmp_path.name}" if anyio_backend == "trio" else str(tmp_path / "store")
    async with asyncrec.open_storage(where) as storage:
        yield storage
