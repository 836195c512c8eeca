"""The "Coming from" pages list the same differences that `make interop` checks against the original libraries."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from typing import Any

import pytest

import asyncrec
from asyncrec import blocking

INTEROP = Path(__file__).parents[1] / "interop"


def module() -> Any:
    spec = importlib.util.spec_from_file_location("beside", INTEROP / "beside.py")
    assert spec is not None
    assert spec.loader is not None
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    return made


beside = module()


@pytest.mark.parametrize("system", beside.SYSTEMS)
def test_differences_page_is_generated_from_list(system: str) -> None:
    """Run ``python tests/interop/beside.py`` to regenerate the page."""
    assert (beside.PAGES / f"{system}.md").read_text("utf-8") == beside.page_of(system)


def test_listed_promises_are_numbered() -> None:
    """Run ``python tests/interop/beside.py`` to regenerate this page as well."""
    assert beside.PROMISES.read_text("utf-8") == beside.promises()


def test_pages_list_at_most_forty_differences() -> None:
    assert sum(len(beside.differences(system)) for system in beside.SYSTEMS) <= 40


@pytest.mark.parametrize("system", beside.SYSTEMS)
def test_page_names_exist_in_async_and_blocking(system: str) -> None:
    """This covers all names in the page's table, in the column for blocking code and in the others."""
    page = (beside.PAGES / f"{system}.md").read_text("utf-8")
    names = re.findall(r"`blocking\.(\w+)", page)
    assert names
    for name in names:
        assert hasattr(blocking, name)
        assert any(hasattr(each, name) for each in (asyncrec, asyncrec.datasets, asyncrec.example, asyncrec.storage))


def test_tests_named_in_lists_exist() -> None:
    """TFRecorder has no package that could be run for comparison, so tests check the differences from it."""
    sources = Path(__file__).parent.glob("test_tfrecorder*.py")
    tests = {
        name for source in sources for name in re.findall(r"^def (test_\w+)", source.read_text("utf-8"), re.MULTILINE)
    }
    for difference in beside.differences("tfrecorder"):
        assert difference["tests"]
        assert set(difference["tests"]) <= tests
