"""A proxy responds to some requests itself, with a page that describes no object or a different one."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import anyio.to_thread
import pytest
from s3_opening import Open
from s3_store import Store

from asyncrec.errors import ObjectNotFoundError, TransientStorageError

pytestmark = pytest.mark.anyio

DATA = random.Random(1).randbytes(100_000)
# Responses of servers that are not stores to unknown paths.
PAGES = {
    "html": b"<html><head><title>404 Not Found</title></head></html>",
    "words": b"default backend - 404",
    "nothing": b"",
    "json": b'{"message": "no Route matched with those values"}',
    "xml": b"<Error><Message>NoSuchKey</Message></Error>",
    "code": b"<Error><Code>404</Code></Error>",
}
# The headers with which a gateway sends its own page.
STATIC = {"ETag": '"65f0-2a"', "Last-Modified": "Mon, 02 Mar 2026 10:00:00 GMT"}
Plan = Callable[[Any], str | None]


def without_ids(request: Any, headers: dict[str, str], content: bytes) -> tuple[dict[str, str], bytes]:
    return {name: value for name, value in headers.items() if "request" not in name.lower()}, content


def once(operation: str, fault: str = "page", *, given: str = "") -> Plan:
    """The first request of this kind that has the header ``given`` goes wrong."""
    hit: list[int] = []

    def plan(request: Any) -> str | None:
        wanted = request.operation == operation and (not given or given in request.headers)
        if not wanted or (hit and request.number not in hit):
            return None
        hit.append(request.number)
        return fault

    return plan


def in_turn(*plans: Plan) -> Plan:
    return lambda request: next((fault for plan in plans if (fault := plan(request)) is not None), None)


@pytest.mark.parametrize("ids", [True, False], ids=["with ids", "without ids"])
async def test_continued_read_outlives_404_of_proxy(
    open_impatient: Open, proxy: Any, store: Store, prefix: str, ids: bool
) -> None:
    """The connection breaks in the middle of the body, and another server responds to the request for the rest."""
    store.put(f"{prefix}/x", DATA)
    if not ids:
        proxy.alter = without_ids
    proxy.page = 404, {}, PAGES["html"]
    proxy.plan = in_turn(once("GetObject", "truncate"), once("GetObject", given="If-Match"))
    async with open_impatient() as storage:
        assert await storage.get("x") == DATA
    assert proxy.operations() == ["GetObject"] * 3


@pytest.mark.parametrize("page", PAGES)
async def test_404_of_proxy_is_not_missing_object(
    open_impatient: Open, proxy: Any, store: Store, prefix: str, page: str
) -> None:
    """The store's own responses have no request id, so only the body distinguishes them from others."""
    store.put(f"{prefix}/x", DATA)
    proxy.alter = without_ids
    proxy.page = 404, {}, PAGES[page]
    async with open_impatient() as storage:
        proxy.plan = once("GetObject")
        assert await storage.get("x") == DATA
        proxy.plan = once("ListObjectsV2")
        assert [info.key async for info in storage.list_objects()] == ["x"]
        proxy.plan = once("DeleteObject")
        await storage.delete("x")
    assert await anyio.to_thread.run_sync(store.get, f"{prefix}/x") is None


async def test_lasting_404_of_proxy_names_its_body(open_impatient: Open, proxy: Any, store: Store, prefix: str) -> None:
    store.put(f"{prefix}/x", DATA)
    proxy.alter = without_ids
    proxy.page = 404, {}, PAGES["html"]
    proxy.plan = lambda request: "page"
    async with open_impatient() as storage:
        for operation in (storage.get, storage.delete):
            with pytest.raises(TransientStorageError, match="x: HTTP 404: the response has no error code of S3"):
                await operation("x")
    assert await anyio.to_thread.run_sync(store.get, f"{prefix}/x") == DATA


async def test_missing_objects_are_known_without_ids(open_impatient: Open, proxy: Any) -> None:
    proxy.alter = without_ids
    async with open_impatient() as storage:
        for _ in range(2):  # the plugin sends the first request through the SDK, and the second directly
            with pytest.raises(ObjectNotFoundError, match="NoSuchKey"):
                await storage.get("x")
        with pytest.raises(ObjectNotFoundError):
            await storage.head("x")
        await storage.delete("x")
    assert len(proxy.requests) == 4


async def test_page_without_id_is_not_rest_of_object(
    open_impatient: Open, proxy: Any, store: Store, prefix: str
) -> None:
    """The page replaces the response to a continued read, with the same range and the object's ETag."""
    altered: list[str] = []

    def alter(request: Any, headers: dict[str, str], content: bytes) -> tuple[dict[str, str], bytes]:
        if "If-Match" not in request.headers or altered:
            return headers, content
        altered.append(request.key)
        return without_ids(request, headers, content)[0], bytes(len(content))

    store.put(f"{prefix}/x", DATA)
    proxy.alter = alter
    proxy.plan = once("GetObject", "truncate")
    async with open_impatient() as storage:
        assert await storage.get("x") == DATA
    assert proxy.operations() == ["GetObject"] * 3


async def test_static_pages_are_not_responses_to_writes(open_impatient: Open, proxy: Any, whole: Any) -> None:
    """The first writes and the first deletion have shown that the store sends ids."""
    proxy.page = 204, STATIC, b""
    async with open_impatient() as storage:
        await storage.put("x", b"first")
        await storage.delete("x")
        proxy.plan = once("PutObject")
        await storage.put("x", b"second")
        await whole("x", b"second")
        proxy.plan = once("DeleteObject")
        await storage.delete("x")
        await whole("x", None)


async def test_static_page_closes_its_body(open_impatient: Open, proxy: Any, store: Store, prefix: str) -> None:
    store.put(f"{prefix}/x", DATA)
    proxy.page = 200, STATIC, bytes(8 << 20)
    async with open_impatient(max_connections=2, max_concurrency=1) as storage:
        await storage.get("x")
        proxy.plan = in_turn(*(once("GetObject") for _ in range(4)))  # more than the number of connections
        assert await storage.get("x") == DATA
    assert len(proxy.requests) == 6


async def test_reads_without_ids_are_believed_beside_numbered_writes(open_impatient: Open, proxy: Any) -> None:
    """Older versions of SeaweedFS respond like this to GET and HEAD."""
    proxy.alter = lambda request, headers, content: (
        without_ids(request, headers, content)
        if request.operation in ("GetObject", "HeadObject")
        else (headers, content)
    )
    async with open_impatient() as storage:
        await storage.put("x", DATA)
        for _ in range(2):
            assert await storage.get("x") == DATA
            assert (await storage.head("x")).size == len(DATA)
    assert len(proxy.requests) == 5
