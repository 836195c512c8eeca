"""Run every command in every environment: ``python tests/cli/tried.py`` prints a table of the results.

This is not part of `make test`, because it starts about three hundred processes. Each command runs in pseudo-terminals
of 40, 80 and 200 columns, with its output piped, with a pipe whose reader is gone, with ``NO_COLOR``, and with bad
input: a missing path, a damaged file, a file of another kind, and an unknown flag. A cell contains ``ok``, an exit
code, or, in bold, what was wrong.

The following is wrong: Python syntax in the output; a line wider than the terminal that has more than three words
(paths, options with their choices, and examples are not cut); colour where it is not wanted; and exit code 4, an
internal error.
"""

from __future__ import annotations

import os
import pty
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from cli_data import write_examples
from test_terminal import CASES

COLOUR = re.compile(r"\x1b\[[0-9;]*m")
MOVES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|\r")
PYTHON = re.compile(r"Traceback|bug in asyncrec|\bNoneType\b|\w+='|object at 0x")
# Commands that need no existing path, or that create the path they are given.
MAKES = {"doctor"}
COMMAND = [sys.executable, "-m", "asyncrec.cli"]


def folder_of(root: Path) -> Path:
    """Create a new folder with the input of all commands, because some commands write to it."""
    folder = root / "made"
    write_examples(folder)
    return folder


def screen(folder: Path, argv: list[str], columns: int, **environment: str) -> tuple[int, str]:
    """Return the exit code and the output to a terminal, including what is printed to standard error."""
    outer, inner = pty.openpty()
    environment = {**os.environ, "COLUMNS": str(columns), "TERM": "xterm", **environment}
    with subprocess.Popen(
        [*COMMAND, *argv], cwd=folder, stdin=subprocess.DEVNULL, stdout=inner, stderr=subprocess.PIPE, env=environment
    ) as process:
        os.close(inner)
        said = b""
        try:
            while block := os.read(outer, 1 << 16):
                said += block
        except OSError:  # Linux raises this when the other end is closed
            pass
        assert process.stderr is not None
        errors = process.stderr.read()
        code = process.wait()
    os.close(outer)
    return code, said.decode().replace("\r\n", "\n") + errors.decode()


def wide(text: str, columns: int) -> list[str]:
    lines = MOVES.sub("", text).split("\n")
    return [line for line in lines if len(line) > columns and len(line.split()) > 3]


def judged(code: int, text: str, *, good: tuple[int, ...] = (0,), columns: int = 0, colour: bool = True) -> str:
    if found := PYTHON.search(text):
        return f"**Python: {found[0]}**"
    if code not in good:
        return f"**{code}**: {text.strip().splitlines()[-1][:80] if text.strip() else 'nothing said'}"
    if columns and (lines := wide(text, columns)):
        return f"**{len(lines)} too wide**"
    if not colour and COLOUR.search(text):
        return "**colour**"
    return "ok" if code == 0 else f"{code}"


def piped(folder: Path, argv: list[str]) -> str:
    done = subprocess.run([*COMMAND, *argv], cwd=folder, capture_output=True, text=True, check=False)
    return judged(done.returncode, done.stdout + done.stderr, good=(0, 1), colour=False)


def gone(folder: Path, argv: list[str]) -> str:
    """Run a command with its output in a pipe whose reader was closed before anything is written."""
    reader, writer = os.pipe()
    os.close(reader)
    with subprocess.Popen([*COMMAND, *argv], cwd=folder, stdout=writer, stderr=subprocess.PIPE, text=True) as process:
        os.close(writer)
        assert process.stderr is not None
        said = process.stderr.read()
        code = process.wait()
    return judged(code, said, good=(0, 1, 141))


def bad(folder: Path, name: str, argv: list[str]) -> str:
    """Return the exit code for each kind of bad input: 2 is wrong usage, 1 damage, and 3 an error of the store."""
    kinds = {"missing": "not/there", "damaged": "damaged.tfrecord", "other": "table.csv"}
    found = []
    for kind, path in kinds.items():
        if name in MAKES:
            continue
        given = [path, *argv[1:]]
        code, text = screen(folder, [name, *given], 80)
        wrong = judged(code, text, good=(0, 1, 2, 3))
        found.append(f"{kind} {wrong if '*' in wrong else code}")
    code, text = screen(folder, [name, *argv, "--no-such-flag"], 80)
    wrong = judged(code, text, good=(2,))
    return ", ".join([*found, f"flag {wrong if '*' in wrong else code}"])


def row(name: str, argv: list[str], made: Path, root: Path) -> str:
    good = (0, 1) if name == "repair" else (0,)

    def new() -> Path:
        folder = Path(tempfile.mkdtemp(dir=root)) / "w"
        shutil.copytree(made, folder)
        return folder

    def terminal(columns: int, **environment: str) -> str:
        code, text = screen(new(), [name, *argv], columns, **environment)
        whole = "--json" in argv  # JSON lines are never cut
        return judged(code, text, good=good, columns=0 if whole else columns, colour="NO_COLOR" not in environment)

    cells: list[Callable[[], str]] = [
        lambda: terminal(40), lambda: terminal(80), lambda: terminal(200), lambda: piped(new(), [name, *argv]),
        lambda: gone(new(), [name, *argv]), lambda: terminal(80, NO_COLOR="1"), lambda: bad(new(), name, argv),
    ]  # fmt: skip
    return f"| `{name}` | {' | '.join(cell() for cell in cells)} |"


def main() -> None:
    only = sys.argv[1:] or list(CASES)
    with tempfile.TemporaryDirectory(dir="/dev/shm" if os.path.isdir("/dev/shm") else None) as temporary:
        root = Path(temporary)
        made = folder_of(root)
        print("| | 40 | 80 | 200 | piped | reader gone | `NO_COLOR` | bad input |\n|---|---|---|---|---|---|---|---|")
        with ThreadPoolExecutor(2) as pool:
            for line in pool.map(lambda name: row(name, CASES[name][0], made, root), only):
                print(line, flush=True)


if __name__ == "__main__":
    main()
