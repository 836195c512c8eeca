"""Nothing in a page runs or loads, and its size is limited, whatever the records contain."""

from __future__ import annotations

import os
from base64 import b64decode
from pathlib import Path

import numpy as np
import pytest
from asyncrec_report import report
from report_pages import MIB, Page, page_of, png, written

import asyncrec
from asyncrec.storage._memory import MemoryStorage

pytestmark = pytest.mark.anyio

EVIL = "<script>alert(1)</script>\"'><img src=x onerror=alert(2)>\u202e\x1b[31m&amp;</style></title>"


async def test_markup_in_records_names_metadata_and_paths_is_escaped(tmp_path: Path) -> None:
    folder = tmp_path / "<script>alert(0)</script>"
    rows = [
        {EVIL: EVIL, f"{EVIL} 2": i, "label": [EVIL, "<b>x</b>"][i % 2], "svg": "<svg onload='alert(1)'/>"}
        for i in range(40)
    ]
    async with asyncrec.open_sharded_writer(folder / "pa<i>ges", metadata={EVIL: {EVIL: EVIL}}) as writer:
        for row in rows:
            await writer.write(asyncrec.encode_example(row), key=EVIL + str(row[f"{EVIL} 2"]))
        await writer.write(EVIL.encode())
    page = Page((await report(folder / "pa<i>ges")).html)
    assert page.images == []
    assert "<script>alert(1)</script>" in page
    assert "<script>alert(0)</script>" in page
    assert "\\u202e\\x1b[31m" in page
    assert "\u202e" not in page.html
    assert "\x1b" not in page.html


async def test_page_shows_only_genuine_images() -> None:
    rows = [{"image": png(i + 1), "label": ["cat", "dog"][i % 2]} for i in range(6)]
    lies = [
        {"image": b"<svg onload='alert(1)'/>", "label": "cat"},
        {"image": b"\x89PNG\r\n", "label": "cat"},
        {"image": png(1) + bytes(MIB), "label": "dog"},
    ]
    page = await page_of("pages", await written([*rows, *lies]))
    assert [image["alt"] for image in page.images] == ["cat", "dog"] * 3
    for image, row in zip(page.images, rows, strict=True):
        prefix, _, data = str(image["src"]).partition(",")
        assert prefix == "data:image/png;base64"
        assert b64decode(data) == row["image"]
    assert "1 image too large to be shown here" in page


async def test_page_contains_at_most_four_megabytes_of_images() -> None:
    rows = [{f"image {n}": png(4) + os.urandom(200_000) for n in range(5)} for _ in range(20)]
    page = await page_of("pages", await written(rows))
    assert 15 <= len(page.images) <= 20
    assert len(page.html) < 6 * MIB
    assert "images too large to be shown here" in page


@pytest.mark.slow
async def test_page_of_fifty_megabyte_record_stays_small() -> None:
    storage = MemoryStorage()
    large = asyncrec.encode_example({"body": os.urandom(MIB) * 50, "numbers": np.zeros(MIB, np.float32)})
    small = [asyncrec.encode_example({"body": "x" * i}) for i in range(20)]
    await asyncrec.write_records("a.tfrecord", [*small, large], storage=storage)
    page = await page_of("a.tfrecord", storage)
    assert "21 records in 1 shard" in page
    assert "54.0 MiB" in page
    assert len(page.html) < 100_000


async def test_page_groups_shards_into_columns_and_limits_rows() -> None:
    storage = await written([{"i": i} for i in range(500)], max_shard_records=2)
    page = await page_of("pages", storage)
    assert "in the order of their names, 3 to a column" in page
    assert "and 50 shards more" in page
