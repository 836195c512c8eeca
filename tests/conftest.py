"""What every test shares: each async test runs on asyncio and on trio."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

# A shell lets its background jobs ignore Ctrl-C; so would every process that a test starts and then interrupts.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(params=["asyncio", "trio"])
def anyio_backend(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="session")
def vectors() -> Path:
    """Files that TensorFlow wrote, and manifest.json, which says what they hold."""
    return Path(__file__).parent / "vectors"
