"""Each target of the Makefile installs only what it needs, so that a first look at the project is no large download."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """Return a checkout in which no target was made yet."""
    for name in ("Makefile", "asyncrec", "plugins", "requirements", "pyproject.toml", "setup.py"):
        (tmp_path / name).symlink_to(ROOT / name)
    (tmp_path / ".venv").mkdir()
    return tmp_path


def run_by(checkout: Path, target: str) -> str:
    """Return the commands that make would run."""
    return subprocess.run(
        ["make", "--dry-run", target], cwd=checkout, capture_output=True, text=True, check=True
    ).stdout


def installed(commands: str) -> set[str]:
    """Return the requirements that pip would install, without versions and hashes."""
    given = {name for each in re.findall(r"pip install ([^;\n]*)", commands) for name in re.findall(r"-r (\S+)", each)}
    lines = {line for name in given for line in (ROOT / name).read_text("utf-8").splitlines()}
    return {re.split(r"==| \\", line)[0] for line in lines if line and not line.startswith((" ", "#"))}


def test_demo_installs_no_framework_or_test_dependency(checkout: Path) -> None:
    found = installed(run_by(checkout, "demo"))
    assert {"-e .[cli,demo]", "-e plugins/asyncrec-report", "anyio", "typer"} <= found
    assert not found & {"scrapy", "crawlee", "pytest", "mypy", "aiobotocore", "-e plugins/asyncrec-scrapy"}


@pytest.mark.slow
def test_demo_reuses_test_environment_but_tests_extend_demo_environment(checkout: Path) -> None:
    commands = run_by(checkout, "test")
    assert installed(run_by(checkout, "demo")) <= installed(commands)
    assert {"scrapy", "pytest", "mypy", "-e plugins/asyncrec-scrapy"} <= installed(commands)
    assert "touch .venv/.ready .venv/.demo\n" in commands
    (checkout / ".venv/.demo").touch()
    assert "pip install" not in run_by(checkout, "demo")
    assert "pip install" in run_by(checkout, "test")


def test_every_plugin_is_listed_in_requirements() -> None:
    plugins = {f"-e {path.parent.relative_to(ROOT)}" for path in ROOT.glob("plugins/*/pyproject.toml")}
    assert plugins <= set((ROOT / "requirements/ours.txt").read_text("utf-8").splitlines())


@pytest.mark.parametrize("name", ["ci.txt", "demo.txt", "dist.txt", "pip.txt", "wheels.txt"])
def test_locked_requirements_have_version_and_hash(name: str) -> None:
    text = (ROOT / "requirements/locked" / name).read_text("utf-8").replace("\\\n", "")
    requirements = [line for line in text.splitlines() if not line.startswith("#")]
    assert len(requirements) > 1
    assert [line for line in requirements if "==" not in line or "--hash=sha256:" not in line] == []


def test_demo_uses_same_package_versions_as_tests() -> None:
    demo, tests = ((ROOT / "requirements/locked" / name).read_text("utf-8") for name in ("demo.txt", "ci.txt"))
    assert set(re.findall(r"^\S+==\S+", demo, re.MULTILINE)) <= set(re.findall(r"^\S+==\S+", tests, re.MULTILINE))
