"""What the tests of the tools share: a store, in memory or on disk; what the tools do is the same."""

from __future__ import annotations

import random
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

# Tests are imported by path; what they share, and `mortal`, is imported by name.
sys.path.insert(0, str(Path(__file__).parent.parent / "shards"))
sys.path.insert(0, str(Path(__file__).parent))

import asyncrec
from asyncrec.storage._base import Storage


class _NoJitter(random.Random):
    def uniform(self, a: float, b: float) -> float:
        return 0.0


@pytest.fixture
def no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    """The back-off counts, and does not sleep."""
    monkeypatch.setattr("asyncrec.storage._retry._jitter", _NoJitter())


@pytest.fixture
async def storage(tmp_path: Path, anyio_backend: str) -> AsyncIterator[Storage]:
    """On asyncio a disk, on trio memory: each test sees both, in half the time of all four."""
    where = f"memory://{tmp_path.name}" if anyio_backend == "trio" else str(tmp_path / "store")
    async with asyncrec.open_storage(where) as storage:
        yield storage
