"""What every test shares: each async test runs on asyncio and on trio."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture(params=["asyncio", "trio"])
def anyio_backend(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="session")
def vectors() -> Path:
    """Files that TensorFlow wrote, and manifest.json, which says what they hold."""
    return Path(__file__).parent / "vectors"
