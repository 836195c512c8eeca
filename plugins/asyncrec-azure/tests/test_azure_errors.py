"""A response's status is checked first. A response that lacks Azure's headers is not from the store."""

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
    """A load balancer's page that claims to be XML makes the SDK raise its own error."""
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


@pytest.mark.parametrize("kind", ["read", "meta"])
async def test_static_page_of_gateway_is_not_the_object(azure: FakeAzure, kind: str) -> None:
    """The page looks like an object, except that it lacks the id that Azure gives to each request."""
    page = b"<html>We are back soon</html>"
    headers = {"ETag": '"65f0-2a"', "Last-Modified": "Mon, 02 Mar 2026 10:00:00 GMT"}
    answer = azure.answer

    async def answer_or_page(request: web.BaseRequest, asked: str, how: str) -> web.Response:
        if asked != kind or azure.counts[kind] > 1:
            return await answer(request, asked, how)
        if kind == "meta":
            return web.Response(headers=headers | {"Content-Length": str(len(page))})
        span = {"Content-Range": f"bytes 0-{len(page) - 1}/{len(page)}"}
        return web.Response(status=206, body=page, headers=headers | span)

    azure.answer = answer_or_page  # type: ignore[method-assign]  # for this test
    try:
        async with open_quick(azure.endpoint) as storage:
            await storage.put("key", b"x")
            if kind == "read":
                assert await storage.get("key") == b"x"
            else:
                assert (await storage.head("key")).size == 1
    finally:
        del azure.answer
    assert azure.counts[kind] == 2


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
