"""`trusting`: what an HTTPS client trusts, told at once, and by name, where that cannot be used."""

from __future__ import annotations

import os
import ssl
from functools import lru_cache

from asyncrec.errors import StorageError


def trusting(path: str | None, *, named_by: str, what: str, shared: bool = False) -> ssl.SSLContext:
    """Give the context of a client that trusts the authorities in a file, or those of this machine. It reads files.

    Args:
        path: of certificates in PEM form; `None` for the machine's.
        named_by: what named the file, an option or an environment variable, for the message.
        what: is being done, for the message.
        shared: give one context to all who ask for the same, as the file is now: to read and parse an ordinary file of
            140 authorities takes 25 ms of processor time. For clients that set nothing on their context, in any
            thread: aiohttp's; not httpx's, which say on it, for each connection, which protocols they speak.

    Raises:
        StorageError: the file is not there, cannot be read, or holds none: else every request would fail, late and
            unnamed.
    """
    where = f"{what}: {path}, the authorities named by {named_by}"
    paths = ssl.get_default_verify_paths()
    file = path or paths.cafile
    try:
        if file is None or not shared:  # a machine whose authorities are in no file finds them quickly, one by one
            return ssl.create_default_context(cafile=path)
        state = os.stat(file)
        changed = (state.st_dev, state.st_ino, state.st_size, state.st_mtime_ns)
        return _shared(path, (paths.cafile, paths.capath), changed)
    except ssl.SSLError as error:
        raise StorageError(f"{where}: not a file of certificates in PEM form ({error.reason})") from None
    except OSError as error:
        raise StorageError(f"{where}: {error.strerror}") from None


@lru_cache(8)
def _shared(path: str | None, default: tuple[str | None, ...], changed: tuple[int, ...]) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=path)
