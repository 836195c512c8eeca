"""`tests/torture/run.py` can run modules that start further processes, and counts what these processes did."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

RUN = Path(__file__).with_name("run.py")


@pytest.mark.slow
def test_processes_of_compacting_write_and_lose_nothing() -> None:
    """The processes once failed to import their function's module, so nothing was tested."""
    command = [sys.executable, RUN, "--only", "compacting", "--rounds", "1", "--seed", "7"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=110)
    assert done.returncode == 0, done.stdout + done.stderr
    rows = re.findall(r"^(\S.*?)  +([\d,]+) +(\d+) +[\d.]+ +7$", done.stdout, re.MULTILINE)
    tried = {what.split()[0]: int(count.replace(",", "")) for what, count, _ in rows}
    assert tried.keys() == {"compact", "delete", "4"}
    assert tried["4"] > 0
