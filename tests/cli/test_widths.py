"""Output for people fits terminals of 40, 80 and 200 columns; in a pipe, lines are complete and uncoloured."""

from __future__ import annotations

import os
import pty
import re
import subprocess
import sys
from pathlib import Path

import anyio
import pytest
from cli_data import write_data
from warm_python import WarmPython

# Guards against a hang, even on a busy machine, in seconds.
LIMIT = 200.0
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
_OTHER = re.compile(r"\x1b(?!\[[0-9;]*m)")

COMMANDS = {
    "info": ["info", "data/pages"],
    "ls": ["ls", "data"],
    "head": ["head", "data/pages", "-n", "1"],
    "sample": ["sample", "data/pages", "-n", "1"],
    "count": ["count", "data", "--shards"],
    "schema": ["schema", "data/pages"],
    "verify": ["verify", "data"],
    "diff": ["diff", "data/pages", "data/plain.tfrecord"],
    "filter --help": ["filter", "--help"],
    "--help": ["--help"],
}


def screen(warm: WarmPython, folder: Path, argv: list[str], columns: int, **environment: str) -> str:
    """Return the output of a command in a terminal with this number of columns."""
    outer, inner = pty.openpty()
    with open(os.devnull, "r+b", 0) as nothing:
        process = warm.start(
            "asyncrec.cli",
            *argv,
            folder=folder,
            stdin=nothing.fileno(),
            stdout=inner,
            stderr=nothing.fileno(),  # its progress bar would move the cursor
            environment=os.environ | {"COLUMNS": str(columns), "TERM": "xterm"} | environment,
        )
    os.close(inner)
    said = b""
    while block := _read(outer):
        said += block
    process.wait(LIMIT)
    os.close(outer)
    return said.decode().replace("\r\n", "\n")


@pytest.fixture
def command(warm: WarmPython, tmp_path: Path) -> str:
    """Return the path of a script that runs the command, for use in a shell."""
    script = tmp_path / "asyncrec"
    script.write_text(warm.script("asyncrec.cli"))
    script.chmod(0o755)
    return str(script)


def bash(folder: Path, program: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["bash", "-c", program], cwd=folder, capture_output=True, text=True, timeout=LIMIT, check=False
    )


def _read(terminal: int) -> bytes:
    try:
        return os.read(terminal, 1 << 16)
    except OSError:  # Linux raises this when the other end is closed
        return b""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("widths")
    anyio.run(write_data, str(folder / "data"))
    return folder


@pytest.mark.slow
@pytest.mark.parametrize("columns", [40, 80, 200])
@pytest.mark.parametrize("name", COMMANDS)
def test_output_lines_fit_terminal_width(warm: WarmPython, folder: Path, name: str, columns: int) -> None:
    text = screen(warm, folder, COMMANDS[name], columns)
    assert text.strip()
    assert "Traceback" not in text
    assert not _OTHER.search(text), "colours, and nothing else that a terminal acts on"
    lines = _COLOUR.sub("", text).split("\n")
    # Text that users copy is never truncated: paths, options with their choices, and the examples in help.
    pasted = [at for at, line in enumerate(lines) if line.strip() == "Example:"]
    long = [line for at, line in enumerate(lines) if len(line) > columns and at - 1 not in pasted]
    assert [line for line in long if len(line.split()) > 3] == []


def test_colours_appear_only_on_terminals_that_support_them(warm: WarmPython, folder: Path) -> None:
    assert _COLOUR.search(screen(warm, folder, COMMANDS["verify"], 80))
    assert not _COLOUR.search(screen(warm, folder, COMMANDS["verify"], 80, NO_COLOR="1"))
    assert not _COLOUR.search(screen(warm, folder, COMMANDS["verify"], 80, TERM="dumb"))


def test_piped_output_has_full_lines_without_colours(folder: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "asyncrec.cli", *COMMANDS["info"]],
        cwd=folder,
        capture_output=True,
        text=True,
        check=True,
        timeout=LIMIT,
        env=os.environ | {"COLUMNS": "40"},
    )
    assert "\x1b" not in done.stdout
    assert "writer  " in done.stdout, "a table, however wide"


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", ">&- 2>&-", "<&- >&- 2>&-"])
def test_command_tolerates_closed_standard_descriptors(folder: Path, closed: str) -> None:
    before = {path: path.read_bytes() for path in (folder / "data").rglob("*") if path.is_file()}
    program = f"{sys.executable} -m asyncrec.cli cat data/pages --json {closed}"
    done = subprocess.run(
        ["bash", "-c", program], cwd=folder, capture_output=True, text=True, timeout=LIMIT, check=False
    )
    assert done.returncode == (3 if ">&-" in closed.replace("2>&-", "") else 0), done
    assert "bug in asyncrec" not in done.stderr
    assert {path: path.read_bytes() for path in (folder / "data").rglob("*") if path.is_file()} == before


@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.parametrize("argv", [["--help"], ["info", "data/pages"], ["cat", "data/pages"], ["filter", "--help"]])
def test_full_disk_on_output_exits_as_storage_error(
    folder: Path, command: str, argv: list[str], unbuffered: str
) -> None:
    program = f"PYTHONUNBUFFERED={unbuffered} {command} {' '.join(argv)} > /dev/full"
    done = subprocess.run(
        ["bash", "-c", program], cwd=folder, capture_output=True, text=True, timeout=LIMIT, check=False
    )
    assert done.returncode == 3, done
    assert re.fullmatch(r"asyncrec: .*No space left on device\n", done.stderr)


def test_dash_stands_for_standard_input_and_output(folder: Path, command: str) -> None:
    program = (
        f"cat data/plain.tfrecord | {command} count - && "
        f"{command} filter data/pages - --where label=1 2>/dev/null | {command} count - && "
        f"{command} convert data/pages - --to jsonl | {command} convert - - --from jsonl | {command} count - && "
        f"cat data/zipped-*.tfrecord | {command} verify - | tail -n 1"
    )
    done = subprocess.run(
        ["bash", "-c", program], cwd=folder, capture_output=True, text=True, timeout=LIMIT, check=False
    )
    assert done.stdout.split("\n") == ["5", "10", "30", "ok: every checksum in - matches", ""], done


def test_count_of_empty_stdin_is_zero(folder: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "asyncrec.cli", "count", "-"],
        cwd=folder,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=LIMIT,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, "0\n"), done
