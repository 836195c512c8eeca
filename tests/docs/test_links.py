"""Links between the project's own pages lead somewhere; `mkdocs build --strict` sees only those within `docs/`."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = [
    *ROOT.glob("*.md"),
    ROOT / "examples" / "README.md",
    ROOT / "plugins" / "README.md",
    *ROOT.glob("docs/**/*.md"),
]
LINK = re.compile(r"\]\((?!https?://|#|mailto:)([^)#\s]+)")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_relative_link_leads_to_a_file(page: Path) -> None:
    links = LINK.findall(page.read_text("utf-8"))
    assert [link for link in links if not (page.parent / link).exists()] == []


def test_every_page_is_in_the_navigation() -> None:
    navigation = (ROOT / "mkdocs.yml").read_text("utf-8")
    pages = [str(page.relative_to(ROOT / "docs")) for page in ROOT.glob("docs/**/*.md")]
    assert [page for page in pages if page not in navigation] == []


def test_a_link_that_leads_nowhere_is_found() -> None:
    assert LINK.findall("[a](b.md) [c](https://d) [e](#f) [g](h/i.md#j)") == ["b.md", "h/i.md"]
