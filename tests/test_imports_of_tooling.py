"""Programs that no test suite runs import only names that exist.

Once, a benchmark imported a private constant that had been renamed. It failed months later, an hour into its run.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import pytest

TESTS = Path(__file__).parent
FOLDERS = ("benchmarks", "engines", "interop", "loaders", "packages", "scale", "torture")
PROGRAMS = sorted(path.relative_to(TESTS).as_posix() for name in FOLDERS for path in (TESTS / name).rglob("*.py"))


def imports(path: Path) -> Iterator[tuple[str, str]]:
    """Yield each ``(module, name)`` imported from asyncrec, including imports inside functions."""
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.ImportFrom) and not node.level and (node.module or "").split(".")[0] == "asyncrec":
            yield from ((str(node.module), each.name) for each in node.names)


def exists(module: str, name: str) -> bool:
    try:
        if hasattr(import_module(module), name):
            return True
        import_module(f"{module}.{name}")
    except ModuleNotFoundError as error:
        return error.name is None or not error.name.startswith("asyncrec")  # a framework that is not installed here
    return True


@pytest.mark.parametrize("program", PROGRAMS)
def test_program_imports_only_existing_names(program: str) -> None:
    assert [each for each in imports(TESTS / program) if not exists(*each)] == []
