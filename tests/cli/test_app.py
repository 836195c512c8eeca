"""The command group: its start-up time, its version, shell completion, and what happens without typer."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from cli_data import Run

from asyncrec.cli._installed import COMMANDS, SECTIONS


def test_help_lists_every_command(run: Run) -> None:
    out = run("--help").ok()
    assert all(f"{name} " in out for name in COMMANDS)
    assert all(f"{title}:" in out for title in SECTIONS)
    assert "Exit codes" in out


def test_help_imports_no_slow_modules() -> None:
    """Help is printed quickly: importing the modules of all commands would take five times as long."""
    program = """
import sys
from asyncrec.cli import main
assert main(["--help"]) == 0
slow = {"anyio", "asyncio", "numpy", "rich", "pydantic", "google", "typer"} & sys.modules.keys()
assert not slow, slow
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_version_option_prints_version(run: Run) -> None:
    assert run("--version").ok().startswith("asyncrec 0.")


def test_missing_command_shows_list_and_exits_with_2(run: Run) -> None:
    result = run()
    assert result.code == 2
    assert all(f"{name} " in result.out for name in COMMANDS)
    assert "asyncrec COMMAND --help" in result.err


def test_shells_complete_command_names(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("_ASYNCREC_COMPLETE", "complete_bash")
    monkeypatch.setenv("COMP_WORDS", "asyncrec from-")
    monkeypatch.setenv("COMP_CWORD", "1")
    assert run().ok().split() == ["from-csv", "from-folder"]


def test_shells_complete_options(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("_ASYNCREC_COMPLETE", "complete_bash")
    monkeypatch.setenv("COMP_WORDS", "asyncrec verify --ad")
    monkeypatch.setenv("COMP_CWORD", "2")
    assert "--adopt" in run().ok()


@pytest.mark.parametrize(
    ("line", "offered"),
    [
        ("head data/pages --feature ", ["emb", "label", "tags", "text"]),
        ("head data/pages --feature te", ["text"]),
        ("cat data/pages -n 3 --where l", ["label="]),
        ("count data/pages --by ta", ["tags"]),
        ("count data/pages --where te", ["text="]),
        ("dedupe data/pages new --by la", ["label"]),
        ("diff data/pages data/zipped --ignore e", ["emb"]),
        ("filter data/pages new --where ta", ["tags="]),
        ("watch data/pages --by la", ["label"]),
        ("head data/none --feature ", []),
        ("head --feature ", []),
    ],
)
def test_shells_complete_features_and_conditions(
    run: Run, data: Path, monkeypatch: pytest.MonkeyPatch, line: str, offered: list[str]
) -> None:
    monkeypatch.setenv("_ASYNCREC_COMPLETE", "complete_bash")
    monkeypatch.setenv("COMP_WORDS", f"asyncrec {line}")
    monkeypatch.setenv("COMP_CWORD", str(len(f"asyncrec {line}x".split()) - 1))
    assert run().ok().split() == offered


def test_cli_without_typer_names_package_to_install(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("asyncrec.cli.find_spec", {"typer": None}.get)
    result = run("info", "x")
    assert result.code == 2
    assert "pip install 'asyncrec[cli]'" in result.err
