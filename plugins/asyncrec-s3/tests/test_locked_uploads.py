"""A store reports that a completion is in progress: the upload's lock outlives the gateway that was completing it."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import anyio
import anyio.from_thread
import anyio.lowlevel
import pytest
from s3_opening import Open, opener
from s3_store import CHUNK

from asyncrec.errors import TransientStorageError

pytestmark = pytest.mark.anyio

LARGE = random.Random(2).randbytes(CHUNK + 1_000)


@pytest.fixture
def open_storage(store: Any, proxy: Any, prefix: str, small_parts: None) -> Open:
    return opener(store, proxy, prefix, chunk_size=CHUNK)


def locked(proxy: Any, first: str, times: float) -> Callable[[Any], str | None]:
    """Return a plan in which the first completion ends in ``first``, and the next ``times`` find the upload locked."""

    def plan(request: Any) -> str | None:
        if request.operation != "CompleteMultipartUpload":
            return None
        before = proxy.operations().count("CompleteMultipartUpload") - 1
        return first if before == 0 else "busy" if before <= times else None

    return plan


@pytest.mark.parametrize("exclusive", [False, True])
async def test_upload_waits_longer_for_lock_than_for_fault(
    open_storage: Open, proxy: Any, store: Any, prefix: str, exclusive: bool
) -> None:
    """All parts are stored and cannot be sent again, so the completion only has to wait for the lock."""
    proxy.plan = locked(proxy, "reset", 25)
    async with open_storage() as storage:
        info = await storage.put("x", LARGE, exclusive=exclusive)
    assert info.size == len(LARGE)
    assert store.get(f"{prefix}/x") == LARGE
    assert store.unfinished(prefix) == []


async def test_upload_finds_completed_object_behind_lock(open_storage: Open, proxy: Any) -> None:
    proxy.plan = locked(proxy, "reset-after", float("inf"))
    async with open_storage() as storage:
        info = await storage.put("x", LARGE, exclusive=True)
        assert info.etag == (await storage.head("x")).etag
    assert proxy.operations().count("CompleteMultipartUpload") == 2


async def test_endless_lock_fails_upload_with_lock_error(
    open_storage: Open, proxy: Any, store: Any, prefix: str
) -> None:
    """The number of requests is bounded; nothing is published, and nothing is left."""
    proxy.plan = locked(proxy, "reset", float("inf"))
    async with open_storage() as storage:
        with pytest.raises(TransientStorageError, match=r"/x: .*completion is already in progress.*lock") as caught:
            await storage.put("x", LARGE)
    assert any("gave up after 60 attempts" in note for note in caught.value.__notes__)
    assert proxy.operations().count("CompleteMultipartUpload") <= 61
    assert store.get(f"{prefix}/x") is None
    assert store.unfinished(prefix) == []


@pytest.mark.parametrize("first", ["reset", "reset-after"])
async def test_cancelled_upload_does_not_wait_for_lock(
    open_storage: Open, proxy: Any, store: Any, prefix: str, first: str
) -> None:
    """The upload is removed, or if it was completed, `published` says so."""
    token = anyio.lowlevel.current_token()
    scope = anyio.CancelScope()
    ours = locked(proxy, first, float("inf"))

    def plan(request: Any) -> str | None:
        fault = ours(request)
        if fault == "busy":
            anyio.from_thread.run_sync(scope.cancel, token=token)
        # Look-ups between the cancellation and the abort fail; otherwise, the wait would be over already.
        return "403" if request.operation == "HeadObject" and scope.cancel_called and not looked() else fault

    def looked() -> bool:
        return "AbortMultipartUpload" in proxy.operations()

    proxy.plan = plan
    async with open_storage() as storage:
        with scope:
            async with storage.open_sink("x") as sink:
                await sink.send([LARGE[:CHUNK]])
                await sink.send([LARGE[CHUNK:]])
    assert scope.cancelled_caught
    assert (sink.published is not None) == (first == "reset-after")
    assert store.get(f"{prefix}/x") == (None if first == "reset" else LARGE)
    assert store.unfinished(prefix) == []
