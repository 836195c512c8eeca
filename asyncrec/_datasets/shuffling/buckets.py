"""`BucketFiles` manages the files of a shuffle. Records are appended to buckets with their hashes, and read back later.

Records are stored as TFRecord frames, so that corruption on disk is detected rather than returned as data. The files
are in a separate folder, which is created when it is needed, is readable only by this user, and is removed with the
object or when the process exits. If a process is killed, the next process that shuffles in the same place removes its
folder. A locked file marks the folders of running processes. A bucket file is open only while it is being written or
read. All methods block.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import weakref
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from struct import Struct
from typing import Any

from asyncrec._framing.frames import ANY_RECORD_BYTES, FrameDecoder, encode_frames
from asyncrec.errors import FormatError
from asyncrec.storage._local.disk import mapped_errors
from asyncrec.storage._local.lock import FileLock
from asyncrec.storage._local.opening import open_own

_READ_BYTES = 1 << 20
_PREFIX = "asyncrec-shuffle-"
_LOCK = ".lock"
# The hash, the number of the record, and the length in bytes of the key's text. The text and the record follow.
_HEAD = Struct("<16sQH")

Item = tuple[int, str, bytes]
"""A record's number, the text of its key for error messages (at most 65,535 bytes in UTF-8), and the record."""


class BucketFiles:
    """The files of one shuffle, one for each bucket.

    Args:
        parent: the folder in which the folder for the files is created; by default, the system's folder for temporary
            files.

    Attributes:
        written_bytes: the number of bytes written to all files.
    """

    def __init__(self, parent: str | os.PathLike[str] | None) -> None:
        self.written_bytes = 0
        self._parent = parent
        self._folder: str | None = None
        self._remover: weakref.finalize[..., Any] | None = None
        self._lock: FileLock | None = None

    def write(self, name: str, records: list[bytes]) -> None:
        """Append records to a file.

        Raises:
            StorageError: the disk is full, or the folder cannot be created.
        """
        with self._mapped():
            with open(self._path(name), "ab") as file:
                for buffer in encode_frames(records):
                    file.write(buffer)
                    self.written_bytes += len(buffer)

    def read(self, name: str) -> Iterator[bytes]:
        """Yield the records of a file, in the order in which they were written.

        Raises:
            CorruptRecordError, TruncatedError: the file differs from what was written to it.
        """
        path = self._path(name)
        decoder = FrameDecoder(max_record_bytes=ANY_RECORD_BYTES)  # no limit, because each record has been in memory
        try:
            with open(path, "rb") as file:
                while block := file.read(_READ_BYTES):
                    yield from decoder.feed(block)
            decoder.finish()
        except FormatError as error:
            error.path = path
            error.add_note(
                "a temporary file of the shuffle differs from the data written to it; the disk is probably faulty"
            )
            raise

    def remove(self, name: str) -> None:
        os.unlink(self._path(name))

    def close(self) -> None:
        """Remove all files. Further calls do nothing."""
        if self._remover is not None:
            self._remover()
        if self._lock is not None:
            self._lock.release()

    def _path(self, name: str) -> str:
        if self._folder is None:
            if self._parent is not None:
                os.makedirs(self._parent, exist_ok=True)
            _remove_dead(os.fspath(self._parent or tempfile.gettempdir()))
            self._folder = tempfile.mkdtemp(prefix=_PREFIX, dir=self._parent)
            self._remover = weakref.finalize(self, shutil.rmtree, self._folder, True)
            unlocked = os.path.join(self._folder, "unlocked")
            self._lock = FileLock(open_own(unlocked, os.O_RDWR | os.O_CREAT | os.O_EXCL), unlocked)
            os.rename(unlocked, os.path.join(self._folder, _LOCK))
        return os.path.join(self._folder, name)

    @contextmanager
    def _mapped(self) -> Iterator[None]:
        where = self._folder or os.fspath(self._parent or tempfile.gettempdir())
        try:
            with mapped_errors("spilling the shuffle's records to", where):
                yield
        except OSError as error:
            error.add_note("use another temporary_folder, or raise memory_limit, so that less is written to disk")
            raise


def _remove_dead(parent: str) -> None:
    """Remove the folders of processes that were killed."""
    with suppress(OSError):  # the folder belongs to another user, or another process is removing it
        for name in os.listdir(parent):
            if not name.startswith(_PREFIX):
                continue
            path = os.path.join(parent, name, _LOCK)
            with suppress(OSError):
                lock = FileLock(open_own(path, os.O_RDWR), path)
                shutil.rmtree(os.path.join(parent, name), ignore_errors=True)
                lock.release()


def pack(digest: bytes, item: Item) -> bytes:
    """Return the bytes that a bucket stores for a record."""
    number, key_text, record = item
    key = key_text.encode("utf-8", "surrogatepass")
    return b"".join((_HEAD.pack(digest, number, len(key)), key, record))


def unpack(data: bytes) -> tuple[bytes, Item]:
    """Return the hash and the item that were passed to `pack`."""
    digest, number, length = _HEAD.unpack_from(data)
    start = _HEAD.size + length
    return digest, (number, data[_HEAD.size : start].decode("utf-8", "surrogatepass"), data[start:])
