"""Each command has a module in `asyncrec.tools` and one in `asyncrec.cli`, both named after it."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import asyncrec
from asyncrec.cli._installed import COMMANDS

PACKAGE = Path(asyncrec.__file__).parent


def module_of(package: str, command: str) -> Path:
    return PACKAGE / package / f"_{command.replace('-', '_')}.py"


@pytest.mark.parametrize("package", ["cli", "tools"])
@pytest.mark.parametrize("command", COMMANDS)
def test_command_has_module_with_its_name(package: str, command: str) -> None:
    assert module_of(package, command).is_file()


@pytest.mark.parametrize("command", COMMANDS)
def test_command_modules_use_only_public_tools(command: str) -> None:
    """Otherwise, users of the functions could not do everything that the command line can."""
    private = {
        node.module
        for node in ast.walk(ast.parse(module_of("cli", command).read_text("utf-8")))
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("asyncrec.tools.")
    }
    types_only = {"asyncrec.tools._info", "asyncrec.tools._orphans", "asyncrec.tools._verify"}
    assert private <= types_only
