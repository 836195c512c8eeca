"""The fake store, once for all tests, and both event loops."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))  # tests are imported by path; what they share is imported by name

from fake_gcs import FakeGcs  # found by the line above


@pytest.fixture(params=["asyncio", "trio"])
def anyio_backend(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="session")
def server() -> Iterator[FakeGcs]:
    with FakeGcs().serving() as server:
        yield server


@pytest.fixture
def gcs(server: FakeGcs, monkeypatch: pytest.MonkeyPatch) -> FakeGcs:
    """The store, empty, as ``STORAGE_EMULATOR_HOST``."""
    server.reset()
    monkeypatch.setenv("STORAGE_EMULATOR_HOST", server.url)
    return server
