"""`trusting`: what an HTTPS client trusts, told at once, and by name, where that cannot be used."""

from __future__ import annotations

import ssl

from asyncrec.errors import StorageError

__all__ = ["trusting"]


def trusting(path: str | None, *, named_by: str, what: str) -> ssl.SSLContext:
    """Make the context of a client that trusts the authorities in a file, or those of this machine. It reads files.

    Args:
        path: of certificates in PEM form; `None` for the machine's.
        named_by: the option or the environment variable that says so, for the error.
        what: the operation, for the error: ``"opening az://crawl"``.

    Raises:
        StorageError: the file is not there, or is none. Every request would fail otherwise, hours of back-off later,
            unnamed.
    """
    where = f"{what}: {path}, the authorities named by {named_by}"
    try:
        return ssl.create_default_context(cafile=path)
    except ssl.SSLError as error:
        raise StorageError(f"{where}: not a file of certificates in PEM form ({error.reason})") from None
    except OSError as error:
        raise StorageError(f"{where}: {error.strerror}") from None
