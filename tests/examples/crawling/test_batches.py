from __future__ import annotations

from pathlib import Path

import pytest
from crawling.batches import BATCHES, PACKAGES, PAGES, show_balanced_batches

import asyncrec

pytestmark = pytest.mark.anyio

SCHEMA = asyncrec.Schema({"url": asyncrec.FixedLen((), "str"), "package": asyncrec.FixedLen((), "str")})


@pytest.mark.parametrize(("packages", "pages"), [(7, BATCHES * PACKAGES * PAGES), (1, BATCHES * PAGES)])
async def test_batch_output_shows_packages_and_pages(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], packages: int, pages: int
) -> None:
    async with asyncrec.open_sharded_writer(tmp_path / "pages", schema=SCHEMA) as writer:
        for number in range(100):
            package = f"package{min(number, packages - 1)}"
            url = f"http://site/{package}/{number}"
            await writer.write(asyncrec.encode_example({"url": url, "package": package}))
    await show_balanced_batches(str(tmp_path / "pages"))
    printed = capsys.readouterr().out
    assert f"of {packages} packages" in printed
    assert sum("/package" in line for line in printed.splitlines()) == pages
