"""Unfinished files are found by their folder and by their data set, and removed when they are old."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

import asyncrec
from asyncrec import tools

pytestmark = pytest.mark.anyio


async def test_of_a_disk(tmp_path: Path) -> None:
    for name in ("a/.pages-x-000000.tfrecord.0123456789abcdef.partial", "a/.other.0123456789abcdef.partial"):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(b"half")
    os.utime(tmp_path / "a/.other.0123456789abcdef.partial", (0, 0))
    assert len((await tools.uploads(tmp_path / "a")).found) == 2
    assert len((await tools.uploads(tmp_path / "a/pages")).found) == 1
    assert (await tools.uploads(tmp_path / "b")).found == []
    report = await tools.uploads(tmp_path, remove=True)
    assert [Path(info.key).name for info in report.removed] == [".other.0123456789abcdef.partial"]
    assert [each["removed"] for each in report.to_json()["uploads"]] == [True, False]
    assert len((await tools.uploads(tmp_path)).found) == 1


async def test_a_store_that_keeps_none_says_so(tmp_path: Path) -> None:
    async with asyncrec.open_storage(f"memory://{tmp_path.name}") as storage:
        assert not (await tools.uploads("x", storage=storage)).supported
