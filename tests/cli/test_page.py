"""The commands in the command-line documentation work exactly as written when run in order."""

from __future__ import annotations

import ast
import re
import shlex
from pathlib import Path

import anyio
import pytest
from cli_data import Run

from asyncrec.cli._installed import COMMANDS

PAGE = Path(__file__).parents[2] / "docs/how-to/command-line.md"
PYTHON = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
BLOCK = re.compile(r"(?:^<!-- exit (?P<code>\d+) -->\n)?^```sh\n(?P<lines>.*?)^```$", re.MULTILINE | re.DOTALL)


def commands(text: str) -> list[tuple[int, list[str]]]:
    """Return each command line, with the exit code that the page states for it when its files do not exist."""
    return [
        (int(block["code"] or 0), words[1:])
        for block in BLOCK.finditer(text)
        for line in block["lines"].splitlines()
        if (words := shlex.split(line, comments=True)) and words[0] == "asyncrec" and words[1] in COMMANDS
    ]


async def _something_to_begin_with() -> None:
    """Write the data set that the page starts with; a tenth of its records is enough."""
    program = PYTHON.findall(PAGE.read_text("utf-8"))[0].replace("20_000", "2_000")
    await eval(compile(program, PAGE.name, "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT), {})


@pytest.mark.slow
def test_commands_on_page_behave_as_described(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    anyio.run(_something_to_begin_with)
    for code, argv in commands(PAGE.read_text("utf-8")):
        result = run(*argv)
        assert result.code == code, (argv, result)


def test_every_command_is_documented_on_page() -> None:
    text = PAGE.read_text("utf-8")
    assert [name for name in COMMANDS if f"asyncrec {name}" not in text and f"`{name}`" not in text] == []
