"""The examples in the help of all commands work as described when they are run in order in one folder."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import anyio
import pytest
from cli_data import Run
from warm_python import WarmPython

import asyncrec
from asyncrec.cli._installed import COMMANDS

# Guards against a hang, even on a busy machine, in seconds.
LIMIT = 300.0
# Commands that report damage or differences by their exit code.
CODES = {"repair": 1}


def example(text: str) -> str:
    """Return the lines below ``Example:`` in a command's help."""
    lines = text.split("\n")
    begin = next((at for at, line in enumerate(lines) if line.strip() == "Example:"), None)
    assert begin is not None, text
    end = next(at for at in range(begin, len(lines)) if not lines[at].strip())
    return "\n".join(line.strip() for line in lines[begin + 1 : end])


async def _pages() -> None:
    schema = asyncrec.Schema({"url": asyncrec.FixedLen((), "str"), "label": asyncrec.FixedLen((), "int64")})
    async with asyncrec.open_sharded_writer("demo-data/pages", max_shard_records=100, schema=schema) as writer:
        for n in range(300):
            page = {"url": f"https://example.org/{n}", "label": n % 10}
            await writer.write(page, key=page["url"])
        await writer.advance("topic/3", 917)


@pytest.fixture(scope="module")
def folder(warm: WarmPython, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("examples")
    before = Path.cwd()
    os.chdir(folder)
    anyio.run(_pages)
    os.chdir(before)
    # The examples run a script named asyncrec, so create one: its installation is not tested here.
    script = folder / "bin/asyncrec"
    script.parent.mkdir()
    script.write_text(warm.script("asyncrec.cli"))
    script.chmod(0o755)
    return folder


@pytest.mark.slow
@pytest.mark.parametrize("command", COMMANDS)
def test_example_works_when_pasted(run: Run, folder: Path, command: str) -> None:
    lines = example(run(command, "--help").ok())
    assert f"asyncrec {command} " in lines
    done = subprocess.run(
        ["bash", "-e", "-c", lines],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=LIMIT,
        check=False,
        stdin=subprocess.DEVNULL,
        env=os.environ | {"PATH": f"{folder}/bin:{os.environ['PATH']}"},
    )
    assert done.returncode == CODES.get(command, 0), done
    assert done.stdout
    assert "Traceback" not in done.stderr
