"""`LiveFile`: a file of records that grows in place while other programs read it. It needs no event loop.

It is meant for TensorBoard's event files. Only complete records are passed to it, so a reader can see an incomplete
record only while a write is in progress. A file may have several writers (see `asyncrec.compat._shared_file`). The
class also works in exit handlers, where no event loop can run. As with any Python file, unflushed records are written
when the file is garbage-collected or when Python exits. A forked child writes only the records that it adds itself; the
parent writes those that were buffered before the fork.
"""

from __future__ import annotations

import atexit
import threading
import weakref
from contextlib import suppress

from asyncrec._concurrency.forks import on_fork
from asyncrec.compat._shared_file import SharedFile
from asyncrec.errors import FormatError, StorageError
from asyncrec.storage._local.disk import local_error

# The buffer size of Python's own files, so that records become visible no later than with tensorboardX.
_BUFFER = 8 << 10


class LiveFile:
    """A local file that is written in place.

    Opening the file creates its folder if necessary, and empties the file unless another writer has it open.

    After a write has failed, no more records are written, and every later call raises an error. Records that were
    written before the failure stay in the file.

    Raises:
        StorageError: an exclusive writer has the file open, or the disk failed.
    """

    def __init__(self, path: str) -> None:
        self._pending = bytearray()
        self._failure: OSError | FormatError | None = None
        self._closed = False
        self._lock = threading.RLock()
        self._inherited = False
        self._file = SharedFile(path)
        _open_files.add(self)
        on_fork(self)

    def write(self, frame: bytes) -> None:
        """Append the bytes of one record. Raise ValueError if the file is closed."""
        with self._lock:
            self._check()
            if self._pending and len(self._pending) + len(frame) > _BUFFER:
                self._append("writing")
            self._pending += frame
            if len(self._pending) > _BUFFER:
                self._append("writing")

    def flush(self) -> None:
        """Make all records visible and durable (fsync). Raise ValueError if the file is closed."""
        with self._lock:
            self._check()
            self._append("flushing")
            try:
                self._file.sync()
            except OSError as error:
                raise self._failed("flushing", error) from error

    def show(self) -> None:
        """Write the buffered records, unless the file is closed or has failed."""
        with self._lock:
            if not self._closed and self._failure is None:
                self._append("flushing")

    def close(self) -> None:
        """Write the buffered records and release the lock on the file. Idempotent."""
        with self._lock:
            if self._failure is None and self._closed:
                return
            self._check()
            self._append("closing")
            self._closed = True
            try:
                self._file.close(inherited=self._inherited)
            except OSError as error:
                raise self._failed("closing", error) from error

    def __del__(self) -> None:
        # A LiveFile that failed to open has no _file.
        if getattr(self, "_file", None) is not None and not self._closed and self._failure is None:
            with suppress(OSError, FormatError):  # no caller could catch the error, as with Python's own files
                self.close()

    def _append(self, doing: str) -> None:
        if not self._pending:
            return
        try:
            if self._inherited:
                self._file.reopen()
                self._inherited = False
            self._file.append(self._pending)
        except (OSError, FormatError) as error:
            raise self._failed(doing, error) from error
        self._pending = bytearray()

    def _check(self) -> None:
        if self._failure is not None:
            raise _told(self._failure, "writing (an earlier write failed)", self._file.path) from self._failure
        if self._closed:
            raise ValueError(f"{self._file.path}: the file is closed and cannot be written to")

    def _failed(self, doing: str, error: OSError | FormatError) -> Exception:
        self._failure = error
        with suppress(OSError):
            self._file.close(inherited=self._inherited)
        return _told(error, doing, self._file.path)

    def forked(self) -> None:
        """Discard the buffered records in a forked child; the parent writes them. The first write reopens the file."""
        self._lock = threading.RLock()  # a thread of the parent may have held the old lock
        self._pending = bytearray()
        self._inherited = True


def _told(error: OSError | FormatError, doing: str, path: str) -> Exception:
    if isinstance(error, StorageError | FormatError):
        return error if not doing.startswith("writing (") else type(error)(f"{doing} {path}: {error}")
    return local_error(error, doing, path)


_open_files: weakref.WeakSet[LiveFile] = weakref.WeakSet()


def _write_all() -> None:
    for file in list(_open_files):
        with suppress(OSError, FormatError):
            file.show()


atexit.register(_write_all)  # importers register their exit handlers later, so those run first
