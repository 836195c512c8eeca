"""`make docs` writes llms.txt and llms-full.txt: each page that a user reads, and each name of the reference."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import asyncrec

ROOT = Path(__file__).parents[2]
spec = importlib.util.spec_from_file_location("llms", ROOT / "docs/llms.py")
assert spec is not None
assert spec.loader is not None
llms = importlib.util.module_from_spec(spec)
spec.loader.exec_module(llms)


def test_each_page_is_listed_and_each_name_documented(tmp_path: Path) -> None:
    llms.write(ROOT / "mkdocs.yml", ROOT / "docs", tmp_path)
    index, full = ((tmp_path / name).read_text() for name in ("llms.txt", "llms-full.txt"))
    assert "(how-to/crawl.html): All tasks share one writer, which you open once." in index
    assert "(reference/index.html)" in index
    assert "design/" not in index
    assert not [name for name in asyncrec.__all__ if f"### asyncrec.{name}" not in full]
    assert "#### asyncrec.Dataset.shuffled(" in full
    assert "\n::: " not in full
