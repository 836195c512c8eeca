"""Raise the operating system's errors about files as asyncrec's, with advice on what to do."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager

from asyncrec.errors import ObjectExistsError, ObjectNotFoundError, StorageError, StoragePermissionError

# For these operations, a file in the place of a folder only means that there is nothing below it.
_LOOKING = ("looking up", "opening", "deleting", "listing")

_ADVICE = {
    errno.ENOSPC: "free some space, or write elsewhere",
    errno.EDQUOT: "the user's disk quota is used up: free some space, or write elsewhere",
    errno.EIO: "the disk reported a failure; check the system log and stop using this disk",
    errno.EMFILE: "raise the limit (ulimit -n), or open fewer shards and readers at once",
    errno.ENFILE: "the system-wide limit on open files is reached: close files that are not needed",
    errno.ENAMETOOLONG: "a file name can have at most 255 bytes, and asyncrec needs 18 of them for unfinished files",
    errno.ELOOP: "the symbolic links form a loop",
    errno.EISDIR: "a folder with this name exists: choose another key",
    errno.ENOTDIR: "one of the folders in this path is a file: choose another key",
    errno.EFBIG: "the file is too large for this filesystem: write smaller shards",
    errno.EROFS: "the filesystem is mounted read-only",
    errno.ENOLCK: "the filesystem does not support locks (flock): use a folder on a disk that does",
}


def local_error(error: OSError, doing: str, path: str) -> StorageError:
    """Return asyncrec's error for a system error while ``doing`` (a gerund) ``path``. Raise it from that error."""
    code = error.errno or 0
    kind: type[StorageError] = StorageError
    if isinstance(error, FileNotFoundError) or (code == errno.ENOTDIR and doing in _LOOKING):
        kind = ObjectNotFoundError
    elif isinstance(error, FileExistsError):
        kind = ObjectExistsError
    elif isinstance(error, PermissionError) or code == errno.EROFS:
        kind = StoragePermissionError
    advice = f"; {_ADVICE[code]}" if code in _ADVICE and kind is not ObjectNotFoundError else ""
    mapped = kind(f"{doing} {path}: {error.strerror or error}{advice}")
    mapped.errno = error.errno
    return mapped


@contextmanager
def mapped_errors(doing: str, path: str) -> Iterator[None]:
    """Raise the system's errors in the block as `local_error`; asyncrec's own errors propagate unchanged."""
    try:
        yield
    except StorageError:
        raise
    except OSError as error:
        raise local_error(error, doing, path) from error
