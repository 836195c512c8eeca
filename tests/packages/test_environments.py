"""A target of the Makefile installs what it needs: a first look at the project is no large download."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """One where nothing was made yet."""
    for name in ("Makefile", "asyncrec", "plugins", "requirements", "pyproject.toml", "setup.py"):
        (tmp_path / name).symlink_to(ROOT / name)
    (tmp_path / ".venv").mkdir()
    return tmp_path


def run_by(checkout: Path, target: str) -> str:
    """What make would run."""
    return subprocess.run(
        ["make", "--dry-run", target], cwd=checkout, capture_output=True, text=True, check=True
    ).stdout


def installed(commands: str) -> set[str]:
    """What those of them that install are given, but for what installs and builds."""
    given = " ".join(re.findall(r"pip install --quiet ([^;\n]*)", commands))
    tools = {"pip>=25.1", "setuptools>=77"}
    found = re.findall(r"(?<!\S)(?:--constraint \S+|--group (\S+)|-e '?([^\s']+)'?|'?([^-\s'][^\s']*)'?)", given)
    return {one for each in found for one in each if one} - tools


def test_the_demo_installs_no_framework_and_nothing_that_only_tests_need(checkout: Path) -> None:
    ours = {".", "asyncrec[cli,demo]", "plugins/asyncrec-report", "asyncrec-report"}
    assert installed(run_by(checkout, "demo")) == ours


def test_the_demo_needs_nothing_more_where_the_tests_ran_but_the_tests_where_the_demo_did(checkout: Path) -> None:
    commands = run_by(checkout, "test")
    scrapy = {"plugins/asyncrec-scrapy", "asyncrec-scrapy"}
    assert {"test", ".", "asyncrec[cli,demo]", "plugins/asyncrec-report", "asyncrec-report"} | scrapy <= installed(
        commands
    )
    assert "touch .venv/.ready .venv/.demo\n" in commands
    (checkout / ".venv/.demo").touch()
    assert "pip install" not in run_by(checkout, "demo")
    assert "pip install" in run_by(checkout, "test")
