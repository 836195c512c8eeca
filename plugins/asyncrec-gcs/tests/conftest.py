"""Fixtures with the fake store, shared by all tests, and with credentials for it."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))  # tests are imported by path, helpers by name

from fake_gcs import FakeGcs  # importable because of the line above
from gcloud.aio.auth.token import BaseToken
from tenacity import wait_none


@pytest.fixture(scope="session")
def server() -> Iterator[FakeGcs]:
    with FakeGcs().serving() as server:
        yield server


@pytest.fixture
def gcs(server: FakeGcs, monkeypatch: pytest.MonkeyPatch) -> FakeGcs:
    """Return the emptied store, which ``STORAGE_EMULATOR_HOST`` refers to."""
    server.reset()
    monkeypatch.setenv("STORAGE_EMULATOR_HOST", server.url)
    return server


@pytest.fixture
def no_credentials_of_this_machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, gcs: FakeGcs) -> None:
    """Hide this machine's credentials: its files and its metadata server."""
    monkeypatch.delenv("GOOGLE_APPLICATION_CREDENTIALS", raising=False)
    monkeypatch.setenv("CLOUDSDK_CONFIG", str(tmp_path))
    monkeypatch.setattr("gcloud.aio.auth.token.GCE_ENDPOINT_TOKEN", f"{gcs.url}/token")
    monkeypatch.setattr(BaseToken.acquire_access_token.retry, "wait", wait_none())  # type: ignore[attr-defined]  # tenacity's


@pytest.fixture
def service_file(tmp_path: Path, gcs: FakeGcs) -> str:
    """Write a user's credentials, for which the fake server issues tokens; return the file's path."""
    path = tmp_path / "credentials.json"
    secrets = {"client_id": "c4n4ry-id", "client_secret": "c4n4ry-secret", "refresh_token": "c4n4ry-refresh"}
    path.write_text(json.dumps({"type": "authorized_user", "token_uri": f"{gcs.url}/token"} | secrets))
    return str(path)
