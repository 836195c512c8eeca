"""The examples import each other from their own folder, as when they are run.

These tests share `site_server` and an S3 store.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
sys.path[:0] = [str(ROOT / "examples"), str(Path(__file__).parent), str(ROOT / "plugins" / "asyncrec-gcs" / "tests")]

from crawling.local_s3 import running_s3  # noqa: E402  # found by the line above


@pytest.fixture(scope="session")
def s3_environment() -> Iterator[dict[str, str]]:
    """Return an environment in which ``s3://crawl`` and ``s3://archive`` are buckets of a store on this machine."""
    with running_s3("crawl", "archive") as environment:
        yield environment


@pytest.fixture
def s3(s3_environment: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """Set the variables of this environment in this process as well."""
    for name, value in s3_environment.items():
        if name.startswith("AWS_") or name == "NO_PROXY":
            monkeypatch.setenv(name, value)
    return s3_environment
