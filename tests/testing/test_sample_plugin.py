"""A plugin is found by its entry point if its metadata is anywhere on the path, even if it is not installed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

SAMPLE = Path(__file__).parents[1] / "sample_plugin"

USE = """
import sys
import anyio
import asyncrec

async def main(name):
    assert "asyncrec_sample" not in sys.modules or name == "trio", "imported before a path needed it"
    await asyncrec.write_records(f"sample://{name}/a.tfrecord", [b"one", b"two"])
    print(await asyncrec.read_records(f"sample://{name}/a.tfrecord"))
    async with asyncrec.open_storage(f"sample://{name}", chunk_size=7) as storage:
        print(storage.chunk_size, [info.key async for info in storage.list_objects()])

for name in ("asyncio", "trio"):
    anyio.run(main, name, backend=name)
"""


def run(**environment: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(SAMPLE), **environment}
    return subprocess.run([sys.executable, "-c", USE], env=environment, capture_output=True, text=True, check=False)


def test_sample_plugin_works_like_built_in() -> None:
    done = run(ASYNCREC_DISABLE_PLUGINS="")
    assert done.stderr == ""
    assert done.stdout == "[b'one', b'two']\n7 ['a.tfrecord']\n" * 2


def test_sample_plugin_can_be_disabled_by_name() -> None:
    done = run(ASYNCREC_DISABLE_PLUGINS="sample")
    assert done.returncode == 1
    assert "UnknownSchemeError" in done.stderr
    assert "sample" in done.stderr
