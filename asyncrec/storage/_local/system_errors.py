"""What the operating system says of a file is raised as an error of asyncrec's tree, with what can be done about it."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager

from asyncrec.errors import ObjectExistsError, ObjectNotFoundError, StorageError, StoragePermissionError

# To these, a file that stands where a folder should be means only that there is nothing below it.
_LOOKING = ("finding", "opening", "deleting", "listing")

_ADVICE = {
    errno.ENOSPC: "free some space, or write elsewhere",
    errno.EDQUOT: "the user's quota is used up: free some space, or write elsewhere",
    errno.EIO: "the disk failed; see the system's log, and do not use it any more",
    errno.EMFILE: "raise the limit (ulimit -n), or open fewer shards and readers at once",
    errno.ENFILE: "the system's limit is reached: close files that are not needed",
    errno.ENAMETOOLONG: "a name has at most 255 bytes, 18 of which an unfinished file needs",
    errno.ELOOP: "symbolic links lead round in a circle",
    errno.EISDIR: "a folder has that name: choose another key",
    errno.ENOTDIR: "a file has the name of one of its folders: choose another key",
    errno.EFBIG: "the filesystem does not allow larger files: write smaller shards",
    errno.EROFS: "the filesystem is mounted read-only",
    errno.ENOLCK: "the filesystem does not support locks (flock): use a folder on a disk that does",
}


def local_error(error: OSError, doing: str, path: str) -> StorageError:
    """Make the error of our tree for what the system said while ``doing`` (a gerund) ``path``; to be raised from it."""
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
    """Raise errors of the system in the block as `local_error`; those of our tree pass through."""
    try:
        yield
    except StorageError:
        raise
    except OSError as error:
        raise local_error(error, doing, path) from error
