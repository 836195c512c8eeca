"""Scripts for an original library run with only the import changed, print the same output, and leave the same files."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from asyncrec import blocking

SCRIPTS = sorted((Path(__file__).parent / "scripts").glob("*.py"))
IMPORTS = {
    r"^from tensorboardX\.record_writer import": "from asyncrec.compat.tensorboardx import",
    r"^import tensorflow as tf$": "from asyncrec.compat import tensorflow as tf",
}


def run(script: str, folder: Path) -> tuple[str, dict[str, bytes | list[bytes]]]:
    """Return a script's output and the files it leaves: their bytes, or the records of compressed ones."""
    folder.mkdir()
    environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"}
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=folder, env=environment, capture_output=True, text=True, timeout=100
    )
    assert done.returncode == 0, done.stderr
    left: dict[str, bytes | list[bytes]] = {}
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            content = path.read_bytes()
            compressed = content[:2] == b"\x1f\x8b"
            left[str(path.relative_to(folder))] = blocking.read_records(path) if compressed else content
    return done.stdout, left


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_script_behaves_identically_with_changed_import(script: Path, tmp_path: Path) -> None:
    old = script.read_text("utf-8")
    new, changed = old, 0
    for pattern, replacement in IMPORTS.items():
        new, times = re.subn(pattern, replacement, new, flags=re.MULTILINE)
        changed += times
    assert changed == 1
    theirs, ours = run(old, tmp_path / "theirs"), run(new, tmp_path / "ours")
    assert ours == theirs
    assert theirs[0]
