"""Fixtures that run the command line in this process, and data for it."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import anyio
import pytest

import asyncrec
from asyncrec.cli import main

sys.path.insert(0, str(Path(__file__).parent))  # tests are imported by path, helpers by name


@dataclass(frozen=True)
class Result:
    code: int
    out: str
    err: str


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Callable[..., Result]:
    """Return ``run("report", path)``, which runs a command and checks that no traceback is shown."""

    def run(*argv: object) -> Result:
        code = main([str(each) for each in argv])
        captured = capsys.readouterr()
        assert "Traceback" not in captured.out + captured.err
        return Result(code, captured.out, captured.err)

    return run


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Write a plain file of five records to ``data`` in a new current folder."""
    monkeypatch.chdir(tmp_path)
    Path("data").mkdir()
    anyio.run(asyncrec.write_records, "data/plain.tfrecord", [b"hello %d" % n for n in range(5)])
    return Path("data")


@pytest.fixture
def damaged(data: Path) -> Path:
    """Write a file with a flipped bit in the data of its third record."""
    content = bytearray((data / "plain.tfrecord").read_bytes())
    content[2 * 23 + 14] ^= 1
    path = data / "damaged.tfrecord"
    path.write_bytes(content)
    return path
