"""The public names match the reference: every name resolves and is documented, and no other names are documented."""

from __future__ import annotations

import ast
import re
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from types import ModuleType

import pytest

import asyncrec

DOCS = Path(__file__).parent.parent / "docs"
REFERENCE = "\n".join(page.read_text("utf-8") for page in sorted(DOCS.glob("reference/*.md")))

# Packages that import their names on first use.
LAZY = [
    import_module(name)
    for name in (
        "asyncrec", "asyncrec.cli", "asyncrec.datasets", "asyncrec.example", "asyncrec.pages", "asyncrec.plugins",
        "asyncrec.stats", "asyncrec.storage", "asyncrec.testing", "asyncrec.tools",
    )
]  # fmt: skip


def documented(text: str) -> set[str]:
    """Return the names that a page mentions as asyncrec's own: every ``asyncrec.name`` in its text."""
    return set(re.findall(r"\basyncrec\.([A-Za-z]\w*)", text))


def name_of(module: ModuleType) -> str:
    return module.__name__


@pytest.mark.parametrize("module", LAZY, ids=name_of)
def test_every_public_name_resolves(module: ModuleType) -> None:
    missing = [name for name in module.__all__ if getattr(module, name, None) is None or name not in dir(module)]
    assert missing == []


@pytest.mark.parametrize("module", LAZY, ids=name_of)
def test_type_checking_imports_match_lazy_table(module: ModuleType) -> None:
    """Type checkers read the imports under TYPE_CHECKING and Python reads the table, so both list the same names."""
    tree = ast.parse(Path(str(module.__file__)).read_text("utf-8"))
    block = next(
        node
        for node in tree.body
        if isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"
    )
    told = {
        (each.module, alias.name)
        for each in block.body
        if isinstance(each, ast.ImportFrom)
        for alias in each.names
        if each.module != "asyncrec"
    }
    [table] = [
        node.args[1]
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "lazy"
    ]
    homes = {(home, name) for home, names in ast.literal_eval(table).items() for name in names.split()}
    assert told == homes


@pytest.mark.parametrize("module", LAZY, ids=name_of)
def test_public_names_are_listed_once(module: ModuleType) -> None:
    assert sorted(module.__all__) == sorted(set(module.__all__))


def test_top_level_has_at_most_65_names() -> None:
    assert len(asyncrec.__all__) <= 65


def test_promised_names_are_at_most_304() -> None:
    """Each public name has its own page in the reference, and is a promise.

    `compat` and `integrations` are not counted, because their names are those of the libraries they imitate, nor is
    `storage.http`, which promises nothing.

    The limit was 300 until sources (`forget_source`) and deletion (`tools.delete`, its receipt, `blocking.delete`) were
    added: people who are legally required to delete data need a call for it.
    """
    modules = [*LAZY, *(import_module(f"asyncrec.{name}") for name in ("blocking", "errors", "native"))]
    assert sum(len(module.__all__) for module in modules) <= 304


def test_shared_http_names_are_outside_stable_module() -> None:
    shared = import_module("asyncrec.storage.http")
    assert set(shared.__all__) & set(asyncrec.storage.__all__) == set()
    assert "no promise of stability" in str(shared.__doc__)


@pytest.mark.parametrize(
    "name", ["blocking", "datasets", "errors", "example", "native", "pages", "stats", "storage", "tools"]
)
def test_public_module_is_attribute_without_being_imported(name: str) -> None:
    assert name in dir(asyncrec)
    assert getattr(asyncrec, name) is import_module(f"asyncrec.{name}")


@pytest.mark.parametrize("module", LAZY, ids=name_of)
def test_unknown_name_raises_attribute_error_naming_name(module: ModuleType) -> None:
    with pytest.raises(AttributeError, match="no_such_name"):
        module.no_such_name  # noqa: B018  # the access is what is tested


