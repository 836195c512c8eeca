"""Fixtures of the command-line tests: running commands in this process, and data to run them on."""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import anyio
import pytest

# Test modules are imported by path, but helper modules are imported by name.
sys.path.insert(0, str(Path(__file__).parents[1] / "shards"))
sys.path.insert(0, str(Path(__file__).parents[1] / "tools"))
sys.path.insert(0, str(Path(__file__).parents[1] / "servers"))
sys.path.insert(0, str(Path(__file__).parent))

from cli_data import Result, Run, write_data  # importable because of the lines above
from warm_python import WarmPython

import asyncrec.tools
from asyncrec.cli import main


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    """Return ``run("info", path)``, which runs a command in this process and checks that no traceback is shown."""

    def run(*argv: object) -> Result:
        code = main([str(each) for each in argv])
        captured = capsys.readouterr()
        if "--debug" not in argv:
            assert "Traceback" not in captured.out + captured.err
        return Result(code, captured.out, captured.err)

    return run


@pytest.fixture(scope="session")
def warm() -> Iterator[WarmPython]:
    """Return a launcher for processes that have already imported all modules of the commands."""
    modules = [
        f"{package.__name__}.{path.stem}"
        for package in (asyncrec.cli, asyncrec.tools)
        for path in sorted(Path(str(package.__file__)).parent.glob("_[a-z]*.py"))
    ]
    with (
        tempfile.TemporaryDirectory(prefix="warm-") as folder,
        WarmPython(f"{folder}/socket", *modules, "typer._adapters", "anyio._backends._asyncio") as python,
    ):
        yield python


@pytest.fixture(scope="session")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("written") / "data"
    anyio.run(write_data, str(folder))
    return folder


@pytest.fixture
def data(written: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Copy the test data to ``data`` in a new current folder."""
    shutil.copytree(written, tmp_path / "data")
    monkeypatch.chdir(tmp_path)
    return Path("data")


@pytest.fixture
def damaged(data: Path) -> Path:
    """Write a file with a flipped bit in the data of its third record."""
    content = bytearray((data / "plain.tfrecord").read_bytes())
    content[2 * 23 + 14] ^= 1
    path = data / "damaged.tfrecord"
    path.write_bytes(content)
    return path
