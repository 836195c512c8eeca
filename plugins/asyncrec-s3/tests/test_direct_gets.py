"""GET requests that are built and signed without the SDK equal those that the SDK would send."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import botocore.auth
import pytest
from asyncrec_s3.direct import quoted, sign
from botocore.auth import S3SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from s3_opening import Open

from asyncrec.errors import ObjectChangedError, ObjectNotFoundError, StoragePermissionError

# The header that identifies requests of the SDK.
OF_THE_SDK = "amz-sdk-invocation-id"
ADDRESSES = ("https://bucket.s3.eu-west-1.amazonaws.com/", "http://127.0.0.1:9000/bucket/", "https://Host:443/b/")
keys = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=60)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    address=st.sampled_from(ADDRESSES),
    key=keys,
    span=st.none() | st.tuples(st.integers(0, 10**6), st.integers(0, 10**6)),
    etag=st.none() | st.from_regex(r'"[0-9a-f]{4,32}(-\d+)?"', fullmatch=True),
    token=st.none() | st.from_regex(r"[A-Za-z0-9+/=]{1,80}", fullmatch=True),
    now=st.datetimes(datetime(2020, 1, 1), datetime(2080, 1, 1)),
)
def test_signature_matches_sdk(
    address: str, key: str, span: tuple[int, int] | None, etag: str | None, token: str | None, now: datetime
) -> None:
    headers = {"User-Agent": "tests"}
    if span is not None:
        headers["Range"] = f"bytes={span[0]}-{span[1]}"
    if etag is not None:
        headers["If-Match"] = etag
    url = address + quoted(key)
    request = AWSRequest("GET", url, headers=dict(headers))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(botocore.auth, "get_current_datetime", lambda: now)
        S3SigV4Auth(Credentials("AKIAEXAMPLE", "secret/of+one", token), "s3", "eu-west-1").add_auth(request)
    sign(url, headers, "eu-west-1", "AKIAEXAMPLE", "secret/of+one", token, now=now.replace(tzinfo=UTC))
    assert headers["Authorization"] == request.headers["Authorization"]


@pytest.mark.anyio
@pytest.mark.parametrize("anyio_backend", ["asyncio"])
@pytest.mark.parametrize("key", ["plain", "folder/a b+c&d=é~(1)%.txt", "a//b"])
async def test_second_read_bypasses_sdk_and_returns_same_bytes(open_storage: Open, proxy: Any, key: str) -> None:
    async with open_storage() as storage:
        await storage.put(key, b"what is there")
        proxy.requests.clear()
        assert [await storage.get(key) for _ in range(3)] == [b"what is there"] * 3
        async with storage.open_source(key, start=5, end=7) as source:
            assert await source.receive(100) == b"is"
    gets = [request for request in proxy.requests if request.operation == "GetObject"]
    assert [OF_THE_SDK in {name.lower() for name in request.headers} for request in gets] == [True, *[False] * 3]
    assert len({request.key for request in gets}) == 1


@pytest.mark.anyio
@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_direct_get_raises_same_errors_as_sdk(open_impatient: Open, proxy: Any) -> None:
    async with open_impatient() as storage:
        await storage.put("key", b"first")
        await storage.get("key")
        found = await storage.head("key")
        proxy.requests.clear()
        with pytest.raises(ObjectNotFoundError, match="NoSuchKey"):
            await storage.get("another")
        assert [request.operation for request in proxy.requests] == ["GetObject"]
        await storage.put("key", b"other")
        with pytest.raises(ObjectChangedError):
            async with storage.open_source("key", info=found) as source:
                await source.receive(10)
        proxy.plan = lambda request: "403"
        with pytest.raises(StoragePermissionError, match="AccessDenied"):
            await storage.get("key")


@pytest.mark.anyio
@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_direct_get_retries_transient_fault(open_impatient: Open, proxy: Any) -> None:
    async with open_impatient() as storage:
        await storage.put("key", b"what is there")
        await storage.get("key")
        for fault in ("500", "reset", "truncate", "slowdown"):
            faults = [fault]
            proxy.plan = lambda request, faults=faults: faults.pop() if faults else None
            assert await storage.get("key") == b"what is there", fault
            assert not faults
