"""Each body is sent with a checksum that the store verifies, and the response is compared with it."""

from __future__ import annotations

import os
from types import SimpleNamespace
from typing import Any

import crc32c
import pytest
from asyncrec_s3 import client as clients
from asyncrec_s3 import publication
from asyncrec_s3.parts import base64_of_crc
from s3_opening import Open

pytestmark = pytest.mark.anyio

CHUNK = 5 << 20


def checksums_sent(proxy: Any, operation: str) -> list[str]:
    """Return the checksums sent with each of these requests, in order of keys and parts."""
    names = {"Content-MD5": "md5", "x-amz-checksum-crc32c": "crc32c"}
    sent = [request for request in proxy.requests if request.operation == operation]
    return ["+".join(short for name, short in names.items() if name in request.headers) for request in sent]


async def test_store_verifying_crc32c_gets_no_md5(open_storage: Open, proxy: Any) -> None:
    """MD5 takes thirty times as long. It is sent until a response shows that the store verifies CRC32C."""
    proxy.echoes = True
    async with open_storage(max_concurrency=1) as storage:
        await storage.put("first", os.urandom(3 * CHUNK))
        assert checksums_sent(proxy, "UploadPart") == ["md5+crc32c", "crc32c", "crc32c"]
        await storage.put("small", b"small")
        assert checksums_sent(proxy, "PutObject") == ["crc32c"]
        async with open_storage() as other:
            await other.put("second", os.urandom(2 * CHUNK))
        assert checksums_sent(proxy, "UploadPart")[3:] == ["crc32c", "crc32c"], "what one learns the others know"


async def test_store_without_crc32c_gets_md5(open_storage: Open, proxy: Any) -> None:
    proxy.echoes = False
    async with open_storage(max_concurrency=1) as storage:
        await storage.put("large", os.urandom(3 * CHUNK))
        await storage.put("small", b"small")
    assert checksums_sent(proxy, "UploadPart") == ["md5+crc32c", "md5", "md5"]
    assert checksums_sent(proxy, "PutObject") == ["md5"]


async def test_store_rejecting_crc32c_gets_md5(open_storage: Open, proxy: Any) -> None:
    proxy.plan = lambda request: "501" if "x-amz-checksum-crc32c" in request.headers else None
    data = os.urandom(3 * CHUNK)
    async with open_storage(max_concurrency=1) as storage:
        await storage.put("large", data)
        assert await storage.get("large") == data
    assert checksums_sent(proxy, "UploadPart") == ["md5+crc32c", "md5", "md5", "md5"]


async def test_store_dropping_crc32c_gets_md5_again(open_storage: Open, proxy: Any) -> None:
    """A part whose CRC32C was not verified is compared with its ETag, and uploaded again if that is wrong."""
    proxy.echoes = True
    wrong: list[str] = []

    def plan(request: Any) -> str | None:
        # For the second part, the store forgets what it supports, and returns the ETag of other data.
        if request.operation == "UploadPart" and "Content-MD5" not in request.headers and not wrong:
            proxy.echoes = False
            wrong.append(request.key)
            return "etag"
        return None

    proxy.plan = plan
    data = os.urandom(3 * CHUNK)
    async with open_storage(max_concurrency=1) as storage:
        await storage.put("large", data)
        assert await storage.get("large") == data
    assert wrong
    assert checksums_sent(proxy, "UploadPart") == ["md5+crc32c", "crc32c", "crc32c", "md5"]


async def test_wrong_part_etag_is_corrected_through_list_parts(open_storage: Open, proxy: Any) -> None:
    """Without an MD5, the error shows only when the store refuses to combine the parts."""
    proxy.echoes = True
    wrong: list[str] = []

    def plan(request: Any) -> str | None:
        if request.operation == "UploadPart" and "Content-MD5" not in request.headers and not wrong:
            wrong.append(request.key)
            return "etag"
        return None

    proxy.plan = plan
    data = os.urandom(3 * CHUNK)
    async with open_storage(max_concurrency=1) as storage:
        info = await storage.put("large", data)
        assert await storage.get("large") == data
        assert await storage.head("large") == info
    assert wrong
    assert proxy.operations().count("ListParts") == 1


