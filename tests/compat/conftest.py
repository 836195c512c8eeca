"""Servers on the loopback interface for ``s3://`` and ``gs://``, the same ones that the plugins' own tests use."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

# Test modules are imported by path, but helper modules are imported by name.
sys.path.insert(0, str(Path(__file__).parents[2] / "plugins/asyncrec-s3/tests"))
sys.path.insert(0, str(Path(__file__).parents[2] / "plugins/asyncrec-gcs/tests"))

from fake_gcs import FakeGcs  # importable because of the line above
from s3_store import Store, running_store


@pytest.fixture(scope="session")
def _s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    with running_store(tmp_path_factory.mktemp("s3")) as store:
        yield store


@pytest.fixture
def s3(_s3: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Store:
    """Set up an S3 store that is found only through ``S3_ENDPOINT`` and the SDK's credentials, as for tensorboardX."""
    for name in list(os.environ):
        if name.startswith("AWS_"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("S3_ENDPOINT", _s3.endpoint)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", _s3.access_key)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", _s3.secret_key)
    monkeypatch.setenv("AWS_REGION", "us-east-1")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))
    return _s3


@pytest.fixture
def gcs(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeGcs]:
    with FakeGcs().serving() as server:
        monkeypatch.setenv("STORAGE_EMULATOR_HOST", server.url)
        yield server
