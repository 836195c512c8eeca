"""The plugins in this repository import only exported names of asyncrec, as third-party plugins would have to."""

from __future__ import annotations

import ast
import re
from importlib import import_module

import pytest

from .parsed import Module, modules, nodes, parsed

PUBLIC = {
    "asyncrec",
    *(f"asyncrec.{name}" for name in ("cli", "errors", "example", "pages", "plugins", "testing", "tools")),
    "asyncrec.storage",
    "asyncrec.storage.http",
}


# These plugins provide stores, using only what a third-party store may use.
STORES = ("asyncrec-aiofiles", "asyncrec-azure", "asyncrec-fsspec", "asyncrec-gcs", "asyncrec-http", "asyncrec-s3")
FOR_STORES = ("asyncrec.plugins", "asyncrec.storage", "asyncrec.storage.http", "asyncrec.errors")


def private_imports(module: Module) -> list[str]:
    """Yield each import of a name that is not exported, as ``module:line: name``."""
    found = []
    for node in module.nodes:
        if isinstance(node, ast.Import):
            names = [(alias.name, None) for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            names = [(str(node.module), alias.name) for alias in node.names]
        else:
            continue
        for taken, name in names:
            ours = taken.partition(".")[0] == "asyncrec"
            exported = taken in PUBLIC and (
                name is None or name in import_module(taken).__all__ or f"{taken}.{name}" in PUBLIC
            )
            if ours and not exported:
                found.append(f"{module.name}:{node.lineno}: {taken}.{name}")
    return found


def of_plugins() -> list[Module]:
    return [module for module in modules() if module.name.startswith("plugins/")]


def test_plugin_imports_only_exported_names() -> None:
    assert [found for module in of_plugins() for found in private_imports(module)] == []


def test_plugins_mention_no_private_names_of_asyncrec() -> None:
    private = re.compile(r"\basyncrec(?:\.\w+)*\._\w+")
    assert {module.name: found for module in of_plugins() if (found := private.findall(module.text))} == {}


@pytest.mark.parametrize("store", STORES)
def test_stores_import_only_plugin_api_and_errors(store: str) -> None:
    taken = {
        str(node.module)
        for name, node in nodes(ast.ImportFrom)
        if name.startswith(f"plugins/{store}/") and str(node.module).partition(".")[0] == "asyncrec" and not node.level
    }
    assert taken
    assert taken <= set(FOR_STORES)


def test_plugin_modules_are_found() -> None:
    assert {module.name.split("/")[1] for module in of_plugins()} >= {"asyncrec-s3", "asyncrec-report"}


@pytest.mark.parametrize(
    "source",
    [
        "from asyncrec.storage._base import Storage",
        "import asyncrec._concurrency.tasks",
        "from asyncrec.storage import _hidden",
        "def late():\n    from asyncrec._framing import frames",
    ],
)
def test_private_import_is_detected(source: str) -> None:
    assert len(private_imports(parsed(source))) == 1
