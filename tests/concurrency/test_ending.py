"""While Python exits and cannot start threads, work is still done exactly once, without retries."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from typing import Any, NoReturn

import anyio
import pytest
from trio._core._thread_cache import ThreadCache

from asyncrec._concurrency.ending import LastExecutor, is_refused_by_the_end
from asyncrec._concurrency.tasks import acquire_in_thread, in_thread, surely_in_thread
from asyncrec.errors import TransientStorageError
from asyncrec.storage._retry import retrying

# Python's own message.
NO_THREAD = RuntimeError("can't create new thread at interpreter shutdown")


@pytest.fixture(autouse=True)
def no_idle_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """Discard trio's idle threads, which live for ten seconds: one from an earlier test would be used here."""
    monkeypatch.setattr("trio._core._thread_cache.THREAD_CACHE", ThreadCache())


@pytest.fixture
def ending(monkeypatch: pytest.MonkeyPatch) -> None:
    def start(thread: threading.Thread) -> NoReturn:
        raise NO_THREAD

    monkeypatch.setattr(threading.Thread, "start", start)


@pytest.mark.anyio
@pytest.mark.parametrize("run", [in_thread, surely_in_thread])
async def test_function_for_thread_is_called_once(run: Callable[..., Any], ending: None) -> None:
    called: list[int] = []
    await run(called.append, 1)
    assert called == [1]


@pytest.mark.anyio
async def test_in_thread_passes_results_and_errors_to_caller(ending: None) -> None:
    assert await in_thread(int, "7") == 7
    with pytest.raises(ValueError, match="invalid literal") as caught:
        await in_thread(int, "seven")
    assert caught.value.__context__ is None
    assert await acquire_in_thread(lambda: "lock", pytest.fail) == "lock"


@pytest.mark.anyio
async def test_in_thread_raises_on_unrelated_start_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    def start(thread: threading.Thread) -> NoReturn:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", start)
    with pytest.raises(RuntimeError, match="can't start new thread"):
        await in_thread(pytest.fail, "called")


def test_executor_runs_calls_without_starting_thread(ending: None) -> None:
    with LastExecutor() as executor:
        assert executor.submit(socket.gethostbyname, "localhost").result() == "127.0.0.1"
        with pytest.raises(ValueError, match="invalid literal"):
            executor.submit(int, "seven").result()


def test_executor_runs_queued_work_once_after_failed_start(monkeypatch: pytest.MonkeyPatch) -> None:
    go_on, called = threading.Event(), []
    with LastExecutor(max_workers=2) as executor:
        busy = executor.submit(go_on.wait)
        with monkeypatch.context() as patch:
            patch.setattr(threading.Thread, "start", lambda thread: throw())
            assert executor.submit(called.append, 1).result() is None
        go_on.set()
        assert busy.result()
    assert called == [1]


def throw() -> NoReturn:
    raise NO_THREAD


def test_executor_rejects_work_after_shutdown() -> None:
    executor = LastExecutor()
    executor.shutdown()
    with pytest.raises(RuntimeError, match="after shutdown"):
        executor.submit(pytest.fail, "called")


@pytest.mark.parametrize("links", ["__cause__", "__context__"])
def test_chained_thread_start_error_is_recognised(links: str) -> None:
    error = TransientStorageError("no connection")
    between = OSError("no address")
    setattr(error, links, between)
    assert not is_refused_by_the_end(error)
    setattr(between, links, NO_THREAD)
    assert is_refused_by_the_end(error)
    NO_THREAD.__context__ = error  # a cycle, which an error handler can create
    assert not is_refused_by_the_end(KeyError())
    assert is_refused_by_the_end(error)
    NO_THREAD.__context__ = None


@pytest.mark.anyio
async def test_retrying_does_not_repeat_thread_start_failure() -> None:
    tries = []

    async def operation() -> None:
        tries.append(1)
        raise TransientStorageError("put s3://bucket/key") from NO_THREAD

    with anyio.fail_after(60), pytest.raises(TransientStorageError, match="put s3"):
        await retrying(operation, what="put s3://bucket/key")
    assert tries == [1]
