"""A short version of ``make torture``: each test runs in its own process, which has no threads and so may fork."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

RUN = Path(__file__).parent.parent / "torture" / "run.py"


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("module", "rounds"),
    [("kill", 50), ("lost_machines", 40), ("consumers", 8), ("crawl", 30), ("operations", 10), ("power", 50)],
)
def test_torture_rounds_lose_no_records(module: str, rounds: int) -> None:
    command = [sys.executable, str(RUN), "--only", module, "--rounds", str(rounds), "--seed", "1"]
    # After kill -9, files survive in the page cache on any file system; in memory, thousands of fsyncs take no time.
    folder = {"TMPDIR": "/dev/shm"} if os.access("/dev/shm", os.W_OK) else {}
    done = subprocess.run(command, capture_output=True, text=True, timeout=280, check=False, env=os.environ | folder)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "nothing was lost" in done.stdout
