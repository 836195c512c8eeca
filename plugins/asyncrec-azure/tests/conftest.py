"""Fixtures with the fake store, shared by all tests, or Azurite if `make test-azurite` runs."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))  # tests are imported by path, helpers by name

from azure_api import FakeAzure  # importable because of the line above


@pytest.fixture(scope="session")
def server() -> Iterator[FakeAzure]:
    with FakeAzure().serving() as server:
        yield server


@pytest.fixture
def azure(server: FakeAzure) -> FakeAzure:
    """Return the store after emptying it."""
    server.reset()
    return server


@pytest.fixture(autouse=True)
def nothing_of_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.startswith("AZURE_") and name != "AZURE_STORAGE_CONNECTION_STRING_OF_TESTS":
            monkeypatch.delenv(name)
