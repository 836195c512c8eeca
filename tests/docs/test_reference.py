"""The public names of all submodules are in the reference, as those of ``asyncrec`` are."""

from __future__ import annotations

import ast
import re
from importlib import import_module
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = "".join(page.read_text("utf-8") for page in sorted(ROOT.glob("docs/reference/*.md")))
DOCUMENTED = set(re.findall(r"^::: (asyncrec\.[\w.]+)$", PAGES, re.MULTILINE))


def names_of(module: str) -> list[str]:
    """Return ``__all__`` from the source: frameworks that integrations import may not be installed."""
    path = ROOT.joinpath(*module.split("."))
    source = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    for node in ast.parse(source.read_text("utf-8")).body:
        match node:
            case ast.Assign(targets=[ast.Name("__all__")], value=ast.List(elts)):
                return [str(ast.literal_eval(name)) for name in elts]
    return list(import_module(module).__all__)


@pytest.mark.parametrize(
    "module",
    [
        "asyncrec.tools", "asyncrec.testing", "asyncrec.integrations.arrow", "asyncrec.integrations.opentelemetry",
        "asyncrec.integrations.prometheus", "asyncrec.integrations.ray", "asyncrec.integrations.torch",
        "asyncrec.integrations.tensorflow", "asyncrec.plugins", "asyncrec.storage",
    ],
)  # fmt: skip
def test_every_submodule_name_is_in_reference(module: str) -> None:
    names = names_of(module)
    assert names
    # A function with the same name as its module is documented by its full path.
    missing = [name for name in names if not any(re.fullmatch(rf"{module}(\.\w+)?\.{name}", d) for d in DOCUMENTED)]
    # Names that `asyncrec` also exports are documented there, and those of neither classes nor functions in prose.
    assert [name for name in missing if f"asyncrec.{name}" not in DOCUMENTED and f"`{name}`" not in PAGES] == []


def test_command_page_mentions_every_name_of_cli_module() -> None:
    page = (ROOT / "docs" / "write-a-plugin" / "command.md").read_text("utf-8")
    assert [name for name in import_module("asyncrec.cli").__all__ if not re.search(rf"\b{name}\b", page)] == []


def test_every_blocking_class_is_in_reference() -> None:
    """Blocking functions have the parameters of the asynchronous ones, which are documented."""
    blocking = import_module("asyncrec.blocking")
    namesakes = {
        name
        for module in ("asyncrec", "asyncrec.datasets", "asyncrec.storage")
        for name in import_module(module).__all__
        if f"{module}.{name}" in DOCUMENTED
    }
    own = {name for name in blocking.__all__ if f"asyncrec.blocking.{name}" in DOCUMENTED}
    assert set(blocking.__all__) - own - namesakes == set()


def test_reference_pages_begin_with_current_table() -> None:
    """The reference is then readable in a checkout, without mkdocstrings."""
    spec = spec_from_file_location("reference_tables", ROOT / "docs/reference_tables.py")
    assert spec is not None
    assert spec.loader is not None
    tables = module_from_spec(spec)
    spec.loader.exec_module(tables)
    pages = [page for page in sorted(ROOT.glob("docs/reference/*.md")) if tables.NAMES.search(page.read_text("utf-8"))]
    assert len(pages) > 30
    old = [page.name for page in pages if tables.with_table(page) != page.read_text("utf-8")]
    assert old == [], "run: python docs/reference_tables.py"
