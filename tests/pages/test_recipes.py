"""The recipes for clients without a plugin are short; the tests of their documentation page check that they work."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "docs/how-to/crawl.md"
MOST_LINES = 17


@pytest.mark.parametrize("client", ["aiohttp", "httpx", "playwright"])
def test_recipe_has_at_most_seventeen_lines(client: str) -> None:
    blocks = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text("utf-8"), re.MULTILINE | re.DOTALL)
    (recipe,) = [block for block in blocks if f"pages.from_{client}" in block]
    assert len([line for line in recipe.splitlines() if line.strip()]) <= MOST_LINES
