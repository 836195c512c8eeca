"""The SDK's HTTP sessions, whose clients share what they trust.

Each client would read and parse the same 140 authorities: 25 ms of processor time, as much as all else that opening one
takes.
"""

from __future__ import annotations

import os
import ssl
from functools import lru_cache
from typing import Any

from aiobotocore.httpsession import AIOHTTPSession
from aiobotocore.httpxsession import HttpxSession
from botocore.httpsession import create_urllib3_context, get_cert_path

__all__ = ["AsyncioSession", "TrioSession"]


@lru_cache(8)
def _trusting(path: str, changed: tuple[int, ...]) -> ssl.SSLContext:
    """What the SDK makes for a client that trusts the authorities in a file, as the file is now. Nobody changes it."""
    context: ssl.SSLContext = create_urllib3_context()
    context.check_hostname = True
    context.load_verify_locations(path)
    return context


class _Sharing:
    """Before a session of the SDK: with a certificate of its own, or a proxy, a client has a context of its own.

    The SDK adds to the context where there is one of these, so that it could not be shared.
    """

    def __init__(self, *, verify: Any = True, proxies: Any = None, client_cert: Any = None, **rest: Any) -> None:
        given = {"verify": verify, "proxies": proxies, "client_cert": client_cert}
        super().__init__(**given, **rest)
        self._authorities = get_cert_path(verify) if verify and not (proxies or client_cert) else None

    def _build_verify_context(self) -> ssl.SSLContext:
        if self._authorities is not None and os.path.isfile(self._authorities):
            file = os.stat(self._authorities)
            return _trusting(self._authorities, (file.st_dev, file.st_ino, file.st_size, file.st_mtime_ns))
        context: ssl.SSLContext = super()._build_verify_context()  # type: ignore[misc]  # of the session behind
        return context


class AsyncioSession(_Sharing, AIOHTTPSession):  # type: ignore[misc]  # without types
    """The session on asyncio."""


class TrioSession(_Sharing, HttpxSession):  # type: ignore[misc]  # without types
    """The session on trio."""
