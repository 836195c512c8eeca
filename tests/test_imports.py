"""Imports are written with full names within asyncrec, and relatively within a plugin."""

from __future__ import annotations

import ast
from collections.abc import Iterator

import pytest

from .parsed import Module, modules, parsed


def froms(module: Module) -> Iterator[ast.ImportFrom]:
    return (node for node in module.nodes if isinstance(node, ast.ImportFrom))


def relative(module: Module) -> list[int]:
    return [node.lineno for node in froms(module) if node.level]


def of_itself(module: Module, package: str) -> list[int]:
    """Return a package's imports of its own modules by absolute name."""
    return [node.lineno for node in froms(module) if not node.level and str(node.module).partition(".")[0] == package]


def test_asyncrec_modules_use_absolute_imports() -> None:
    """With absolute imports, a text search for a module's name finds everything that uses it."""
    library = [module for module in modules() if module.name.startswith("asyncrec/")]
    assert library
    assert {module.name: lines for module in library if (lines := relative(module))} == {}


def test_plugins_import_own_modules_relatively() -> None:
    """An import that begins with ``asyncrec`` is then always one from outside the plugin."""
    plugins = [module for module in modules() if module.name.startswith("plugins/")]
    assert plugins
    assert {module.name: lines for module in plugins if (lines := of_itself(module, module.name.split("/")[2]))} == {}


@pytest.mark.parametrize("source", ["from . import x", "from ..storage import y", "def late():\n    from .a import b"])
def test_relative_import_is_detected(source: str) -> None:
    assert len(relative(parsed(source))) == 1
    assert of_itself(parsed(source), "asyncrec_s3") == []


def test_absolute_self_import_is_detected() -> None:
    source = "from asyncrec_s3.sink import S3Sink\nfrom asyncrec.storage import Storage"
    assert of_itself(parsed(source), "asyncrec_s3") == [1]
