from __future__ import annotations

from pathlib import Path

import pytest
from write_and_read import RECORDS, main

import asyncrec

pytestmark = pytest.mark.anyio


async def test_records_span_several_shards_and_read_back(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    await main(str(tmp_path))
    manifest = await asyncrec.read_manifest(tmp_path / "hashes")
    assert manifest.records == RECORDS
    assert len(manifest.shards) == 4
    assert f"{RECORDS:,} records in all" in capsys.readouterr().out
