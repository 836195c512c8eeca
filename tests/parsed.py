"""The sources of the library and its plugins as syntax trees, parsed and walked once per test process."""

from __future__ import annotations

import ast
import gc
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple, TypeVar

Node = TypeVar("Node", bound=ast.AST)

ROOT = Path(__file__).parent.parent


class Module(NamedTuple):
    name: str  # the path relative to ROOT
    text: str
    tree: ast.Module
    nodes: list[ast.AST]


def parsed(text: str, name: str = "") -> Module:
    tree = ast.parse(text)
    return Module(name, text, tree, list(ast.walk(tree)))


def paths(*patterns: str) -> list[Path]:
    return sorted(path for each in patterns for path in ROOT.glob(each) if not path.name.endswith("_pb2.py"))


@cache
def modules() -> list[Module]:
    """Parse all modules of the library and its plugins, but only when first called: every test imports this."""
    gc.disable()  # these half a million objects would otherwise be scanned again and again
    sources = paths("asyncrec/**/*.py", "plugins/*/asyncrec_*/**/*.py")
    found = [parsed(path.read_text("utf-8"), path.relative_to(ROOT).as_posix()) for path in sources]
    gc.freeze()
    gc.enable()
    return found


def nodes(*kinds: type[Node]) -> Iterator[tuple[str, Node]]:
    """Yield every node of the given kinds, with the name of its module."""
    return ((module.name, node) for module in modules() for node in module.nodes if isinstance(node, kinds))
