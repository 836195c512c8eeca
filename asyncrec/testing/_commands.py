"""`CommandConformance`: the pytest cases that a plugin's command must pass.

In a plugin's tests::

    class TestSizes(CommandConformance):
        plugin = "asyncrec_sizes"        # the module that the entry point names
        name = "sizes"
        arguments = ("PATH",)            # the command's arguments; PATH stands for its input

The command runs in an empty folder, on a data set of 30 records with control characters. Override `make_data` to write
a different data set.
"""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio
import pytest

import asyncrec
from asyncrec.cli import main
from asyncrec.cli._installed import INSTALLED, Installed, function_of
from asyncrec.plugins._kinds import Command
from asyncrec.testing._kit import PluginKit, nothing_to_try

_CONTROL = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f]")


@dataclass(frozen=True)
class _Result:
    code: int
    out: str
    err: str


class CommandConformance(PluginKit):
    """The cases that every command must pass. Derive from this class, and set ``plugin`` and ``name``.

    Attributes:
        name: the name of the command.
        arguments: the arguments of a run that exits with code 0. ``"PATH"`` stands for the command's input, and is
            absent if the command has no input.
    """

    name: str
    arguments: Sequence[str] = ("PATH",)

    async def make_data(self, path: str) -> None:
        """Write the data set that the command reads to ``path``."""
        schema = asyncrec.Schema({"label": asyncrec.FixedLen((), "int64"), "text": asyncrec.FixedLen((), "bytes")})
        async with asyncrec.open_sharded_writer(path, max_shard_records=10, schema=schema) as writer:
            for number in range(30):
                features = {"label": number % 3, "text": f"text {number} \x1b[31mred\x07"}
                await writer.write(asyncrec.encode_example(features), key=f"key {number}")

    @pytest.fixture(autouse=True)
    def _set_up(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
        """Install only this plugin, change to an empty folder, and capture output."""
        monkeypatch.chdir(tmp_path)
        monkeypatch.setattr(INSTALLED, "_plugins", self.plugins())
        monkeypatch.setattr(INSTALLED, "_of_plugins", None)
        self._capsys = capsys

    def run(self, *arguments: str) -> _Result:
        """Run ``asyncrec NAME ARGUMENTS`` in this process."""
        self._capsys.readouterr()
        code = main([self.name, *arguments])
        captured = self._capsys.readouterr()
        return _Result(code, captured.out, captured.err)

    def called(self, path: str) -> list[str]:
        """Return the arguments with ``path`` in place of PATH."""
        return [path if each == "PATH" else each for each in self.arguments]

    def function(self) -> Callable[..., int]:
        command = INSTALLED.find(self.name)
        assert command is not None
        return function_of(command)

    def test_registration(self) -> None:
        """The command's name is unique, its summary fits on a line, and its target can be imported."""
        plugins = self.plugins()
        command = Installed(plugins).all().get(self.name)
        assert plugins.broken == {}
        assert isinstance(command, Command), f"{self.plugin} returns no command {self.name!r} from asyncrec_commands"
        assert len(command.words) <= 80, "command.words must have at most 80 characters"
        assert callable(function_of(command))

    def test_command_in_main_help(self) -> None:
        assert main(["--help"]) == 0
        assert f"\n  {self.name} " in self._capsys.readouterr().out

    def test_own_help(self) -> None:
        """The help text is the docstring of the command's function."""
        said = inspect.getdoc(self.function())
        assert said, f"the function of {self.name!r} has no docstring"
        result = self.run("--help")
        assert result.code == 0
        assert said.split()[0] in result.out

    def test_unknown_flag(self) -> None:
        result = self.run(*self.called("x"), "--no-such-flag")
        assert result.code == 2, result
        assert "--no-such-flag" in result.err

    def test_debug_flag(self) -> None:
        """Like every command, the command accepts ``--debug``, which shows the traceback of an error."""
        assert "--debug" in self.run("--help").out

    def test_successful_run(self) -> None:
        self.make()
        result = self.run(*self.called("data/pages"))
        assert result.code == 0, result

    def test_control_characters_escaped(self) -> None:
        """Control characters in records, names and messages are escaped in the output.

        `asyncrec.cli.say`, ``table`` and ``print_json`` do this.
        """
        self.make()
        for path in ("data/pages", "nothing\x1b[31m/there"):
            result = self.run(*self.called(path))
            assert not _CONTROL.search(result.out), ascii(result.out)
            assert not _CONTROL.search(result.err), ascii(result.err)

    def test_missing_path(self) -> None:
        """If the path does not exist, the exit code is 3, or 1 or 2 with a meaning that the command defines.

        The error message names the path, and contains no traceback.
        """
        if "PATH" not in self.arguments:
            nothing_to_try("arguments has no PATH, so the command reads nothing")
        result = self.run(*self.called("nothing/there"))
        assert result.code in (1, 2, 3), result
        assert "nothing/there" in result.err
        assert "Traceback" not in result.err
        assert len(result.err.splitlines()) <= 3

    def test_json_output(self) -> None:
        """If the command accepts ``--json``, each line of its output is one JSON value in ASCII."""
        if "json" not in inspect.signature(self.function()).parameters:
            nothing_to_try("the command has no option --json")
        self.make()
        result = self.run(*self.called("data/pages"), "--json")
        assert result.code == 0, result
        assert result.out.isascii()
        values: list[Any] = [json.loads(line) for line in result.out.splitlines()]
        assert values

    def make(self) -> None:
        """Write the command's input to ``data/pages``."""
        if "PATH" in self.arguments:
            anyio.run(self.make_data, "data/pages")
