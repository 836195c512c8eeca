"""asyncrec supports only POSIX systems: the metadata say so, and there is no code for other platforms."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).parent.parent

_GUARD = re.compile(r"\bos\.name\b|\bwin32\b|\bhasattr\(os,|\bplatform\.system\b|\bmsvcrt\b")


def test_every_distribution_declares_posix() -> None:
    files = [ROOT / "pyproject.toml", *ROOT.glob("plugins/*/pyproject.toml")]
    declared = {file: tomllib.loads(file.read_text("utf-8"))["project"].get("classifiers", ()) for file in files}
    assert [file for file, classifiers in declared.items() if "Operating System :: POSIX" not in classifiers] == []


def test_code_contains_no_platform_guards() -> None:
    files = [*ROOT.glob("asyncrec/**/*.py"), *ROOT.glob("plugins/*/asyncrec_*/**/*.py")]
    assert [file for file in files if _GUARD.search(file.read_text("utf-8"))] == []


def test_platform_guards_are_detected() -> None:
    for line in ('if os.name == "nt":', 'if sys.platform == "win32":', 'if hasattr(os, "register_at_fork"):'):
        assert _GUARD.search(line)
