"""What the first use of a writer imports: little, and in a thread where an event loop runs."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from asyncrec import native

# Each in a process of its own, for only there nothing is imported yet.
HEAVY = """
import sys
import asyncrec
asyncrec.open_writer, asyncrec.open_sharded_writer
print(*sorted({"numpy", "crc32c", "importlib.metadata", "asyncrec.example"} & set(sys.modules)))
"""
ON_A_LOOP = """
import sys, threading
import anyio, inspect
import asyncrec

async def main():
    opener = getattr(asyncrec, sys.argv[3])
    assert not any("writing" in name for name in sys.modules), "it is imported by asking for it"
    importing = []
    class Finder:
        def find_spec(self, name, path=None, target=None):
            importing.append((name, threading.current_thread() is threading.main_thread()))
    sys.meta_path.insert(0, Finder())
    async with opener(sys.argv[1] + "/pages") as writer:
        await writer.write(b"x")
    here = [name for name, on_loop in importing if on_loop and name.startswith(("asyncrec._", "anyio._backends"))]
    assert not here, here
    assert not asyncrec.native.FUNCTIONS or "numpy" not in sys.modules, "there is nothing to be merged"
    assert getattr(asyncrec, sys.argv[3]) is opener.__wrapped__.__globals__[sys.argv[3]]
    assert "compression" in inspect.signature(opener).parameters
    try:
        async with opener(sys.argv[1] + "/pages", no_option=1):
            raise AssertionError("it is none")
    except TypeError:
        pass
    async with asyncrec.open_sharded_writer(sys.argv[1] + "/pages") as writer:  # there may be a manifest to be merged
        await writer.write(b"x")
    here = [name for name, on_loop in importing if on_loop and name.startswith("numpy")]
    assert not here, here

if sys.argv[2] == "asyncio":
    import asyncio
    asyncio.run(main())
elif sys.argv[2] == "trio":
    import trio
    trio.run(main)
else:
    anyio.run(main, backend=sys.argv[2].removeprefix("anyio on "))
"""


def run(code: str, *arguments: str) -> str:
    done = subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_a_writer_imports_neither_numpy_nor_examples() -> None:
    if native.FUNCTIONS:  # without C the package crc32c is what there is
        assert run(HEAVY) == ""


@pytest.mark.parametrize("library", ["asyncio", "trio", "anyio on asyncio", "anyio on trio"])
@pytest.mark.parametrize("name", ["open_writer", "open_sharded_writer"])
def test_on_a_loop_a_thread_imports_what_opens_a_writer(tmp_path: Path, library: str, name: str) -> None:
    run(ON_A_LOOP, str(tmp_path), library, name)
