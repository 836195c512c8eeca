"""With ``payload_signing=True``, the SHA-256 of a body is signed."""

from __future__ import annotations

import hashlib
from typing import Any

import pytest
from botocore.auth import S3SigV4Auth
from s3_opening import Open

pytestmark = pytest.mark.anyio


async def test_signed_payload_requests_carry_body_hash(open_storage: Open, proxy: Any) -> None:
    async with open_storage(payload_signing=True) as storage:
        await storage.put("key", b"some bytes")
        assert await storage.get("key") == b"some bytes"
    sent = {request.operation: request.headers["X-Amz-Content-SHA256"] for request in proxy.requests}
    assert sent.pop("PutObject") == hashlib.sha256(b"some bytes").hexdigest()
    assert sent
    assert set(sent.values()) == {hashlib.sha256(b"").hexdigest()}


async def test_sdk_hashes_no_request_body(open_storage: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    hashed: list[Any] = []
    payload = S3SigV4Auth.payload

    def watched(signer: Any, request: Any) -> Any:
        hashed.append(request.body)
        return payload(signer, request)

    monkeypatch.setattr(S3SigV4Auth, "payload", watched)
    async with open_storage(payload_signing=True) as storage:
        await storage.put("key", b"some bytes")
        assert await storage.get("key") == b"some bytes"
    assert hashed, "what has no body"
    assert not any(hashed)
