"""Links between the project's own pages work; `mkdocs build --strict` checks only those within `docs/`."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = [
    *ROOT.glob("*.md"),
    *ROOT.glob("examples/**/README.md"),
    ROOT / "plugins" / "README.md",
    *ROOT.glob("docs/**/*.md"),
]
NAMED = re.compile(r"`((?:asyncrec|docs|examples|plugins|tests)/[\w./-]*)`")
TARGET = re.compile(r"`make ([a-z][\w-]*)")
LINK = re.compile(r"\]\((?!https?://|#|mailto:)([^)#\s]+)")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_relative_link_points_to_existing_file(page: Path) -> None:
    links = LINK.findall(page.read_text("utf-8"))
    assert [link for link in links if not (page.parent / link).exists()] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_named_file_exists(page: Path) -> None:
    """Pages name files, such as the tests of a promise."""
    named = NAMED.findall(page.read_text("utf-8"))
    assert [name for name in named if not (ROOT / name).exists()] == []


def test_every_named_make_target_exists() -> None:
    targets = set(re.findall(r"^([a-z][\w-]*):", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE))
    named = {target for page in PAGES for target in TARGET.findall(page.read_text("utf-8"))}
    assert "demo" in named
    assert named - targets == set()


def test_every_page_is_in_navigation() -> None:
    navigation = (ROOT / "mkdocs.yml").read_text("utf-8")
    pages = [str(page.relative_to(ROOT / "docs")) for page in ROOT.glob("docs/**/*.md")]
    assert [page for page in pages if page not in navigation] == []


def test_link_patterns_find_relative_links_and_names() -> None:
    assert LINK.findall("[a](b.md) [c](https://d) [e](#f) [g](h/i.md#j)") == ["b.md", "h/i.md"]
    assert NAMED.findall("`tests/a` and `asyncrec/b/c.py`, `asyncrec.d`") == ["tests/a", "asyncrec/b/c.py"]
