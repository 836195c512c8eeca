"""Fixtures: the servers of the plugins' own tests, each started once."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

# Tests are imported by path, but the modules that they share, also with the plugins' tests, by name.
sys.path.insert(0, str(Path(__file__).parents[2] / "plugins/asyncrec-s3/tests"))
sys.path.insert(0, str(Path(__file__).parents[2] / "plugins/asyncrec-gcs/tests"))
sys.path.insert(0, str(Path(__file__).parents[2] / "plugins/asyncrec-azure/tests"))
sys.path.insert(0, str(Path(__file__).parents[2] / "plugins/asyncrec-http/tests"))

from fake_gcs import FakeGcs  # on sys.path because of the lines above
from s3_proxy import Proxy, running_proxy
from s3_store import Store, running_store


@pytest.fixture(scope="session")
def s3_store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    with running_store(tmp_path_factory.mktemp("store")) as store:
        yield store


@pytest.fixture(scope="session")
def s3_proxy(s3_store: Store) -> Iterator[Proxy]:
    with running_proxy(s3_store) as proxy:
        yield proxy


@pytest.fixture(scope="session")
def gcs_server() -> Iterator[FakeGcs]:
    with FakeGcs().serving() as server:
        yield server
