"""Bodies of requests: sent in blocks, and hashed off the loop where the payload is signed.

botocore hashes a body while it signs, on the loop's thread: 13 to 23 ms for 8 MiB. With ``payload_signing=True`` the
hash is computed beforehand in a worker thread, and a subclass of the SDK's signer takes it from the body; it has a
name of its own in the SDK's table of signers, and only such clients choose it. Otherwise nothing hashes the payload
but our own checksum, whose header is signed.
"""

from __future__ import annotations

import hashlib
import io
from collections.abc import Iterator
from typing import Any

import anyio
import botocore.auth

from asyncrec.tasks import in_thread

__all__ = ["Body", "body_of", "sign_in_thread"]

_NAME = "asyncrec-s3v4"


class Body(io.BytesIO):
    """A body in memory that is sent in blocks.

    The httpx session iterates over it, and a plain `io.BytesIO` gives lines: 4 MiB/s for binary data.

    Attributes:
        sha256: in hexadecimal, where payloads are signed.
    """

    sha256: str | None = None

    def __iter__(self) -> Iterator[bytes]:
        return self

    def __next__(self) -> bytes:
        if block := self.read(1 << 18):
            return block
        raise StopIteration


async def body_of(data: bytes, *, hashed: bool, limiter: anyio.CapacityLimiter) -> Body:
    """A fresh body for one attempt; shares ``data``'s memory."""
    body = Body(data)
    if hashed:
        body.sha256 = await in_thread(_sha256, data, limiter=limiter)
    return body


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


class _Signer(botocore.auth.S3SigV4Auth):  # type: ignore[misc]  # botocore ships no types
    def payload(self, request: Any) -> str:
        known: str | None = getattr(request.body, "sha256", None)
        if known is None:
            known = super().payload(request)
        return known


def sign_in_thread(session: Any) -> None:
    """Let the clients of this session take a body's hash from the body."""
    botocore.auth.AUTH_TYPE_MAPS.setdefault(_NAME, _Signer)
    session.register("choose-signer.s3", _choose)


def _choose(signature_version: Any = None, **_: Any) -> str | None:
    return _NAME if signature_version == "s3v4" else None
