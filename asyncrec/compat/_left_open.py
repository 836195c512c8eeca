"""Close files that a program leaves open, when they are garbage-collected or when Python exits.

The original libraries do the same. A finaliser may run anywhere: on an event loop, which must not block, or inside a
call that holds a lock. Therefore, each garbage-collected file is closed in a new thread. The finaliser waits for that
thread only if no event loop is running in the current thread, and only for a limited time.
"""

from __future__ import annotations

import asyncio
import concurrent.futures.thread  # noqa: F401  # so that its exit function, which ends all pools, runs after ours
import sys
import threading
from typing import Protocol

import sniffio

from asyncrec._concurrency.forks import on_fork
from asyncrec.blocking._portal import current_portal

# Seconds to wait for a file to be closed: long enough for a store to respond, but too short to look like a hang.
_PATIENCE = 30.0


class Closable(Protocol):
    def close(self) -> None: ...


class _LeftOpen:
    """The files that this process must close before it exits."""

    def __init__(self) -> None:
        self.files: dict[Closable, threading.Thread] = {}  # the thread that opened each file
        self.closing: set[threading.Thread] = set()
        on_fork(self)

    def forked(self) -> None:
        self.files.clear()
        self.closing.clear()

    def close_in_thread(self, file: Closable) -> None:
        thread = threading.Thread(target=self._close, args=(file,), name="asyncrec-close-dropped")
        try:
            thread.start()
        except RuntimeError:  # Python is exiting
            return
        self.closing.add(thread)
        if not _on_a_loop():
            thread.join(_PATIENCE)

    def close_most(self) -> None:
        """Close all files except those opened by other running non-daemon threads, which Python will wait for."""
        for thread in list(self.closing):
            thread.join(_PATIENCE)
        for file, opener in reversed(list(self.files.items())):
            if opener.daemon or opener is threading.current_thread() or not opener.is_alive():
                self._close(file)

    def close_all(self) -> None:
        for file in reversed(list(self.files)):
            self._close(file)

    def _close(self, file: Closable) -> None:
        try:
            file.close()
        except Exception:  # no caller could catch the error
            sys.excepthook(*sys.exc_info())
        self.closing.discard(threading.current_thread())


left_open = _LeftOpen()


def keep(file: Closable) -> None:
    """Register a file to be closed when Python exits, last in first out, unless `forget` is called before that."""
    left_open.files[file] = threading.current_thread()
    current_portal().before_end(left_open.close_all)


def forget(file: Closable) -> None:
    """Forget a file that has been closed. Idempotent."""
    left_open.files.pop(file, None)


def close_dropped(file: Closable) -> None:
    """Close a garbage-collected file from its finaliser. An error is printed like an uncaught exception."""
    if file in left_open.files:
        left_open.close_in_thread(file)


def _on_a_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        try:
            sniffio.current_async_library()
        except sniffio.AsyncLibraryNotFoundError:
            return False
    return True


# Close the files early, while the executors of a store's client still accept work. `atexit` is too late, because the
# event loop's thread has already ended. `threading._register_atexit` is private, but concurrent.futures uses it for the
# same reason: its functions run before Python joins the threads. If Python lacks it, the files are closed just before
# the loop ends.
_register_atexit = getattr(threading, "_register_atexit", None)
if _register_atexit is not None:
    _register_atexit(left_open.close_most)
