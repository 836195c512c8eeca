"""If a response is lost and a look-up fails as well, the error is that of the request, not of the look-up."""

from __future__ import annotations

import logging
import os
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from asyncrec_s3.bucket import Bucket
from s3_opening import Open
from s3_store import CHUNK

from asyncrec.errors import TransientStorageError

pytestmark = pytest.mark.anyio


async def test_error_of_put_carries_failed_lookup_as_note(open_impatient: Open, proxy: Any) -> None:
    async with open_impatient() as storage:
        proxy.plan = lambda request: {"PutObject": "500-after", "HeadObject": "403"}.get(request.operation)
        with pytest.raises(TransientStorageError) as caught:
            await storage.put("x", b"some bytes")
    (note,) = [each for each in caught.value.__notes__ if "it is unknown whether the object was published" in each]
    assert "403" in note


async def test_orphaned_upload_is_removed_despite_stale_listing(
    open_impatient: Open,
    proxy: Any,
    whole: Callable[..., Any],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Our own upload has ended: listing its parts would raise, and end the search for the orphaned one."""
    begun: list[str] = []
    call, uploads = Bucket.call, Bucket.uploads

    async def noting(self: Bucket, verb: str, *args: Any, **params: Any) -> dict[str, Any]:
        answer = await call(self, verb, *args, **params)
        if verb == "create_multipart_upload":
            begun.append(answer["UploadId"])
        return answer

    async def stale(self: Bucket, prefix: str) -> AsyncIterator[dict[str, Any]]:
        yield {"Key": prefix, "UploadId": begun[-1]}
        async for entry in uploads(self, prefix):
            yield entry

    monkeypatch.setattr(Bucket, "call", noting)
    monkeypatch.setattr(Bucket, "uploads", stale)
    proxy.plan = lambda request: (
        "500-after" if (request.operation, request.nth) == ("CreateMultipartUpload", 0) else None
    )
    data = os.urandom(CHUNK + 10)
    with caplog.at_level(logging.WARNING, "asyncrec"):
        async with open_impatient() as storage:
            await storage.put("x", data)
    assert [request.operation for request in proxy.requests].count("AbortMultipartUpload") == 1
    assert [record.getMessage() for record in caplog.records if "may be left" in record.getMessage()] == []
    await whole("x", data)
