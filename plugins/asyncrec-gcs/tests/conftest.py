"""The fake store, once for all tests, and credentials for it."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))  # tests are imported by path; what they share is imported by name

from fake_gcs import FakeGcs  # found by the line above
from gcloud.aio.auth.token import BaseToken
from tenacity import wait_none


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


@pytest.fixture
def no_credentials_of_this_machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, gcs: FakeGcs) -> None:
    """Nothing of the machine's is found: not its files, not its metadata server."""
    monkeypatch.delenv("GOOGLE_APPLICATION_CREDENTIALS", raising=False)
    monkeypatch.setenv("CLOUDSDK_CONFIG", str(tmp_path))
    monkeypatch.setattr("gcloud.aio.auth.token.GCE_ENDPOINT_TOKEN", f"{gcs.url}/token")
    monkeypatch.setattr(BaseToken.acquire_access_token.retry, "wait", wait_none())  # type: ignore[attr-defined]  # tenacity's


@pytest.fixture
def service_file(tmp_path: Path, gcs: FakeGcs) -> str:
    """The path of a user's credentials, for which the fake gives out tokens."""
    path = tmp_path / "credentials.json"
    secrets = {"client_id": "c4n4ry-id", "client_secret": "c4n4ry-secret", "refresh_token": "c4n4ry-refresh"}
    path.write_text(json.dumps({"type": "authorized_user", "token_uri": f"{gcs.url}/token"} | secrets))
    return str(path)
