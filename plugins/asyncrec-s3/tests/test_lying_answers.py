"""A store's responses are checked against the requests: checksums, echoes, and the order of listings."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from typing import Any

import anyio
import pytest
from s3_opening import Open
from s3_store import CHUNK, Store

from asyncrec.errors import IntegrityError, StorageError, TransientStorageError

pytestmark = [pytest.mark.anyio, pytest.mark.parametrize("anyio_backend", ["asyncio"])]

WRONG = "AAAAAA=="  # the CRC32C of other bytes
DATA = os.urandom(CHUNK + 10)


async def test_object_with_mismatching_checksum_is_removed(
    open_impatient: Open, proxy: Any, whole: Callable[..., Any]
) -> None:
    def alter(request: Any, headers: dict[str, str], content: bytes) -> tuple[dict[str, str], bytes]:
        if request.operation in ("PutObject", "HeadObject"):
            headers = {name: value for name, value in headers.items() if "checksum" not in name.lower()}
            headers |= {"x-amz-checksum-crc32c": WRONG, "x-amz-checksum-type": "FULL_OBJECT"}
        return headers, content

    async with open_impatient(checksum="crc32c") as storage:
        proxy.alter = alter
        with pytest.raises(IntegrityError, match="CRC32C"):
            await storage.put("x", b"some bytes")
    await whole("x", None)


async def test_part_with_mismatching_checksum_echo_is_resent(
    open_impatient: Open, proxy: Any, whole: Callable[..., Any]
) -> None:
    altered: list[str] = []

    def alter(request: Any, headers: dict[str, str], content: bytes) -> tuple[dict[str, str], bytes]:
        if request.operation == "UploadPart" and not altered:
            altered.append(request.key)
            headers = headers | {"x-amz-checksum-crc32c": WRONG}
        return headers, content

    proxy.echoes = True
    proxy.alter = alter
    async with open_impatient(checksum="crc32c") as storage:
        await storage.put("x", DATA)
    assert proxy.operations().count("UploadPart") == 3
    await whole("x", DATA)


async def test_unsorted_listing_is_rejected(open_impatient: Open, proxy: Any) -> None:
    def alter(request: Any, headers: dict[str, str], content: bytes) -> tuple[dict[str, str], bytes]:
        entries = re.findall(rb"<Contents>.*?</Contents>", content, re.DOTALL)
        if len(entries) == 2:
            content = content.replace(b"".join(entries), b"".join(entries[::-1]))
            turned.append(content)
        return headers, content

    turned: list[bytes] = []
    async with open_impatient() as storage:
        await storage.put("a", b"1")
        await storage.put("b", b"2")
        proxy.alter = alter
        with pytest.raises(StorageError, match="order"):
            [info async for info in storage.list_objects()]
    assert turned


async def test_failed_completion_is_aborted_before_lookup(
    open_impatient: Open, proxy: Any, whole: Callable[..., Any]
) -> None:
    """The completion may still be in transit, and could take effect after the look-up."""
    proxy.plan = lambda request: "500" if request.operation == "CompleteMultipartUpload" else None
    async with open_impatient() as storage:
        with pytest.raises(TransientStorageError):
            await storage.put("x", DATA)
    operations = proxy.operations()
    last = max(at for at, operation in enumerate(operations) if operation == "CompleteMultipartUpload")
    behind = [operation for operation in operations[last:] if operation in ("AbortMultipartUpload", "HeadObject")]
    assert behind[:2] == ["AbortMultipartUpload", "HeadObject"]
    await whole("x", None)


async def test_cleanup_keeps_foreign_uploads_with_parts(
    open_impatient: Open, proxy: Any, store: Store, prefix: str
) -> None:
    """Our upload is removed even if its creation got no response, but another writer's upload of this key is not."""
    client, where = store.client, {"Bucket": store.bucket, "Key": f"{prefix}/x"}

    def begin() -> str:
        theirs = str(client.create_multipart_upload(**where)["UploadId"])
        client.upload_part(**where, UploadId=theirs, PartNumber=1, Body=bytes(CHUNK))
        return theirs

    theirs = await anyio.to_thread.run_sync(begin)
    proxy.plan = lambda request: (
        "500-after" if (request.operation, request.nth) == ("CreateMultipartUpload", 0) else None
    )
    async with open_impatient() as storage:
        await storage.put("x", DATA)
    assert proxy.operations().count("AbortMultipartUpload") == 1
    assert await anyio.to_thread.run_sync(store.unfinished, prefix) == [f"{prefix}/x"]
    await anyio.to_thread.run_sync(lambda: client.abort_multipart_upload(**where, UploadId=theirs))
