"""Write the table at the top of each page of the reference: its names, with the first sentence of each docstring.

Without these tables, the pages in a checkout would contain only the names that mkdocstrings replaces.
``python docs/reference_tables.py`` writes the tables again; ``tests/docs/test_reference.py`` compares them.
"""

from __future__ import annotations

import ast
import inspect
import re
import sys
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from pkgutil import resolve_name
from typing import Any

ROOT = Path(__file__).parents[1]
PAGES = ROOT / "docs" / "reference"
BY_HAND = {"errors.md"}  # its table shows the hierarchy of the errors
NAMES = re.compile(r"^::: (asyncrec[\w.]*)$", re.MULTILINE)
HEAD = "| name | first sentence of its docstring |\n|---|---|\n"
TABLE = re.compile(re.escape(HEAD) + r"(?:\|.*\n)*\n")


def with_table(page: Path) -> str:
    """Return the text of a page, with its table before the first section."""
    text = TABLE.sub("", page.read_text("utf-8"))
    names = NAMES.findall(text)
    if not names or page.name in BY_HAND:
        return text
    rows = "".join(f"| `{name}` | {first_sentence(name)} |\n" for name in names if not is_message(name))
    before, heading, after = text.partition("\n## ")
    return f"{before}\n{HEAD}{rows}{heading}{after}"


def first_sentence(name: str) -> str:
    paragraph = " ".join(docstring(name).split("\n\n")[0].split())
    sentence = re.split(r"(?<=[.?!])\s", paragraph.replace("``", "`").replace("|", r"\|"), maxsplit=1)[0].rstrip(":")
    if not sentence:
        raise LookupError(f"{name} has no docstring")
    return sentence


def docstring(name: str) -> str:
    """Return the docstring of a class or function, or the text below the assignment of a value."""
    found = resolved(name)
    if inspect.isclass(found) or inspect.isroutine(found) or inspect.ismodule(found):
        return inspect.getdoc(found) or ""
    module, _, last = name.rpartition(".")
    trees = chain(sources(module), sources("asyncrec"))  # a value may be imported from another package
    return next((text for tree in trees for text in texts(tree, last) if text), "")


def resolved(name: str) -> Any:
    try:
        return resolve_name(name)
    except (ImportError, AttributeError):  # an integration with a library that is not installed
        return None


def is_message(name: str) -> bool:
    """Return whether a value is a protobuf message, whose class and docstring protobuf generates."""
    return getattr(resolved(name), "__module__", "").endswith("_pb2")


def sources(module: str) -> Iterator[ast.Module]:
    path = ROOT.joinpath(*module.split("."))
    for file in sorted(path.rglob("*.py")) if path.is_dir() else [path.with_suffix(".py")]:
        yield ast.parse(file.read_text("utf-8"))


def texts(tree: ast.Module, name: str) -> Iterator[str]:
    for node, below in zip(tree.body, [*tree.body[1:], None], strict=True):
        match node, below:
            case (ast.ClassDef() | ast.FunctionDef() | ast.AsyncFunctionDef()) as definition, _:
                if definition.name == name:
                    yield ast.get_docstring(definition) or ""
            case (
                ast.Assign(targets=[ast.Name(assigned)]) | ast.AnnAssign(target=ast.Name(assigned)),
                ast.Expr(ast.Constant(str() as text)),
            ) if assigned == name:
                yield inspect.cleandoc(text)


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))
    for page in sorted(PAGES.glob("*.md")):
        page.write_text(with_table(page), "utf-8")
