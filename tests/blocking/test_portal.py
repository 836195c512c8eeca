"""The event loop behind the blocking API: its thread, its interruption, forks, and the end of the process.

Tests that affect an entire process run in separate processes.
"""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest

from asyncrec import blocking
from asyncrec.blocking._owner import Handle, as_call, as_context
from asyncrec.blocking._portal import current_portal


def run(program: str, folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-W", "ignore::DeprecationWarning", "-c", program, str(folder)],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


def test_blocking_call_works_inside_running_event_loop(tmp_path: Path) -> None:
    async def as_in_a_notebook() -> list[bytes]:
        blocking.write_records(tmp_path / "a", [b"1", b"2"])
        return blocking.read_records(tmp_path / "a")

    assert anyio.run(as_in_a_notebook) == [b"1", b"2"]


def test_callback_on_portal_loop_raises_instead_of_deadlocking() -> None:
    async def callback() -> None:
        blocking.read_records("anything")

    with pytest.raises(
        RuntimeError, match=r"asyncrec\.blocking was called on asyncrec\.blocking's own event loop, where it would"
    ):
        current_portal().run(callback)


def test_threads_share_one_event_loop() -> None:
    async def thread() -> int:
        return threading.get_ident()

    found: list[int] = []
    threads = [threading.Thread(target=lambda: found.append(as_call(thread)())) for _ in range(4)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert len(set(found)) == 1
    assert found[0] != threading.get_ident()


@pytest.mark.parametrize("kind", [KeyboardInterrupt, SystemExit])
def test_exit_exceptions_reach_caller_without_stopping_loop(
    kind: type[BaseException],
) -> None:
    async def raising() -> None:
        raise kind

    with pytest.raises(kind):
        current_portal().run(raising)
    assert as_call(anyio.sleep)(0) is None


@asynccontextmanager
async def noting(events: list[str], *, fails: bool = False) -> AsyncIterator[list[str]]:
    if fails:
        raise OSError("cannot open")
    task = anyio.get_current_task().id
    try:
        yield events
    except BaseException as error:
        events.append(type(error).__name__)
        raise
    finally:
        events.append("same task" if anyio.get_current_task().id == task else "another task")


class Noting(Handle[list[str]]):
    def inside(self) -> int:
        async def task() -> int:
            return anyio.get_current_task().id

        return self._owner.call_inside(task)


opened = as_context(noting, Noting)


def test_context_runs_entirely_in_one_task() -> None:
    events: list[str] = []
    with opened(events) as first:
        assert first.inside() == first.inside()
        with opened(events) as second:
            assert second.inside() != first.inside()
    assert events == ["same task", "same task"]


@pytest.mark.parametrize("kind", [ValueError, KeyboardInterrupt, StopIteration])
def test_body_exception_reaches_context_and_propagates_unchanged(kind: type[BaseException]) -> None:
    events: list[str] = []
    error = kind("body")
    with pytest.raises(kind) as caught, opened(events):
        raise error
    assert caught.value is error
    assert events == [kind.__name__, "same task"]


def test_failing_context_raises_on_entry() -> None:
    with pytest.raises(OSError, match="cannot open"), opened([], fails=True):
        raise AssertionError("not reached")


def test_handle_used_after_close_raises() -> None:
    with opened([]) as handle:
        pass
    with pytest.raises(anyio.ClosedResourceError, match="closed"):
        handle.inside()


INTERRUPT = """
import signal, sys, threading
import anyio
from asyncrec.blocking._portal import current_portal
from asyncrec import blocking

begun, noticed = threading.Event(), threading.Event()

def interrupted(*args):
    noticed.set()
    signal.default_int_handler(*args)

def interrupt():
    # Python sees no signal that comes between its last look for one and the system call in which it waits for a lock.
    begun.wait()
    while not noticed.is_set():
        signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)
        noticed.wait(1)

signal.signal(signal.SIGINT, interrupted)
threading.Thread(target=interrupt, daemon=True).start()

async def for_ever():
    begun.set()
    try:
        await anyio.sleep_forever()
    finally:
        print("cleaned up", flush=True)

try:
    with blocking.open_writer(sys.argv[1] + "/x") as writer:
        writer.write(b"1")
        current_portal().run(for_ever)
except KeyboardInterrupt:
    print("interrupted")
import os
print(os.listdir(sys.argv[1]))
print(blocking.write_records(sys.argv[1] + "/y", [b"1"]).size)
"""


def test_interrupt_cancels_call_and_exits_context_cleanly(tmp_path: Path) -> None:
    done = run(INTERRUPT, tmp_path)
    assert done.stdout.splitlines() == ["cleaned up", "interrupted", "[]", "17"], done.stderr
    assert done.returncode == 0


@pytest.mark.parametrize("handed_over", [True, False])
def test_interrupt_during_handover_cancels_call_or_prevents_start(
    handed_over: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    portal, done = current_portal(), []
    hand_over = portal.portal.start_task_soon

    async def for_ever() -> None:
        try:
            await anyio.sleep_forever()
        finally:
            done.append("cleaned up")

    def interrupted(*args: Any) -> Any:
        monkeypatch.undo()
        if handed_over:
            hand_over(*args)
        raise KeyboardInterrupt

    monkeypatch.setattr(portal.portal, "start_task_soon", interrupted)
    with pytest.raises(KeyboardInterrupt):
        portal.run(for_ever)
    assert done == ["cleaned up"] * handed_over


FORK = """
import os, sys
from asyncrec import blocking
path = sys.argv[1] + "/x"
blocking.write_records(path, [b"1", b"2"])
with blocking.open_reader(path) as reader:
    pid = os.fork()
    if pid == 0:
        try:
            try:
                next(reader)
            except RuntimeError as error:
                print(error, flush=True)
            print(blocking.read_records(path), flush=True)
        finally:
            os._exit(0)
    assert os.waitpid(pid, 0)[1] == 0
    print(next(reader))
"""


def test_forked_child_gets_own_loop_and_rejects_inherited_handles(tmp_path: Path) -> None:
    done = run(FORK, tmp_path)
    assert done.returncode == 0, done.stderr
    told, read, parent = done.stdout.splitlines()
    assert "before a fork" in told
    assert "open it again" in told
    assert read == "[b'1', b'2']"
    assert parent == "b'1'"


FORK_WITHIN_A_LIST = """
import os, sys
from asyncrec import blocking
path = sys.argv[1] + "/x"
blocking.write_records(path, [b"%d" % i for i in range(1000)])
def told(what, items):
    pid = os.fork()
    if pid == 0:
        try:
            try:
                print(what, "gave", next(items), flush=True)
            except RuntimeError as error:
                print(what, "raised" if "before a fork" in str(error) else error, flush=True)
        finally:
            os._exit(0)
    assert os.waitpid(pid, 0)[1] == 0
with blocking.open_reader(path) as reader, blocking.interleave([path]) as stream:
    print(next(reader), next(stream), flush=True)
    told("reader", reader)
    told("batches", reader.batches())
    told("stream", stream)
    print(next(reader), next(stream))
"""


def test_forked_child_gets_no_records_buffered_by_parent(tmp_path: Path) -> None:
    done = run(FORK_WITHIN_A_LIST, tmp_path)
    assert done.stdout.splitlines() == [
        "b'0' b'0'", "reader raised", "batches raised", "stream raised", "b'1' b'1'",
    ], done.stderr  # fmt: skip


WORKERS = """
import multiprocessing, sys
from asyncrec import blocking

def read(path):
    return len(blocking.read_records(path))

if __name__ == "__main__":
    path = sys.argv[1] + "/x"
    blocking.write_records(path, [b"1", b"2"])
    with multiprocessing.get_context("METHOD").Pool(2) as pool:
        print(pool.map(read, [path] * 4))
        pool.close()
        pool.join()
"""


@pytest.mark.slow
@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_worker_processes_use_portal_and_exit(tmp_path: Path, method: str) -> None:
    program = tmp_path / "program.py"
    program.write_text(WORKERS.replace("METHOD", method))
    command = [sys.executable, "-W", "ignore::DeprecationWarning", str(program), str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert done.stdout == "[2, 2, 2, 2]\n", done.stderr


LEFT_OPEN = """
import os, sys
from asyncrec import blocking
path = sys.argv[1] + "/x"
writer = blocking.open_writer(path).__enter__()
writer.write(b"1")
writer.flush()
print(len(os.listdir(sys.argv[1])))
"""


def test_open_writer_at_interpreter_exit_publishes_nothing(tmp_path: Path) -> None:
    done = run(LEFT_OPEN, tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (0, "1\n", "")
    assert not (tmp_path / "x").exists()
