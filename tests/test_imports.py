"""How an import is written: in full within asyncrec, from the package itself within a plugin."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
LIBRARY = sorted((ROOT / "asyncrec").rglob("*.py"))
PLUGINS = sorted(ROOT.glob("plugins/*/asyncrec_*/**/*.py"))


def froms(source: str) -> Iterator[ast.ImportFrom]:
    return (node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.ImportFrom))


def relative(source: str) -> list[int]:
    return [node.lineno for node in froms(source) if node.level]


def of_itself(source: str, package: str) -> list[int]:
    """The imports of the package by its own name."""
    return [node.lineno for node in froms(source) if not node.level and str(node.module).partition(".")[0] == package]


def test_asyncrec_names_its_modules_in_full() -> None:
    """So that a search for a module's name finds all who use it."""
    found = {str(path.relative_to(ROOT)): lines for path in LIBRARY if (lines := relative(path.read_text("utf-8")))}
    assert found == {}


def test_a_plugin_names_its_own_modules_from_where_it_stands() -> None:
    """So that what begins with ``asyncrec`` is what it takes from outside."""
    found = {
        str(path.relative_to(ROOT)): lines
        for path in PLUGINS
        if (lines := of_itself(path.read_text("utf-8"), path.relative_to(ROOT).parts[2]))
    }
    assert found == {}


@pytest.mark.parametrize("source", ["from . import x", "from ..storage import y", "def late():\n    from .a import b"])
def test_a_relative_import_is_found(source: str) -> None:
    assert len(relative(source)) == 1
    assert of_itself(source, "asyncrec_s3") == []


def test_an_import_of_a_package_by_itself_is_found() -> None:
    assert of_itself("from asyncrec_s3.sink import S3Sink\nfrom asyncrec.storage import Storage", "asyncrec_s3") == [1]
