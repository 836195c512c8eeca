"""The store that the tests use (`s3_store`), and a proxy in front of it (`s3_proxy`)."""

from __future__ import annotations

import os
import random
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import anyio.to_thread
import pytest

sys.path.insert(0, str(Path(__file__).parent))  # tests are imported by path, helpers by name
sys.path.insert(0, str(Path(__file__).parents[3] / "tests/servers"))

from s3_opening import Open, opener  # importable because of the line above
from s3_proxy import Proxy, running_proxy
from s3_store import CHUNK, IMPATIENT, SMALLEST_PART, Store, running_store


@pytest.fixture(scope="session")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    with running_store(tmp_path_factory.mktemp("store")) as store:
        yield store


@pytest.fixture
def small_parts(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """Allow a ``chunk_size`` as small as the store accepts."""
    monkeypatch.setattr("asyncrec_s3.options.MIN_PART", SMALLEST_PART)


@pytest.fixture
def prefix(store: Store, request: pytest.FixtureRequest) -> str:
    """Return a folder of the bucket for a single test."""
    name = re.sub(r"[^A-Za-z0-9]+", "-", request.node.nodeid.rpartition("::")[2])[:60]
    return f"{name}-{random.Random().randrange(1 << 40):x}"


@pytest.fixture(scope="session")
def _proxy(store: Store) -> Iterator[Proxy]:
    with running_proxy(store) as proxy:
        yield proxy


@pytest.fixture
def proxy(_proxy: Proxy) -> Iterator[Proxy]:
    """Return the proxy without faults; later, check that it rejected nothing, and end all of the test's requests."""
    _proxy.reset()
    yield _proxy
    refused = list(_proxy.refused)
    _proxy.reset()
    assert not refused


@pytest.fixture
def open_storage(store: Store, proxy: Proxy, prefix: str) -> Open:
    """Return a function that opens a storage on the test's folder, with S3's smallest parts."""
    return opener(store, proxy, prefix, chunk_size=5 << 20)


@pytest.fixture
def open_impatient(store: Store, proxy: Proxy, prefix: str, small_parts: None) -> Open:
    """Like `open_storage`, with the test store's smallest parts and a client that quickly drops a stalled request."""
    return opener(store, proxy, prefix, chunk_size=CHUNK, read_timeout=IMPATIENT)


@pytest.fixture
def whole(store: Store, prefix: str) -> Callable[..., Any]:
    """Return a check, independent of the plugin, that an object has given contents and no upload is left."""

    async def look(key: str, data: bytes | None) -> None:
        assert await anyio.to_thread.run_sync(store.get, f"{prefix}/{key}") == data
        assert await anyio.to_thread.run_sync(store.unfinished, prefix) == []

    return look


class _NoJitter(random.Random):
    def uniform(self, a: float, b: float) -> float:
        return 0.0


@pytest.fixture(autouse=True)
def no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the back-off between retries zero, so that nothing sleeps."""
    monkeypatch.setattr("asyncrec.storage._retry._jitter", _NoJitter())


@pytest.fixture(autouse=True)
def credentials(monkeypatch: pytest.MonkeyPatch, store: Store, tmp_path: Path) -> None:
    """Hide this machine's configuration from the tests, and use no metadata service."""
    for name in list(os.environ):
        if name.startswith("AWS_") or name == "S3_ENDPOINT":
            monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", store.access_key)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", store.secret_key)
    monkeypatch.setenv("AWS_REGION", "us-east-1")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))
