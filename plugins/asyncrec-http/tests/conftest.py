"""Fixtures with a web server shared by all tests."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))  # tests are imported by path, helpers by name

from web_server import WebServer  # importable because of the line above


@pytest.fixture(scope="session")
def running() -> Iterator[WebServer]:
    with WebServer().serving() as server:
        yield server


@pytest.fixture
def web(running: WebServer, monkeypatch: pytest.MonkeyPatch) -> WebServer:
    """Return the emptied server, and ignore this machine's proxies."""
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)
    running.reset()
    return running
