"""A file object over `asyncrec.blocking.open_file`: for code that has a ``close()`` and no ``with``."""

from __future__ import annotations

import concurrent.futures.thread  # noqa: F401  # its exit function ends all pools; imported before, it runs after ours
import os
import sys
import threading

from asyncrec import blocking
from asyncrec.errors import StorageError
from asyncrec.storage.url import redact

__all__ = ["RemoteFile"]

# Handed on to the event loop together: its call of 60 us is then a fraction of a microsecond for each record.
_BUFFER = 512 << 10


class RemoteFile:
    """Collects what is written and hands it on in large pieces. Open until it is closed, or Python ends.

    Published by `close`; a write that failed, or was interrupted, publishes nothing, and every later call says so.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._what = redact(os.fspath(path))
        self._pending = bytearray()
        self._failure: BaseException | None = None
        self._context = blocking.open_file(path)
        self._file = self._context.__enter__()
        self._closed = False
        _left_open.add(self)

    def write(self, data: bytes) -> None:
        self._check()
        if self._closed:
            raise ValueError(f"{self._what}: written to after it was closed")
        self._pending += data
        if len(self._pending) >= _BUFFER:
            self._hand_on()

    def flush(self) -> None:
        self._check()
        if not self._closed:
            self._hand_on()
            self._file.flush()

    def close(self) -> None:
        self._check()
        if not self._closed:
            self._hand_on()
            try:
                self._end(None)
            except BaseException as error:
                self._failure = error
                raise

    def abort(self) -> None:
        """Publish nothing."""
        if not self._closed:
            self._end(_AbortedError())

    def _check(self) -> None:
        if self._failure is not None:
            raise StorageError(f"{self._what}: not published, because writing it failed before") from self._failure

    def _hand_on(self) -> None:
        try:
            self._file.write(bytes(self._pending))
        except BaseException as error:
            self._failure = error
            self.abort()
            raise
        self._pending.clear()

    def _end(self, error: BaseException | None) -> None:
        self._closed = True
        _left_open.discard(self)
        self._context.__exit__(type(error) if error else None, error, None)


class _AbortedError(Exception):
    """What an object's context is left with, so that it publishes nothing."""


# Whoever does not close a writer has its object published when Python ends, as with tensorboardX.
_left_open: set[RemoteFile] = set()
os.register_at_fork(after_in_child=_left_open.clear)  # they are the parent's to close


def _close_all() -> None:
    for file in list(_left_open):
        try:
            file.close()
        except Exception:  # nobody is left to raise it to
            sys.excepthook(*sys.exc_info())


# `atexit` comes too late: the event loop's thread has ended by then. These functions are called before threads are
# waited for; registering them is private to Python, and concurrent.futures needs it for the same reason.
if hasattr(threading, "_register_atexit"):
    threading._register_atexit(_close_all)
