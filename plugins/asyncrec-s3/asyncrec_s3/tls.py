"""The SDK's HTTP session on asyncio, whose clients share what they trust.

Each client would read and parse the same 140 authorities: 25 ms of processor time, as much as all else that opening one
takes. On trio each does: httpx says on its context, for each connection, which protocols it speaks, and another thread
may be using it.
"""

from __future__ import annotations

import os
import ssl
from functools import lru_cache
from typing import Any

from aiobotocore.httpsession import AIOHTTPSession
from botocore.httpsession import create_urllib3_context, get_cert_path

__all__ = ["SharingSession"]


@lru_cache(8)
def _trusting(path: str, changed: tuple[int, ...]) -> ssl.SSLContext:
    """What the SDK makes for a client that trusts the authorities in a file, as the file is now. Nobody changes it."""
    context: ssl.SSLContext = create_urllib3_context()
    context.check_hostname = True
    context.load_verify_locations(path)
    return context


class SharingSession(AIOHTTPSession):  # type: ignore[misc]  # without types
    """With a certificate of its own, or a proxy, a client has a context of its own, for the SDK adds to it."""

    def __init__(self, *, verify: Any = True, proxies: Any = None, client_cert: Any = None, **rest: Any) -> None:
        super().__init__(verify=verify, proxies=proxies, client_cert=client_cert, **rest)
        self._authorities = get_cert_path(verify) if verify and not (proxies or client_cert) else None

    def _build_verify_context(self) -> ssl.SSLContext:
        if self._authorities is not None and os.path.isfile(self._authorities):
            file = os.stat(self._authorities)
            return _trusting(self._authorities, (file.st_dev, file.st_ino, file.st_size, file.st_mtime_ns))
        context: ssl.SSLContext = super()._build_verify_context()
        return context