async def test_encrypting_store_gets_each_part_once(
    open_storage: Open, proxy: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The ETag of encrypted data is not the MD5 of the sent data, although it may look like one."""
    proxy.echoes = False
    data = os.urandom(2 * CHUNK)
    async with open_storage(max_concurrency=1) as storage:
        call = storage.shared.bucket.call

        async def encrypted(name: str, what: str, **params: Any) -> dict[str, Any]:
            answer = await call(name, what, **params)
            if name == "upload_part":
                answer |= {"ETag": '"00000000000000000000000000000000"', "ServerSideEncryption": "aws:kms"}
            return answer

        monkeypatch.setattr(storage.shared.bucket, "call", encrypted)
        await storage.put("large", data)
        monkeypatch.undo()
        assert await storage.get("large") == data
    assert proxy.operations().count("UploadPart") == 2


async def test_completion_sends_whole_checksum_to_comparing_store(open_storage: Open, proxy: Any) -> None:
    """The size is sent, too. Other stores get neither, because they reject unknown parameters."""
    data = os.urandom(2 * CHUNK)
    proxy.echoes = False
    async with open_storage(connect_timeout=9.5) as storage:
        await storage.put("md5", data)
    proxy.echoes = True
    async with open_storage(connect_timeout=9.25, checksum="crc32c") as storage:
        await storage.put("crc32c", data)
    md5, crc = [request.headers for request in proxy.requests if request.operation == "CompleteMultipartUpload"]
    assert crc["x-amz-checksum-crc32c"] == base64_of_crc(crc32c.crc32c(data))
    assert crc["x-amz-mp-object-size"] == str(len(data))
    assert not {"x-amz-checksum-crc32c", "x-amz-mp-object-size"} & set(md5)


@pytest.mark.parametrize(
    ("url", "aws"),
    [
        ("https://s3.eu-west-1.amazonaws.com", True),
        ("https://s3.cn-north-1.amazonaws.com.cn", True),
        ("https://s3.amazonaws.com.evil.example", False),
        ("https://minio.example:9000", False),
        ("unknown", False),
    ],
)
def test_connection_presumes_capabilities_of_aws_endpoints_only(url: str, aws: bool) -> None:
    events = SimpleNamespace(unregister=lambda *args: None, register=lambda *args: None)
    connection = clients.Connection(SimpleNamespace(meta=SimpleNamespace(endpoint_url=url, events=events)))
    expected, known = True if aws else None, connection.known
    assert connection.is_aws is aws
    assert (known.crc32c, known.excludes_puts, known.excludes_parts) == (expected, expected, expected)


@pytest.mark.parametrize(
    ("answer", "crc", "etag", "expected"),
    [
        ({"ETag": '"e"', "ChecksumCRC32C": base64_of_crc(5)}, 5, "e", True),
        ({"ETag": '"e"', "ChecksumCRC32C": base64_of_crc(6)}, 5, "e", False),
        ({"ETag": "", "ChecksumCRC32C": base64_of_crc(5)}, 5, None, False),
        ({"ETag": '"e"'}, None, "e", True),
        ({"ETag": '"other"'}, None, "e", False),
        ({}, None, None, False),
    ],
)
def test_put_response_confirms_content_by_checksum_or_etag(
    answer: dict[str, Any], crc: int | None, etag: str | None, expected: bool
) -> None:
    """A checksum confirms the content if one was sent, and otherwise the ETag does, if there is one."""
    content = publication.Content(size=1, crc32c=crc, etag=etag, certain=False)
    assert publication._confirmed(answer, content) is expected


def test_publication_without_etag_reports_etag_unknown() -> None:
    content = publication.Content(size=1, crc32c=None, etag=None, certain=False)
    made = publication.Publication(SimpleNamespace(), "p/x", "x", "writer", exclusive=False)  # type: ignore[arg-type]  # not asked
    assert made._of_answer({}, content).etag == "unknown"
    assert made._of_answer({"ETag": '"e"'}, content).etag == "e"
