"""A local file of records that grows in place, for readers that follow it: written without an event loop.

What an event file needs (`asyncrec.open_writer` with ``mode="a"`` is the same, async): it is continued behind its last
whole record, has one writer at a time, and takes whole records only, so that a reader meets no part of one for longer
than a write lasts. It works where no loop can run any more, in exit handlers; and what was written and not flushed is
written when the file is dropped, as with any file of Python's.
"""

from __future__ import annotations

import fcntl
import io
import os

from asyncrec.errors import StorageError
from asyncrec.records.torn_end import whole_end
from asyncrec.storage.local_disk import local_error, mapped_errors

__all__ = ["LiveFile"]

# As much as Python's own files hold: nothing shows later than it did with tensorboardX.
_BUFFER = 8 << 10


class LiveFile:
    """Opened for appending; its folder is made where it is missing.

    Once writing has failed, which may leave a part of a record at the end, nothing more is written, and every call says
    so; opening the file again cuts that part off.

    Raises:
        StorageError: another writer has it; or the disk failed.
        CorruptRecordError: what is there is no TFRecord file, or damaged elsewhere than at its end. It stays as it is.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        self._held = 0
        self._failure: OSError | None = None
        self._file = _open(path)

    def write(self, frame: bytes) -> None:
        """Append the bytes of one record."""
        self._check()
        try:
            if self._held + len(frame) > _BUFFER:
                self._file.flush()
                self._held = 0
            self._file.write(frame)
            self._held += len(frame)
            if self._held > _BUFFER:
                self._file.flush()
                self._held = 0
        except OSError as error:
            raise self._failed("writing", error) from error

    def flush(self) -> None:
        """Show all of it, and have it on disk (fsync)."""
        self._check()
        try:
            self._file.flush()
            self._held = 0
            os.fsync(self._file.fileno())
        except OSError as error:
            raise self._failed("flushing", error) from error

    def close(self) -> None:
        """Write what is left, and let others have it. Called again, it does nothing."""
        if self._failure is not None:
            self._file.raw.close()
        self._check()
        try:
            self._file.close()
        except OSError as error:
            raise self._failed("closing", error) from error

    def _check(self) -> None:
        if self._failure is not None:
            raise local_error(self._failure, "writing, which failed before,", self._path) from self._failure

    def _failed(self, doing: str, error: OSError) -> StorageError:
        self._failure = error
        return local_error(error, doing, self._path)


def _open(path: str) -> io.BufferedWriter:
    with mapped_errors("opening", path):
        os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o666)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            size = os.fstat(fd).st_size
            end, _ = whole_end(fd, size, path, "")
            if end < size:
                os.ftruncate(fd, end)
            # Larger than what is ever held: it never writes of its own accord, which might be a part of a record.
            return io.BufferedWriter(io.FileIO(fd, "ab"), 2 * _BUFFER)
        except BaseException as error:
            os.close(fd)
            if isinstance(error, BlockingIOError):
                raise StorageError(f"{path}: another writer has it open; one at a time can write it") from error
            raise
