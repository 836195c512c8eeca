"""The tutorial "Write a storage plugin" shows the plugin's real source. Another test runs its other snippets."""

from __future__ import annotations

import re
import textwrap
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "write-a-plugin" / "storage.md").read_text("utf-8")
EXCERPTS = re.findall(
    r"^<!-- not run: an excerpt of (\S+) -->\n\n```python\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL
)


@pytest.mark.parametrize(("path", "code"), EXCERPTS)
def test_excerpt_matches_plugin_source_exactly(path: str, code: str) -> None:
    source = (ROOT / path).read_text("utf-8")
    assert code in source or textwrap.indent(code, "    ") in source


def test_every_excerpt_of_tutorial_is_tested() -> None:
    assert len(EXCERPTS) == PAGE.count("an excerpt of") > 8


def test_tutorial_entry_point_matches_plugin() -> None:
    (toml,) = re.findall(r"```toml\n(.*?)```", PAGE, re.DOTALL)
    assert toml in (ROOT / "plugins" / "asyncrec-aiofiles" / "pyproject.toml").read_text("utf-8")
