"""The examples of "Write a plugin" are complete: their files, as shown on the pages, pass their kits and run."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path

import anyio
import pytest

import asyncrec

DOCS = Path(__file__).parents[2] / "docs"
FILE = re.compile(r'^```\w+ title="([^"]+)"\n(.*?)^```$', re.MULTILINE | re.DOTALL)
STEPS = re.compile(r"^<!-- as the example is followed -->\n```sh\n(.*?)^```$", re.MULTILINE | re.DOTALL)

# A text that is contained in the output of each command on a page.
PRINTED = {
    "command": {"asyncrec --help": "how large the records are", "asyncrec sizes data/pages -n 1": "99 B in data/pages"},
    "format": {
        "asyncrec convert lines.txt data/lines": "2 records from 1 file",
        "asyncrec convert data/lines back.txt": "2 records",
    },
    "storage-example": {
        "pytest -q -rs": "losing_an_answer returns None",
        "asyncrec count sqlite://pages/copied": "100",
        "asyncrec doctor sqlite://pages": "event loop",
    },
}


@pytest.fixture(params=["command", "format", "storage-example"])
def page(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def made(page: str, folder: Path) -> None:
    """Write the example's files, and the metadata that ``pip install -e .`` would create for them."""
    for name, content in FILE.findall((DOCS / "write-a-plugin" / f"{page}.md").read_text("utf-8")):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(content, "utf-8")
    project = tomllib.loads((folder / "pyproject.toml").read_text("utf-8"))["project"]
    info = folder / f"{project['name'].replace('-', '_')}-{project['version']}.dist-info"
    info.mkdir()
    info.joinpath("METADATA").write_text(f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: 1.0\n")
    points = "".join(f"{name} = {value}\n" for name, value in project["entry-points"]["asyncrec"].items())
    info.joinpath("entry_points.txt").write_text(f"[asyncrec]\n{points}")


@pytest.mark.slow
def test_plugin_example_passes_kit_and_commands_behave_as_documented(page: str, tmp_path: Path) -> None:
    made(page, tmp_path)
    anyio.run(asyncrec.write_records, tmp_path / "data/pages/a.tfrecord", [b"x" * n for n in range(100)])
    path = os.pathsep.join(filter(None, [str(tmp_path), os.environ.get("PYTHONPATH")]))
    environment = {**os.environ, "PYTHONPATH": path, "ASYNCREC_DISABLE_PLUGINS": ""}
    (steps,) = STEPS.findall((DOCS / "write-a-plugin" / f"{page}.md").read_text("utf-8"))
    install, *lines = steps.splitlines()
    assert install.startswith("pip install -e .")  # `made` does the same
    said = {}
    for line in lines:
        program, *arguments = shlex.split(line.partition(">")[0])
        if program == "printf":
            (tmp_path / line.partition(">")[2].strip()).write_text(arguments[0].replace("\\n", "\n"))
            continue
        module = {"pytest": "pytest", "asyncrec": "asyncrec.cli"}[program]
        command = [sys.executable, "-m", module, *arguments, *(["-p", "no:cacheprovider"] * (program == "pytest"))]
        done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, (line, done.stdout, done.stderr)
        said[line] = done.stdout
    assert {line: words in said[line] for line, words in PRINTED[page].items()} == dict.fromkeys(PRINTED[page], True)
    if page == "storage-example":
        assert "flush" not in said["pytest -q -rs"], "no case of a writer that flushes to the store is skipped"
    if page == "format":
        assert (tmp_path / "back.txt").read_text() == "one\ntwo\n"
