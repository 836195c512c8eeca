"""The stores of the plugins' own tests, started once, and both event loops."""

from __future__ import annotations

import os
import random
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

# Tests are imported by path, but the modules that they share by name.
sys.path.insert(0, str(Path(__file__).parent))

from store_servers import gcs_server, s3_proxy, s3_store  # noqa: F401, I001  # fixtures; also extends sys.path
from fake_gcs import FakeGcs
from places import GcsPlace, Place, S3Place
from s3_proxy import Proxy
from s3_store import Store

from asyncrec.storage import _retry as retry


@pytest.fixture(params=["s3", "gcs"])
def place(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Place]:
    """An empty store without faults, reached over HTTP, and isolated from this machine's configuration."""
    for name in list(os.environ):
        if name.startswith(("AWS_", "GOOGLE_", "CLOUDSDK_")) or name in ("S3_ENDPOINT", "STORAGE_EMULATOR_HOST"):
            monkeypatch.delenv(name)
    monkeypatch.setattr("asyncrec.storage._retry._jitter", _NoJitter())
    stack = ExitStack()
    prefix = f"{request.param}-{random.Random().randrange(1 << 40):x}"
    if request.param == "s3":
        store: Store = request.getfixturevalue("s3_store")
        proxy: Proxy = request.getfixturevalue("s3_proxy")
        monkeypatch.setattr("asyncrec_s3.options.MIN_PART", S3Place.chunk)
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", store.access_key)
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", store.secret_key)
        monkeypatch.setenv("AWS_REGION", "us-east-1")
        monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
        monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))
        monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))
        place: Place = S3Place(store, proxy, prefix)
    else:
        monkeypatch.setattr("asyncrec_gcs.session._STALLED", 0.5)
        server: FakeGcs = request.getfixturevalue("gcs_server")
        server.reset()
        stack.enter_context(server.listening())
        place = GcsPlace(server, prefix)
    place.calm()
    with stack:
        yield place
    place.calm()


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make three attempts instead of ten, because the other seven are of no use if a store stays down."""
    monkeypatch.setitem(vars(retry.DEFAULT), "attempts", 3)


@pytest.fixture
def patient(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tolerate slow responses on a busy machine, in tests that do not withhold responses on purpose."""
    place.options.pop("read_timeout", None)
    monkeypatch.setattr("asyncrec_gcs.session._STALLED", 30)


class _NoJitter(random.Random):
    """A source of jitter that makes every back-off zero."""

    def uniform(self, a: float, b: float) -> float:
        return 0.0
