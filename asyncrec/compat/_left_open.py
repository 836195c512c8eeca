"""What nobody closes: it is closed when it is dropped, or when Python ends, as the originals' writers are.

A finaliser may run anywhere, on an event loop too, which may not wait, or within a call that holds a lock. So what was
dropped is closed in a thread of its own, and waited for only where no event loop runs, and not for ever.
"""

from __future__ import annotations

import asyncio
import concurrent.futures.thread  # noqa: F401  # its exit function ends all pools; imported before, it runs after ours
import os
import sys
import threading
from typing import Protocol

import sniffio

__all__ = ["Closable", "close_dropped", "forget", "keep"]

# As long as a store may take to answer, and no longer than somebody would wait for a program that hangs.
_PATIENCE = 30.0


class Closable(Protocol):
    def close(self) -> None: ...


_kept: set[Closable] = set()
_closing: set[threading.Thread] = set()
# They are the parent's to close.
os.register_at_fork(after_in_child=_kept.clear)
os.register_at_fork(after_in_child=_closing.clear)


def keep(file: Closable) -> None:
    """Close it when Python ends, unless `forget` comes before."""
    _kept.add(file)


def forget(file: Closable) -> None:
    """It is closed. Idempotent."""
    _kept.discard(file)


def close_dropped(file: Closable) -> None:
    """Close what nobody can close any more; from a finaliser. What goes wrong is told as an uncaught exception is."""
    if file not in _kept:
        return
    thread = threading.Thread(target=_close, args=(file,), name="asyncrec-close-dropped")
    try:
        thread.start()
    except RuntimeError:  # Python is ending
        return
    _closing.add(thread)
    if not _on_a_loop():
        thread.join(_PATIENCE)


def _on_a_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        try:
            sniffio.current_async_library()
        except sniffio.AsyncLibraryNotFoundError:
            return False
    return True


def _close(file: Closable) -> None:
    try:
        file.close()
    except Exception:  # nobody is left to raise it to
        sys.excepthook(*sys.exc_info())
    _closing.discard(threading.current_thread())


def _close_all() -> None:
    for thread in list(_closing):
        thread.join(_PATIENCE)
    for file in list(_kept):
        _close(file)


# `atexit` comes too late: the event loop's thread has ended by then. These functions are called before threads are
# waited for; registering them is private to Python, and concurrent.futures needs it for the same reason.
if hasattr(threading, "_register_atexit"):
    threading._register_atexit(_close_all)
