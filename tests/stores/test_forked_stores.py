"""A storage opened before a fork raises an error in the child, which leaves the parent's connections alone."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

_PLUGINS = Path(__file__).parents[2] / "plugins"

_OPENED = {
    "gcs": """
from fake_gcs import FakeGcs
with FakeGcs().serving() as server:
    anyio.run(main, "gs://bucket", {"endpoint": server.url, "anonymous": True})
""",
    "azure": """
from azure_api import FakeAzure
from azure_opening import KEY
with FakeAzure().serving() as server:
    anyio.run(main, "az://crawl", {"endpoint": server.endpoint, "account_key": KEY})
""",
    "http": """
from web_server import WebServer
with WebServer().serving() as server:
    server.store("x", b"y")
    anyio.run(main, server.url, {})
""",
}

# This runs in its own process, because a child of a process with threads may hang.
_PROGRAM = """
import os, sys, threading, anyio, asyncrec

async def refused(call):
    try:
        with anyio.fail_after(20):
            await call
    except RuntimeError as error:
        assert "was opened before a fork" in str(error), error
    else:
        raise AssertionError("the call did not raise an error")

def in_child(storage):
    child = os.fork()
    if child:
        return child
    async def use():
        await refused(storage.get("x"))
        await refused(storage.head("x"))
        if storage.root.startswith("http"):
            return
        await refused(storage.put("x", b"child"))
        await refused(storage.delete("x"))
    def run():
        try:
            anyio.run(use)
            os._exit(0)
        except BaseException as error:
            os.write(2, repr(error).encode())
            os._exit(1)
    thread = threading.Thread(target=run)  # a new thread has no running loop
    thread.start()
    thread.join()

async def main(url, options):
    async with asyncrec.open_storage(url, **options) as storage:
        if not url.startswith("http"):
            await storage.put("x", b"y")
        assert await storage.get("x") == b"y"
        child = in_child(storage)
        status = await anyio.to_thread.run_sync(os.waitpid, child, 0)
        with anyio.fail_after(20):
            assert await storage.get("x") == b"y"
    code = os.waitstatus_to_exitcode(status[1])
    if code:
        os._exit(code)
"""


@pytest.mark.slow(but=["gcs"])
@pytest.mark.parametrize("kind", list(_OPENED))
def test_store_refuses_forked_child_and_serves_parent(kind: str) -> None:
    found = [str(_PLUGINS / f"asyncrec-{kind}" / "tests"), str(_PLUGINS.parent / "tests" / "servers")]
    program = f"import sys; sys.path[:0] = {found!r}\n{_PROGRAM}{_OPENED[kind]}"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 0, done.stderr
