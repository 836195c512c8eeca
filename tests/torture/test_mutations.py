"""A short version of `make torture` for damaged files: a few thousand mutations and the fast bombs."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

HERE = Path(__file__).parent


def load(name: str) -> ModuleType:
    """Load a module in the way that run.py does, because this folder is not a package."""
    qualified = f"torture_{name}"
    if qualified not in sys.modules:
        spec = importlib.util.spec_from_file_location(qualified, HERE / f"{name}.py")
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[qualified] = module
        spec.loader.exec_module(module)
    return sys.modules[qualified]


load("row")
ROUNDS: list[Callable[[int, int], Any]] = load("mutations").ROUNDS
bombs = load("bombs")


@pytest.mark.slow
@pytest.mark.parametrize("run", ROUNDS, ids=lambda run: run.__name__)
def test_mutated_file_loses_no_untouched_records(run: Callable[[int, int], Any]) -> None:
    row = run(1, 8)
    assert row.tried >= 150
    assert row.lost == 0


@pytest.mark.slow
@pytest.mark.parametrize("bomb", [bomb for bomb in bombs.BOMBS if not bomb.slow], ids=lambda bomb: bomb.what)
def test_decompression_bomb_uses_bounded_resources(bomb: Any) -> None:
    assert bombs.detonate(bomb) == []
