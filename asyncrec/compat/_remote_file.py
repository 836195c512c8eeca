"""A `RemoteFile` is `asyncrec.blocking.open_file` for code that has a ``close()``, a ``flush()`` and no ``with``.

A store shows whole objects. So a flush publishes an object with all bytes so far, and the next flush uploads it again
with the new ones, under the same name: an object of a few MiB, as event files are, always holds all that was flushed. A
larger object, or one flushed so often that the uploads would exceed many times its size, is left as it is, and the file
continues in another object, named like the first plus a number. Sorted by name they are in order, only the last one
changes, and TensorBoard follows them so. A file that is never flushed is one object, sent once.
"""

from __future__ import annotations

import os
import threading
import time
import warnings
from contextlib import AbstractContextManager

from asyncrec import blocking
from asyncrec.compat._left_open import close_dropped, forget, keep
from asyncrec.errors import StorageError
from asyncrec.storage._registry import foreign_factory
from asyncrec.storage._url import redact

# Handed on to the event loop together: its call of 60 us is then a fraction of a microsecond for each record.
_BUFFER = 512 << 10
# Kept in memory, to be sent again. Most event files end below it; a part of a multipart upload is as large.
_SENT_AGAIN = 8 << 20
# Bytes that may be sent again altogether: this many at once, this multiple of what was written, and this many each
# second. A flush every two minutes, as tensorboardX does, is far below that; one after each record is not.
_BURST = 16 << 20
_TIMES = 8
_EACH_SECOND = 1 << 20


class RemoteFile:
    """A file object that collects what is written and hands it on in large pieces. `flush` and `close` publish it.

    After a write that failed or was interrupted, nothing more is published, and every later call raises. A file that is
    dropped is closed, and one that is left open is closed when Python ends.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._upload = _Upload(os.fspath(path))

    def write(self, data: bytes) -> None:
        with self._upload.lock:
            self._upload.write(data)

    def flush(self) -> None:
        """Publish all bytes so far, which then survive the process."""
        with self._upload.lock:
            self._upload.flush()

    def close(self) -> None:
        self._upload.close()

    def abort(self) -> None:
        """Abandon all bytes that were not flushed."""
        with self._upload.lock:
            self._upload.abort()

    def __del__(self) -> None:
        upload = getattr(self, "_upload", None)
        if upload is not None:
            close_dropped(upload)


class _Upload:
    def __init__(self, path: str) -> None:
        self.lock = threading.RLock()  # one that was dropped may be closed by two threads, when Python ends
        self._path = path
        # A user's simple factory shows what it likes, and cannot be opened twice for one file.
        self._shows = foreign_factory(path) is not None
        self._name = path
        self._number = 0
        self._pending = bytearray()
        self._object: bytearray | None = bytearray()  # all of the one that is written; None when it is too large
        self._written = 0
        self._again = 0
        self._began = time.monotonic()
        self._failure: BaseException | None = None
        self._closed = False
        self._context: AbstractContextManager[blocking.FileWriter] | None = None
        self._begin()
        keep(self)

    @property
    def _what(self) -> str:
        return redact(self._path)

    def write(self, data: bytes) -> None:
        self._check()
        if self._closed:
            raise ValueError(f"{self._what}: the file is closed and cannot be written to")
        self._pending += data
        if len(self._pending) >= _BUFFER:
            self._hand_on()

    def flush(self) -> None:
        self._check()
        if self._closed:
            return
        if self._shows:
            self._hand_on()
            self._file.flush()
        else:
            self._publish()

    def close(self) -> None:
        with self.lock:
            self._check()
            if not self._closed:
                self._publish()
                self._closed = True
                forget(self)

    def abort(self) -> None:
        if not self._closed:
            self._closed = True
            forget(self)
            self._leave(_AbortedError())

    def _check(self) -> None:
        if self._failure is not None:
            raise StorageError(
                f"{self._what}: the file was not published, because an earlier write failed"
            ) from self._failure

    def _publish(self) -> None:
        if self._context is None and not self._pending:  # it is all there
            return
        self._hand_on()
        try:
            self._leave(None)
        except BaseException as error:
            self._fail(error)
            raise

    def _hand_on(self) -> None:
        try:
            if self._context is None:
                self._go_on()
            data = bytes(self._pending)
            self._file.write(data)
        except BaseException as error:
            self._fail(error)
            raise
        self._pending.clear()
        self._written += len(data)
        if self._object is not None:
            self._object += data
            if len(self._object) > _SENT_AGAIN:
                self._object = None

    def _go_on(self) -> None:
        """Begin an upload after a flush: of the same object again, or of one that continues it."""
        allowed = _BURST + _TIMES * self._written + _EACH_SECOND * (time.monotonic() - self._began)
        if self._object is None or self._again + len(self._object) > allowed:
            self._number += 1
            self._name = f"{self._path}.{self._number:06d}"
            self._object = bytearray()
            if self._number == 1:
                warnings.warn(
                    f"{self._what}: the file continues in {redact(self._name)}, because it has grown too large to "
                    "be uploaded again at each flush. Sorted by name, its objects are in order. Without flushes, "
                    "the file would be one object",
                    RuntimeWarning,
                    stacklevel=2,
                )
            self._begin()
        else:
            self._begin()
            self._again += len(self._object)
            self._file.write(bytes(self._object))

    def _begin(self) -> None:
        context = blocking.open_file(self._name)
        self._file = context.__enter__()
        self._context = context

    def _fail(self, error: BaseException) -> None:
        self._failure = error
        self.abort()

    def _leave(self, error: BaseException | None) -> None:
        context, self._context = self._context, None
        if context is not None:
            context.__exit__(type(error) if error else None, error, None)


class _AbortedError(Exception):
    """An error that an object's context is left with, so that it publishes nothing."""
