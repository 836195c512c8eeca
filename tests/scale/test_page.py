"""`docs/scale.md` shows what the script prints: who changes how a writer asks its store sees which figures change."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from .paper import Crawl, Prices
from .run import CHOICES, choice, costs, restart_of_all, summary

PAGE = (Path(__file__).parents[2] / "docs" / "scale.md").read_text("utf-8")
# Of more than a million shards: seconds of a processor.
_LONG = [what for what, changes in CHOICES.items() if changes.get("shard_seconds") == 60.0]


def test_the_tables_are_what_is_computed() -> None:
    crawl, prices = Crawl(), Prices()
    assert summary(crawl, prices) in PAGE
    assert costs(crawl, prices) in PAGE
    assert restart_of_all(crawl) in PAGE


@pytest.mark.slow
@pytest.mark.parametrize("what", [each for each in CHOICES if each not in _LONG or "ASYNCREC_LONG" in os.environ])
def test_a_row_of_the_choices_is_what_is_computed(what: str) -> None:
    assert f"| {' | '.join(choice(what, Crawl(), Prices()))} |" in PAGE
