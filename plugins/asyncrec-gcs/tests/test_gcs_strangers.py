"""Responses that are not from GCS, or are unlike those of GCS."""

from __future__ import annotations

import pytest
from aiohttp import web
from fake_gcs import FakeGcs, Fault
from opening import open_quick

from asyncrec.errors import ObjectNotFoundError, StorageError, TransientStorageError

pytestmark = pytest.mark.anyio


async def test_error_suggests_checking_endpoint_after_unexplained_404(
    gcs: FakeGcs, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For example, STORAGE_EMULATOR_HOST has a path, so the responding server does not know the object."""
    monkeypatch.setattr(gcs, "error", lambda *_: web.Response(status=404, text="<html>Not here</html>"))
    gcs.plan = lambda kind, n: Fault("status", 404)
    async with open_quick() as storage:
        for operation in (storage.head("key"), storage.put("key", b"x"), storage.delete("key")):
            with pytest.raises(
                StorageError, match=f"the response is not from GCS; check the endpoint {gcs.url}"
            ) as raised:
                await operation
            assert type(raised.value) is StorageError


async def test_listing_rejects_page_naming_itself_as_next(gcs: FakeGcs) -> None:
    gcs.page = 200, '{"kind": "storage#objects", "nextPageToken": "a"}'
    gcs.plan = lambda kind, n: Fault("answer")
    async with open_quick() as storage:
        with pytest.raises(StorageError, match="the same page again"):
            [info async for info in storage.list_objects()]
    assert gcs.counts["list"] == 2


async def test_delete_accepts_emulator_status_200(gcs: FakeGcs) -> None:
    gcs.put("key", b"x")
    gcs.plan = lambda kind, n: Fault("status-after", 200) if kind == "delete" else None
    async with open_quick() as storage:
        await storage.delete("key")
        with pytest.raises(ObjectNotFoundError):
            await storage.head("key")
    assert gcs.counts["delete"] == 1


async def test_upload_session_without_url_is_reopened(gcs: FakeGcs) -> None:
    gcs.page = 200, "{}"
    gcs.plan = lambda kind, n: Fault("answer") if n == 1 else None
    async with open_quick() as storage:
        await storage.put("key", b"x")
    assert gcs.counts["open"] == 2


async def test_listing_raises_transient_error_for_invalid_page(gcs: FakeGcs) -> None:
    gcs.page = 200, "{}"
    gcs.plan = lambda kind, n: Fault("answer")
    async with open_quick() as storage:
        with pytest.raises(TransientStorageError, match="not a list of objects"):
            [info async for info in storage.list_objects()]
