"""Every command runs once in its own process on a pseudo-terminal; the contents of the screen are checked."""

from __future__ import annotations

import os
import pty
import re
import select
import shutil
import time
from pathlib import Path

import anyio
import pytest
from cli_data import write_examples
from warm_python import WarmPython

import asyncrec
from asyncrec._shards.manifest.segment import Segment, format_time
from asyncrec.cli._installed import COMMANDS

# Guards against a hang, even on a busy machine, in seconds.
LIMIT = 100.0
_CONTROL = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|\r")


class Terminal:
    """A process whose stdin, stdout and stderr are the same pseudo-terminal."""

    def __init__(self, warm: WarmPython, folder: Path, *argv: str) -> None:
        self.raw = b""
        self._screen, inner = pty.openpty()
        self._process = warm.start(
            "asyncrec.cli",
            *argv,
            folder=folder,
            stdin=inner,  # this becomes its controlling terminal, so that Ctrl-C reaches it
            stdout=inner,
            stderr=inner,
            environment=os.environ | {"COLUMNS": "120", "TERM": "xterm"},
        )
        os.close(inner)
        self._ends = time.monotonic() + LIMIT

    def read(self) -> bool:
        """Read more of the screen's contents; return whether there may be more."""
        ready, _, _ = select.select([self._screen], [], [], max(0.0, self._ends - time.monotonic()))
        assert ready, f"it hangs: {self.text[-500:]}"
        try:
            block = os.read(self._screen, 1 << 16)
        except OSError:  # Linux raises this when the other end is closed
            block = b""
        self.raw += block
        return bool(block)

    def type(self, keys: bytes) -> None:
        os.write(self._screen, keys)

    def finish(self) -> int:
        while self.read():
            pass
        os.close(self._screen)
        return self._process.wait(LIMIT)

    @property
    def text(self) -> str:
        """Return the screen's text without colours and cursor movements."""
        return _CONTROL.sub("", self.raw.decode())


CASES: dict[str, tuple[list[str], str]] = {
    "info": (["data/pages"], "1: 1 closed"),
    "ls": (["data"], "data/plain.tfrecord"),
    "tail": (["data/pages", "-n", "1"], "record 29 "),
    "sample": (["data/pages", "-n", "2"], "label"),
    "diff": (["data/pages", "data/zipped"], "the same 30 records, matched by key"),
    "filter": (["data/pages", "some/pages", "--where", "label<1"], "10 of 30 records in 1 shard"),
    "merge": (["data/pages", "data/zipped", "both/pages"], "60 of 60 records in 1 shard"),
    "dedupe": (["data/pages", "once/pages", "--by", "label"], "3 of 30 records in 1 shard"),
    "head": (["data/pages", "-n", "1"], r'"text 0 \u001b[31mred\u0007"'),
    "cat": (["data/zipped", "--where", "label=1", "--limit", "1", "--json"], '"label": 1'),
    "count": (["data"], "65"),
    "watch": (["data/pages", "--once", "--by", "label"], "of 30 sampled records"),
    "schema": (["data/pages"], "from the manifest"),
    "verify": (["data"], "every checksum in data matches"),
    "repair": (["damaged.tfrecord", "saved.tfrecord"], "intact records"),
    "recover": (["data/pages"], "nothing to recover"),
    "forget-source": (["queue/pages", "topic/3"], "which was stored up to position 917"),
    "index": (["data/plain.tfrecord"], "1 created"),
    "uploads": (["files"], "0 unfinished"),
    "doctor": (["doctored"], "exclusive creation"),
    "delete": (["deleted/pages", "--key", "key 1", "--yes"], "1 record deleted, in 1 shard"),
    "compact": (["data/zipped", "--latest"], "segments into"),
    "copy": (["data/pages", "copied/pages"], "9 objects copied"),
    "reshard": (["data/pages", "new/pages", "--shuffle", "--seed", "3"], "30 records in 1 shard"),
    "convert": (["data/pages", "pages.jsonl"], "30 records"),
    "from-csv": (["table.csv", "tables", "--label", "kind"], "labels: 0 a, 1 b"),
    "from-folder": (["files", "folders"], "labels: 0 a, 1 b"),
}


@pytest.fixture(scope="module")
def screens(warm: WarmPython, tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[int, Terminal]]:
    """Run all commands concurrently, each in a terminal."""
    folder = tmp_path_factory.mktemp("terminal")
    write_examples(folder)
    shutil.copytree(folder / "data", folder / "deleted")
    (folder / "queue/_manifest/pages").mkdir(parents=True)
    segment = Segment(writer="c", time=format_time(0), closed=True, progress={"topic/3": (1, 917)})
    (folder / "queue/_manifest/pages/c-000001.jsonl").write_bytes(segment.encode())
    begun = {name: Terminal(warm, folder, name, *argv) for name, (argv, _) in CASES.items()}
    return {name: (terminal.finish(), terminal) for name, terminal in begun.items()}


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_runs_in_terminal(screens: dict[str, tuple[int, Terminal]], command: str) -> None:
    code, terminal = screens[command]
    assert CASES[command][1] in terminal.text
    assert "Traceback" not in terminal.text
    assert code == (1 if command == "repair" else 0)


def test_ctrl_c_exits_with_130_and_one_line(warm: WarmPython, tmp_path: Path) -> None:
    anyio.run(asyncrec.write_records, tmp_path / "many.tfrecord", [b"x" * 1000] * 5000)
    terminal = Terminal(warm, tmp_path, "cat", "many.tfrecord")
    while b"record 20 " not in terminal.raw:
        assert terminal.read()
    terminal.type(b"\x03")
    assert terminal.finish() == 130
    assert terminal.text.endswith("asyncrec: interrupted\n")
    assert "Traceback" not in terminal.text


def test_raw_records_are_not_printed_to_terminal(warm: WarmPython, tmp_path: Path) -> None:
    anyio.run(asyncrec.write_records, tmp_path / "x.tfrecord", [b"\x1b[2J"])
    terminal = Terminal(warm, tmp_path, "cat", "x.tfrecord", "--format", "raw")
    assert terminal.finish() == 2
    assert b"[2J" not in terminal.raw
    assert "file or a program" in terminal.text