def test_modules_without_underscore_are_exactly_public_modules() -> None:
    """Every module or package without a leading underscore counts as public, and there are no others than these."""
    package = Path(asyncrec.__file__).parent
    public = {
        ".".join(path.relative_to(package).with_suffix("").parts).removesuffix(".__init__")
        for path in package.rglob("*.py")
        if not any(part.startswith("_") and part != "__init__.py" for part in path.relative_to(package).parts)
    }
    assert public - {"__init__"} == {
        "blocking",
        "cli",
        "compat",
        "compat.datum",
        "compat.tensorboardx",
        "compat.tensorflow",
        "compat.tfrecorder",
        "compat.tfrecorder.config",
        "compat.tfrecorder.engine",
        "compat.tfrecorder.factory",
        "compat.tfrecorder.helpers",
        "compat.tfrecorder.helpers.checker",
        "compat.tfrecorder.helpers.decorator",
        "compat.tfrecorder.helpers.marshaller",
        "compat.tfsimilarity",
        "datasets",
        "errors",
        "example",
        "example.proto",
        "example.proto.example_pb2",
        "integrations",
        "integrations.arrow",
        "integrations.grain",
        "integrations.opentelemetry",
        "integrations.prometheus",
        "integrations.ray",
        "integrations.spark",
        "integrations.tensorflow",
        "integrations.torch",
        "native",
        "pages",
        "plugins",
        "stats",
        "storage",
        "storage.http",
        "testing",
        "testing.golden",
        "tools",
    }


def test_every_public_name_is_in_reference() -> None:
    assert set(asyncrec.__all__) - documented(REFERENCE) == set()


@pytest.mark.parametrize("name", ["datasets", "errors", "native", "pages", "stats"])
def test_public_module_names_are_in_reference(name: str) -> None:
    module = getattr(asyncrec, name)
    missing = [
        each for each in module.__all__ if not re.search(rf"^::: asyncrec\.({name}\.)?{each}$", REFERENCE, re.MULTILINE)
    ]
    assert missing == []


def test_storage_names_are_in_reference() -> None:
    missing = [
        name
        for name in asyncrec.storage.__all__
        if not re.search(rf"^::: asyncrec\.storage\.{name}$|`{name}`", REFERENCE, re.MULTILINE)
    ]
    assert missing == []


def test_http_backend_names_are_in_reference() -> None:
    names = import_module("asyncrec.storage.http").__all__
    assert set(names) == set(re.findall(r"^::: asyncrec\.storage\.http\.(\w+)$", REFERENCE, re.MULTILINE))


def test_reference_names_only_existing_objects() -> None:
    """Besides public names, the reference may mention submodules."""
    package = Path(asyncrec.__file__).parent
    modules = {path.stem for path in package.iterdir() if path.suffix == ".py" or path.is_dir()}
    assert documented(REFERENCE) - set(asyncrec.__all__) - modules == set()


def test_user_pages_mention_no_private_names() -> None:
    """Pages for contributors, such as the architecture and the design decisions, may mention private names."""
    pages = [
        page
        for page in (DOCS.parent / "README.md", *DOCS.rglob("*.md"))
        if "design" not in page.parts and page.name not in ("architecture.md", "glossary.md")
    ]
    found = [
        f"{page.relative_to(DOCS.parent)}: {name}"
        for page in pages
        for name in re.findall(r"\basyncrec(?:\.\w+)*\._\w+", page.read_text("utf-8"))
    ]
    assert found == []


def test_names_are_found_in_prose_code_and_headings() -> None:
    text = "## `asyncrec.open_writer(path)`\n\nSee asyncrec.Schema. `await asyncrec.read_records(p)`; my_asyncrec.other"
    assert documented(text) == {"open_writer", "Schema", "read_records"}


def test_logger_names_are_stable() -> None:
    """Users refer to logger names in their logging configuration."""
    package = Path(str(asyncrec.__file__)).parent
    named = {
        name
        for path in [*package.rglob("*.py"), *(package.parent / "plugins").glob("*/asyncrec_*/**/*.py")]
        for name in re.findall(r"getLogger\(\"(asyncrec[\w.]*)\"\)", path.read_text("utf-8"))
    }
    assert {"asyncrec.shards", "asyncrec.storage"} <= named
    assert not [name for name in named if "._" in name]


def test_package_has_version_attribute() -> None:
    assert asyncrec.__version__ == version("asyncrec")
