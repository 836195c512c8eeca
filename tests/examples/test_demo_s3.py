"""The S3 demo, run as by `make demo-s3`: it starts its own store, and a second run continues the first."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

DEMO = Path(__file__).parents[2] / "examples" / "demo_s3.py"
PATIENCE = 100  # in seconds, to detect a hang; a run takes about ten


@pytest.mark.slow
def test_second_run_continues_in_same_store(tmp_path: Path) -> None:
    command = [sys.executable, str(DEMO), "--pages", "20"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    first, _, second = done.stdout.partition("Once more")
    assert "20 records" in first
    assert "520 records" in second
    for run in (first, second):
        assert "held for" in run
        assert "as many as the manifest" in run
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_invalid_option_ends_demo_at_once(tmp_path: Path) -> None:
    command = [sys.executable, str(DEMO), "--pages", "0"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert done.returncode == 2
    assert "--pages: at least 1" in done.stderr
    assert "Once more" not in done.stdout
