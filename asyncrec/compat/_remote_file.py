"""`RemoteFile`: `asyncrec.blocking.open_file` for code that calls ``flush`` and ``close`` instead of using ``with``.

Stores can only publish complete objects. A flush therefore publishes an object with all bytes written until then, and
the next flush uploads those bytes again, followed by the new ones, under the same name. A file of a few MiB, such as an
event file, is thus always one object with all flushed bytes. If the file grows larger, or is flushed so often that many
times its size would be uploaded, that object is left as it is, and the file continues in a new object, whose name ends
with a number. Sorted by name, the objects are in order and only the last one changes, as TensorBoard expects. A file
that is never flushed is uploaded once.
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

# The number of bytes passed to the event loop in one call, which takes 60 us: a fraction of a microsecond per record.
_BUFFER = 512 << 10
# The maximum size of an object whose bytes are kept in memory, to be uploaded again. Most event files are smaller. This
# is also the part size of a multipart upload.
_SENT_AGAIN = 8 << 20
# The limit on the bytes that are uploaded again: a burst, plus a multiple of the bytes written, plus an allowance per
# second. A flush every two minutes, as in tensorboardX, stays far below the limit; a flush after each record does not.
_BURST = 16 << 20
_TIMES = 8
_EACH_SECOND = 1 << 20


class RemoteFile:
    """A file object that buffers bytes and uploads them in large chunks. `flush` and `close` publish them.

    After a write has failed or has been interrupted, nothing more is published, and every later call raises an error.
    The file is closed when it is garbage-collected or when Python exits.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._upload = _Upload(os.fspath(path))

    def write(self, data: bytes) -> None:
        with self._upload.lock:
            self._upload.write(data)

    def flush(self) -> None:
        """Publish all bytes written until now, so that they outlive the process."""
        with self._upload.lock:
            self._upload.flush()

    def close(self) -> None:
        self._upload.close()

    def abort(self) -> None:
        """Discard all bytes that have not been flushed."""
        with self._upload.lock:
            self._upload.abort()

    def __del__(self) -> None:
        upload = getattr(self, "_upload", None)
        if upload is not None:
            close_dropped(upload)


class _Upload:
    def __init__(self, path: str) -> None:
        self.lock = threading.RLock()  # when Python exits, two threads may both close a garbage-collected file
        self._path = path
        # If the user registered a factory, its sink decides when bytes become visible, and a file is opened only once.
        self._shows = foreign_factory(path) is not None
        self._name = path
        self._number = 0
        self._pending = bytearray()
        self._object: bytearray | None = bytearray()  # the bytes of the current object; None if it is too large
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
        if self._context is None and not self._pending:  # everything has been published
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
        """Begin the next upload after a flush: the same object again, or a new object that continues the file."""
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
    """The exception passed to an object's context on exit, so that the object is not published."""
