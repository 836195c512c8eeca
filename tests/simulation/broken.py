"""Remove one rule of asyncrec in a copy of its source tree. The simulation must detect that the rule is missing.

`RULES` are the patches in ``removed_rules``, each named after the rule that it removes. Most rules fixed a fault that
the simulation found (docs/design/history.md); the others have always held. ``make simulate ARGS=--fixes`` prints the
number of worlds needed to detect each removal.

There are no patches for rules that the simulation cannot test: that indexes and keys identify their maker (the claim
alone already keeps two makers apart), that a copy shares no names with a living writer (no plan gives two processes
the same id), and that `recover` continues after a job that fails (worlds recover anyway). tests/shards/test_jobs.py
tests these.

To create a patch, or to recreate one that no longer applies, change ``asyncrec/`` by hand, and run ``git diff -U1
asyncrec > tests/simulation/removed_rules/the-rule.patch && git checkout asyncrec``.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent
RULES = {path.stem.replace("-", " "): path for path in sorted(Path(__file__).parent.glob("removed_rules/*.patch"))}


def apply(rule: str, tree: Path, *options: str) -> None:
    """Remove a rule from the tree in a folder. With ``--check``, only check that the patch applies.

    Raises:
        ValueError: the patch does not apply to this tree.
    """
    outside = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    command = ["git", "apply", *options, str(RULES[rule])]
    done = subprocess.run(command, cwd=tree, env=outside, capture_output=True, text=True, check=False)
    if done.returncode:
        raise ValueError(f"{RULES[rule].name} does not apply any more, see {__file__}: {done.stderr.strip()}")


def find(rule: str, first: int, most: int, *arguments: str) -> tuple[int, str] | None:
    """Try up to ``most`` worlds without the rule. Return the seed of the first that fails, and the promise it broke.

    ``arguments`` are arguments of `simulation.run` that determine which worlds are drawn.
    """
    with tempfile.TemporaryDirectory(prefix="asyncrec-without-") as folder:
        shutil.copytree(ROOT / "asyncrec", Path(folder, "asyncrec"))
        apply(rule, Path(folder))
        done = subprocess.run(
            [sys.executable, "-m", "simulation.run", "--first", f"--seed={first}", f"--worlds={most}", *arguments],
            cwd=folder,
            env={**os.environ, "PYTHONPATH": f"{folder}{os.pathsep}{ROOT / 'tests'}"},
            capture_output=True,
            text=True,
            check=False,
        )
    if done.returncode == 0:
        return None
    told = re.search(r"^seed (\d+): (.*?):", done.stdout, re.MULTILINE)
    if told is None:
        raise RuntimeError(f"without {rule!r} the simulation itself failed: {done.stderr.strip()}")
    return int(told[1]), told[2]
