"""Fixtures of the tests with grain itself, which `make loaders` runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from asyncrec import blocking

COUNT = 1000


@pytest.fixture(params=["", "GZIP"], ids=["plain", "GZIP"])
def numbers(tmp_path: Path, request: pytest.FixtureRequest) -> str:
    """Write a data set of the numbers from 0 to 999 as text."""
    path = tmp_path / "numbers"
    with blocking.open_sharded_writer(path, max_shard_records=130, compression=request.param) as writer:
        writer.write_many(b"%d" % number for number in range(COUNT))
    return str(path)
