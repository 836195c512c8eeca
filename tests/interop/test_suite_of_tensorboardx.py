"""The tests in tensorboardX's source distribution run with our record writer.

Tests that fail even with tensorboardX itself, because they lack a network or another library, may fail here too.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

HERE = Path(__file__).parent
TESTS = Path(sys.prefix) / "originals" / "tensorboardX" / "tests"  # the Makefile puts them there
# The tests of writing events; the others test figures, graphs and embeddings.
FILES = (
    "event_file_writer_test.py", "record_writer_test.py", "test_multiprocess_write.py", "test_record_writer.py",
    "test_summary_writer.py", "test_writer.py",
)  # fmt: skip


def outcomes(folder: Path, *plugin: str) -> dict[str, str]:
    """Return the outcome of each test. The tests are copied, because they write to their own folder."""
    shutil.copytree(TESTS, folder / "tests")
    command = [sys.executable, "-m", "pytest", "-rA", "-q", "-p", "no:cacheprovider", "--continue-on-collection-errors"]
    files = [f"tests/{name}" for name in FILES]
    env = {**os.environ, "PYTHONPATH": str(HERE), "AWS_EC2_METADATA_DISABLED": "true"}
    done = subprocess.run(
        [*command, *plugin, "--rootdir", str(folder), *files],
        cwd=folder,
        env=env,
        capture_output=True,
        text=True,
        timeout=600,
    )
    found = re.findall(r"^(PASSED|FAILED|ERROR|SKIPPED) (tests/\S+)", done.stdout, re.MULTILINE)
    print(done.stdout[-3000:])  # shown if the test fails
    return {test: outcome for outcome, test in found}


@pytest.mark.timeout(600)  # its tests sleep for minutes
def test_tests_passing_on_tensorboardx_pass_on_asyncrec(tmp_path: Path) -> None:
    with ThreadPoolExecutor() as pool:
        theirs = pool.submit(outcomes, tmp_path / "theirs")
        ours = pool.submit(outcomes, tmp_path / "ours", "-p", "installed_tensorboardx")
    passed = {test for test, outcome in theirs.result().items() if outcome == "PASSED"}
    assert len(passed) >= 20
    found = ours.result()
    assert {test: found.get(test) for test in passed} == dict.fromkeys(passed, "PASSED")
