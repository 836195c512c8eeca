"""An answer is judged by its status first; an answer that is not the store's is known by what it lacks."""

from __future__ import annotations

import pytest
from aiohttp import web
from azure_api import FakeAzure
from azure_opening import open_quick
from serving import Fault, nth

from asyncrec.errors import StorageError, StoragePermissionError

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("status", [500, 502, 503])
@pytest.mark.parametrize("body", ["<html><body>nginx</body></html>", "", "<Error>"])
async def test_request_with_unparsable_error_body_is_retried(
    azure: FakeAzure, monkeypatch: pytest.MonkeyPatch, status: int, body: str
) -> None:
    """A load balancer's page, said to be XML: the SDK fails at it by an error of its own."""
    page = web.Response
    monkeypatch.setattr(azure, "error", lambda *_: page(status=status, text=body, content_type="application/xml"))
    async with open_quick(azure.endpoint) as storage:
        for operation in ("put", "list", "read"):
            azure.plan = nth(1, Fault("status"), operation)
            if operation == "put":
                await storage.put("key", b"x")
            elif operation == "list":
                assert [info.key async for info in storage.list_objects()] == ["key"]
            else:
                assert await storage.get("key") == b"x"
    assert azure.counts["put"] == azure.counts["list"] == azure.counts["read"] == 2


async def test_head_treats_unexplained_404_as_endpoint_error(azure: FakeAzure) -> None:
    azure.plan = lambda kind, n: Fault("status", 404, words="Not here")
    async with open_quick(azure.endpoint) as storage:
        with pytest.raises(StorageError, match="check the endpoint") as raised:
            await storage.head("key")
    assert type(raised.value) is StorageError


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({}, "the account_key, for the account devstoreaccount1"),
        ({"sas_token": "se=2026-01-01&sig=c4n4ry"}, "the sas_token, which ends at 2026-01-01"),
        ({"sas_token": "sig=c4n4ry"}, "the sas_token."),
        ({"anonymous": True}, "no credentials (anonymous=True)"),
    ],
)
async def test_permission_error_names_credentials_in_use(azure: FakeAzure, options: dict[str, str], words: str) -> None:
    azure.plan = lambda kind, n: Fault("status", 403, words="AuthenticationFailed: c4n4ry")
    async with open_quick(azure.endpoint, **options) as storage:
        with pytest.raises(StoragePermissionError) as raised:
            await storage.head("key")
    assert words in str(raised.value)
    assert "c4n4ry" not in str(raised.value)


async def test_listing_rejects_page_naming_itself_as_next(azure: FakeAzure) -> None:
    azure.page = 200, "<EnumerationResults><Blobs /><NextMarker>a</NextMarker></EnumerationResults>"
    azure.plan = lambda kind, n: Fault("answer")
    async with open_quick(azure.endpoint) as storage:
        with pytest.raises(StorageError, match="the same page again"):
            [info async for info in storage.list_objects()]
    assert azure.counts["list"] == 2
