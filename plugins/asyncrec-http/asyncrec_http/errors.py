"""Translate the errors of a server and the HTTP client into asyncrec's, and classify transient ones.

No error is chained to the client's error, which contains the request, its headers and its URL.
"""

from __future__ import annotations

import ssl
from collections.abc import Mapping

import httpx2

from asyncrec.errors import (
    ObjectChangedError,
    ObjectNotFoundError,
    StorageError,
    StoragePermissionError,
    TransientStorageError,
)
from asyncrec.storage.http import connection_fault, parse_retry_after

_TRANSIENT = {408, 425, 429, 500, 502, 503, 504}


def of_answer(status: int, headers: Mapping[str, str], what: str) -> StorageError:
    """Return the error for a response's status. ``what`` is the operation, such as ``"https://host/key: reading"``."""
    text = f"{what}: HTTP {status}"
    if status in _TRANSIENT:
        return TransientStorageError(text, retry_after=parse_retry_after(headers.get("Retry-After")))
    if status in (404, 410):
        return ObjectNotFoundError(text)
    if status in (401, 403, 407):
        return StoragePermissionError(f"{text}; pass credentials with the options headers, query and proxy")
    if status in (412, 416):
        return ObjectChangedError(f"{text}; the file was replaced since it was opened; open it again")
    return StorageError(text)


def of_transport(error: Exception, what: str) -> StorageError:
    """Return the error for a failed connection, without the original text, which may contain the URL."""
    name = type(error).__name__
    one: BaseException | None = error
    while one is not None:
        if isinstance(one, ssl.SSLCertVerificationError):
            return StorageError(
                f"{what}: this machine does not trust the server's certificate ({one.verify_message}); pass a file "
                "of trusted authorities as the option ca_file or in the environment variable SSL_CERT_FILE"
            )
        one = one.__cause__ or one.__context__
    if isinstance(error, httpx2.ProxyError):
        return StoragePermissionError(f"{what}: {name}: the proxy refused the connection; check the option proxy")
    if isinstance(error, (httpx2.InvalidURL, httpx2.UnsupportedProtocol)):
        return StorageError(f"{what}: {name}: the URL is not usable; check it")
    return connection_fault(error, what)
