"""`trusting`: what an HTTPS client trusts, told at once, and by name, where that cannot be used."""

from __future__ import annotations

import os
import ssl
from functools import lru_cache

from asyncrec.errors import StorageError

__all__ = ["trusting"]


def trusting(path: str | None, *, named_by: str, what: str) -> ssl.SSLContext:
    """Give the context of a client that trusts the authorities in a file, or those of this machine. It reads files.

    All who trust the same, as the file is now, are given one context, which is not to be changed: to read and parse an
    ordinary file of 140 authorities takes 25 ms of processor time.

    Args:
        path: of certificates in PEM form; `None` for the machine's.
        named_by: the option or the environment variable that says so, for the error.
        what: the operation, for the error: ``"opening az://crawl"``.

    Raises:
        StorageError: the file is not there, or is none. Every request would fail otherwise, hours of back-off later,
            unnamed.
    """
    where = f"{what}: {path}, the authorities named by {named_by}"
    paths = ssl.get_default_verify_paths()
    file = path or paths.cafile
    try:
        state = None if file is None else os.stat(file)
        changed = () if state is None else (state.st_dev, state.st_ino, state.st_size, state.st_mtime_ns)
        return _context(path, (paths.cafile, paths.capath), changed)
    except ssl.SSLError as error:
        raise StorageError(f"{where}: not a file of certificates in PEM form ({error.reason})") from None
    except OSError as error:
        raise StorageError(f"{where}: {error.strerror}") from None


@lru_cache(8)
def _context(path: str | None, default: tuple[str | None, ...], changed: tuple[int, ...]) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=path)
