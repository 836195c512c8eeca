"""What the plugins of this repository import of asyncrec is exported: they have no rights that a stranger's has not."""

from __future__ import annotations

import ast
import re
from importlib import import_module
from pathlib import Path

import pytest

PLUGINS = Path(__file__).parents[1] / "plugins"
SOURCES = sorted(PLUGINS.glob("*/asyncrec_*/**/*.py"))
PUBLIC = {
    "asyncrec",
    *(f"asyncrec.{name}" for name in ("cli", "errors", "example", "pages", "plugins", "testing", "tools")),
    "asyncrec.storage",
    "asyncrec.storage.http",
}


# A store is written with these, as a stranger's would be.
STORES = ("asyncrec-aiofiles", "asyncrec-azure", "asyncrec-fsspec", "asyncrec-gcs", "asyncrec-http", "asyncrec-s3")
FOR_STORES = ("asyncrec.storage", "asyncrec.storage.http", "asyncrec.errors")


def private_imports(source: str) -> list[str]:
    """The imports of what is not exported, as ``line: module.name``."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            names = [(alias.name, None) for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            names = [(str(node.module), alias.name) for alias in node.names]
        else:
            continue
        for module, name in names:
            ours = module.partition(".")[0] == "asyncrec"
            exported = module in PUBLIC and (
                name is None or name in import_module(module).__all__ or f"{module}.{name}" in PUBLIC
            )
            if ours and not exported:
                found.append(f"{node.lineno}: {module}.{name}")
    return found


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(PLUGINS)))
def test_a_plugin_imports_only_what_is_exported(path: Path) -> None:
    assert private_imports(path.read_text("utf-8")) == []


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(PLUGINS)))
def test_a_plugin_names_nothing_with_an_underscore_of_asyncrec_even_in_its_prose(path: Path) -> None:
    assert re.findall(r"\basyncrec(?:\.\w+)*\._\w+", path.read_text("utf-8")) == []


@pytest.mark.parametrize("store", STORES)
def test_a_store_is_written_with_what_is_for_stores_and_with_errors_alone(store: str) -> None:
    taken = {
        str(node.module)
        for path in SOURCES
        if path.relative_to(PLUGINS).parts[0] == store
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.ImportFrom) and str(node.module).partition(".")[0] == "asyncrec" and not node.level
    }
    assert taken
    assert taken <= set(FOR_STORES)


def test_there_are_plugins_to_look_at() -> None:
    assert {path.relative_to(PLUGINS).parts[0] for path in SOURCES} >= {"asyncrec-s3", "asyncrec-report"}


@pytest.mark.parametrize(
    "source",
    [
        "from asyncrec.storage._base import Storage",
        "import asyncrec._concurrency.tasks",
        "from asyncrec.storage import _hidden",
        "def late():\n    from asyncrec._framing import frames",
    ],
)
def test_an_import_of_something_else_is_found(source: str) -> None:
    assert len(private_imports(source)) == 1
