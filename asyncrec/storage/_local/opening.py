"""The only module that calls open(2). Each function is named for the kind of file that it opens. All of them block.

Callers choose the names of objects, but asyncrec chooses the names of the files that it keeps next to them. If other
users can write to the folder, one of them may have created a file with one of these names. `make lint` and
`tests/test_structure.py` reject ``os.open`` in other modules. System errors are converted to asyncrec's.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from typing import Any

from asyncrec.errors import ObjectExistsError, ObjectNotFoundError, StorageError, StoragePermissionError

_NOT_OWN = (errno.ELOOP, errno.ENXIO, errno.EINVAL, errno.EMLINK)


def open_folder(path: str, *, system: Any = None) -> int:
    """Open a folder in order to sync or lock it.

    Raises:
        OSError: the system call failed.
    """
    fd: int = (os if system is None else system).open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    return fd


def create_file(path: str, mode: int = 0o600, *, system: Any = None) -> int:
    """Create a file that must not yet exist, and open it for writing.

    Raises:
        OSError: the file cannot be created, for example because the name exists, even as a dangling link.
    """
    fd: int = (os if system is None else system).open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
    return fd


def open_object(path: str, *, system: Any = None) -> int:
    """Open a user's file for reading. Links are followed. The caller must check that it is a regular file.

    Raises:
        OSError: the system call failed.
    """
    # Without O_NONBLOCK, opening a named pipe would wait for a writer.
    fd: int = (os if system is None else system).open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    return fd


def open_in_place(path: str, *, append: bool = False) -> int:
    """Open a user's file for reading and writing, or create it. Links are followed.

    With ``append``, every write goes to the end of the file.

    Raises:
        OSError: the system call failed.
    """
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | (os.O_APPEND if append else 0), 0o666)


def open_own(
    path: str,
    flags: int,
    mode: int = 0o600,
    *,
    linked: bool | Collection[str] = False,
    anyones: bool = False,
    system: Any = None,
) -> int:
    """Open a regular file that belongs to this user or root, in a folder that may contain other users' files.

    This is for the files that asyncrec keeps next to objects (locks, headers, journals) in a folder that others can
    write to, or that was extracted from an archive. Symbolic links, pipes and devices (on which opening could block)
    and other users' files are rejected. Only the last component of the path is checked.

    Args:
        flags: as for `os.open`. With ``O_TRUNC``, the file is truncated only after its owner has been checked.
        mode: the mode of a new file, before the umask.
        linked: whether the file may have other hard links, as it has while it is being published. A collection of paths
            allows only links with these paths.
        anyones: whether the file may belong to another user. This is for files whose content is not trusted, such as a
            lock in a shared folder.

    Raises:
        ObjectNotFoundError: the file does not exist, or was removed while it was being opened.
        StoragePermissionError: the file belongs to another user.
        StorageError: the file is a link, has another hard link, or is not a regular file, or the system call failed.
    """
    system = os if system is None else system
    with mapped_errors("opening", path):
        try:
            fd: int = system.open(path, flags & ~os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK, mode)
        except OSError as error:
            if error.errno == errno.ELOOP and os.path.islink(path):
                raise _not_own(StorageError, path, "it is a symbolic link", errno.ELOOP) from error
            if error.errno == errno.ENXIO:  # a pipe without a reader, or a socket
                raise _not_own(StorageError, path, "it is not a regular file", errno.ENXIO) from error
            raise
        try:
            status = system.fstat(fd)
            if not stat.S_ISREG(status.st_mode):
                raise _not_own(StorageError, path, "it is not a regular file", errno.EINVAL)
            if not status.st_nlink:
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
            if not anyones and status.st_uid not in (os.geteuid(), 0):
                who = f"it belongs to user {status.st_uid}, but this process runs as user {os.geteuid()}"
                raise _not_own(StoragePermissionError, path, who, errno.EPERM)
            if linked is not True and status.st_nlink > 1 + _names_of(status, linked or ()):
                what = "it has another hard link"
                raise _not_own(StorageError, path, what, errno.EMLINK, "if you trust it, replace it with a copy")
            if flags & os.O_TRUNC:
                system.ftruncate(fd, 0)
        except BaseException:
            os.close(fd)
            raise
    return fd


def own_file(path: str, *, system: Any = None) -> bool:
    """Return whether `open_own` would accept a file, judging by its type and owner, without opening it.

    Raises:
        OSError: the file exists, but its status cannot be read.
    """
    try:
        status = (os if system is None else system).lstat(path)
    except (FileNotFoundError, NotADirectoryError):
        return False
    return stat.S_ISREG(status.st_mode) and status.st_uid in (os.geteuid(), 0)


def _names_of(file: os.stat_result, paths: Collection[str]) -> int:
    """Return the number of paths that refer to the file."""
    found = 0
    for path in paths:
        with suppress(OSError):
            status = os.lstat(path)
            found += (status.st_dev, status.st_ino) == (file.st_dev, file.st_ino)
    return found


def is_not_own(error: StorageError) -> bool:
    """Return whether `open_own` raised this error because the file is not trusted or does not exist.

    Other errors have other causes, such as a failed disk or too many open files.
    """
    return isinstance(error, (ObjectNotFoundError, StoragePermissionError)) or error.errno in _NOT_OWN


def _not_own(kind: type[StorageError], path: str, what: str, code: int, then: str = "remove it") -> StorageError:
    error = kind(f"opening {path}: {what}; asyncrec trusts only a regular file that this user created here: {then}")
    error.errno = code
    return error


# For these operations, a file where a folder is expected means that the object does not exist.
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
    """Return the asyncrec error to raise from a system error. ``doing`` is a gerund, such as "reading"."""
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
    """Convert the system's errors in the block with `local_error`. asyncrec's own errors propagate unchanged."""
    try:
        yield
    except StorageError:
        raise
    except OSError as error:
        raise local_error(error, doing, path) from error
