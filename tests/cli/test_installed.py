"""Plugin commands are listed, run, rejected if invalid, and suggested if missing."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from cli_data import Run
from plugin_modules import found, plugin

from asyncrec.cli._installed import INSTALLED, Installed
from asyncrec.plugins import Command, hookimpl
from asyncrec.plugins._manager import Plugins


def greet(debug: bool = False) -> int:
    """Say something."""
    print("hello")
    return 0


@pytest.fixture
def there(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return ``there(plugin, ...)``, which makes the given plugins the only installed ones."""

    def there(*modules: ModuleType) -> Plugins:
        plugins = found(*modules)
        monkeypatch.setattr(INSTALLED, "_plugins", plugins)
        monkeypatch.setattr(INSTALLED, "_of_plugins", None)
        return plugins

    return there


def test_plugin_command_appears_in_help_and_runs(run: Run, there: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    module = plugin("commands", "polite", Command("greet-all", "say something", "polite:greet", section="Inspect"))
    module.greet = greet  # type: ignore[attr-defined]  # as a module has it
    monkeypatch.setitem(sys.modules, "polite", module)
    there(module)
    look = run("--help").ok().partition("Check and repair")[0]
    assert "greet-all" in look
    assert "say something" in look
    assert run("greet-all").ok() == "hello\n"
    assert "Say something." in run("greet-all", "--help").ok()


def test_uninstalled_command_names_package_to_install(run: Run, there: Any) -> None:
    there()
    assert "report " not in run("--help").ok()
    result = run("report", "data")
    assert result.code == 2
    assert "pip install asyncrec-report" in result.err


def test_disabled_plugin_command_names_disabling_variable(run: Run, there: Any) -> None:
    there().disabled.append("report")
    assert "ASYNCREC_DISABLE_PLUGINS leaves out: report" in run("report").err


@pytest.mark.parametrize(
    ("guess", "meant"),
    [
        ("stats", "info"),
        ("export", "convert"),
        ("get", "cat --key"),
        ("rm", "docs/how-to/rotate-by-day.md"),
    ],
)
def test_misspelt_command_error_names_intended_command(run: Run, guess: str, meant: str) -> None:
    result = run(guess, "data/pages")
    assert result.code == 2
    assert f"there is no command '{guess}'; see {meant}" in result.err


def test_guessed_command_names_do_not_exist(run: Run) -> None:
    assert not [name for name in ("rm", "show", "stats", "list") if run(name, "--help").code == 0]


def test_unknown_command_exits_as_wrong_usage(run: Run, there: Any) -> None:
    there()
    assert "No such command" in run("nothing").err


@pytest.mark.parametrize(
    ("command", "says"),
    [
        ("report", "is not a Command"),
        (Command("verify", "words", "a:b"), "built in"),
        (Command("No Name", "words", "a:b"), "lower-case"),
        (Command("a", "words", "a.b"), "module:function"),
        (Command("a", "", "a:b"), "a single line of text"),
        (Command("a", "red \x1b[31m", "a:b"), "a single line of text"),
        (Command("a", 5, "a:b"), "a single line of text"),  # type: ignore[arg-type]  # the point of the test
    ],
)
def test_invalid_plugin_command_is_named_without_blocking_others(command: object, says: str) -> None:
    odd = plugin("commands", "odd", Command("b", "never taken", "a:b"), command)
    plugins = found(odd, plugin("commands", "good", Command("c", "w", "a:b")))
    names = set(Installed(plugins).all())
    assert "c" in names
    assert "b" not in names, "of one plugin it is all or nothing"
    assert "'odd'" in str(plugins.broken["odd"])
    assert says in str(plugins.broken["odd"])


def test_failing_hook_is_named_and_help_still_shown(run: Run, there: Any) -> None:
    failing = ModuleType("failing")

    def fail() -> list[Command]:
        raise RuntimeError("at once\x1b[1m")

    failing.asyncrec_commands = hookimpl(fail)  # type: ignore[attr-defined]  # as plugins are made
    there(failing, plugin("commands", "good", Command("c", "what it does", "a:b")))
    result = run("--help")
    assert "what it does" in result.ok()
    assert "'failing' could not be loaded" in result.err
    assert "\x1b" not in result.err


def test_first_plugin_keeps_contested_command_name() -> None:
    plugins = found(
        plugin("commands", "b", Command("c", "of b", "a:b")), plugin("commands", "a", Command("c", "of a", "a:b"))
    )
    assert Installed(plugins).all()["c"].words == "of a"
    assert "another plugin already has" in str(plugins.broken["b"])


def test_builtin_command_loads_no_plugin() -> None:
    plugins = Plugins()
    assert Installed(plugins).find("verify") is not None
    assert not plugins.loaded


def test_plugin_on_path_is_found_by_metadata(tmp_path: Path) -> None:
    (tmp_path / "polite-1.dist-info").mkdir()
    (tmp_path / "polite-1.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\nName: polite\nVersion: 1\n")
    (tmp_path / "polite-1.dist-info" / "entry_points.txt").write_text("[asyncrec]\npolite = polite\nbad = nowhere\n")
    (tmp_path / "polite.py").write_text(
        "from asyncrec.plugins import Command, hookimpl\n"
        "@hookimpl\n"
        "def asyncrec_commands():\n"
        "    return [Command('greet', 'say something', 'polite_command:command')]\n"
    )
    program = "def command(debug: bool = False) -> int:\n    print('hello')\n    return 0\n"
    (tmp_path / "polite_command.py").write_text(program)
    environment = {**os.environ, "PYTHONPATH": str(tmp_path), "ASYNCREC_DISABLE_PLUGINS": ""}

    def asyncrec(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "asyncrec.cli", *arguments]
        return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)

    page = asyncrec("--help")
    assert "Plugins:\n  greet " in page.stdout
    assert "the plugin 'bad' could not be loaded" in page.stderr
    assert asyncrec("greet").stdout == "hello\n"
