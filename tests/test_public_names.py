"""The public names and the reference agree: each name resolves, and each is documented, and nothing else is."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

import asyncrec

REFERENCE = Path(__file__).parent.parent / "docs" / "reference.md"


def documented(text: str) -> set[str]:
    """The names a page gives as asyncrec's own: ``asyncrec.name``, wherever it stands."""
    return set(re.findall(r"\basyncrec\.([A-Za-z]\w*)", text))


@pytest.mark.parametrize("name", asyncrec.__all__)
def test_every_public_name_resolves(name: str) -> None:
    assert getattr(asyncrec, name) is not None
    assert name in dir(asyncrec)


def test_type_checkers_are_told_the_same_names_from_the_same_modules() -> None:
    """They read the imports under TYPE_CHECKING, Python the table: the two are written out apart."""
    tree = ast.parse(Path(asyncrec.__file__).read_text("utf-8"))
    told = {
        alias.name: node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) for alias in node.names
    }
    homes = {name: module for module, names in asyncrec._HOMES.items() for name in names}
    assert {name: told.get(name) for name in asyncrec.__all__} == homes


def test_no_public_name_is_listed_twice() -> None:
    assert sorted(asyncrec.__all__) == sorted(set(asyncrec.__all__))


def test_a_name_that_is_not_public_is_an_attribute_error_that_names_it() -> None:
    with pytest.raises(AttributeError, match="no_such_name"):
        asyncrec.no_such_name  # noqa: B018  # the access is what is tested


def test_every_public_name_is_in_the_reference() -> None:
    assert set(asyncrec.__all__) - documented(REFERENCE.read_text("utf-8")) == set()


def test_the_reference_names_nothing_that_is_not_there() -> None:
    """Submodules may be named beside the public names."""
    package = Path(asyncrec.__file__).parent
    modules = {path.stem for path in package.iterdir() if path.suffix == ".py" or path.is_dir()}
    assert documented(REFERENCE.read_text("utf-8")) - set(asyncrec.__all__) - modules == set()


def test_names_are_found_in_prose_code_and_headings() -> None:
    text = "## `asyncrec.open_writer(path)`\n\nSee asyncrec.Schema. `await asyncrec.read_records(p)`; my_asyncrec.other"
    assert documented(text) == {"open_writer", "Schema", "read_records"}
