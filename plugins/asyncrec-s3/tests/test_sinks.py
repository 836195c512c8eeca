"""A sink accepts chunks of one size, publishes everything or nothing if cancelled, and lists unfinished uploads."""

from __future__ import annotations

import asyncio
from typing import Any

import anyio
import anyio.to_thread
import pytest
from s3_opening import Open, until

from asyncrec.errors import StorageError
from asyncrec.storage._base import UnfinishedUploads

pytestmark = pytest.mark.anyio

CHUNK = 5 << 20


async def test_sink_accepts_short_chunk_only_at_end(open_storage: Open) -> None:
    async with open_storage() as storage:
        with pytest.raises(ValueError, match="a chunk must have"):
            async with storage.open_sink("x") as sink:
                await sink.send([bytes(CHUNK + 1)])
        with pytest.raises(ValueError, match="a chunk must have"):
            async with storage.open_sink("x") as sink:
                await sink.send([b""])
        with pytest.raises(ValueError, match="only the last of an object may be shorter"):
            async with storage.open_sink("x") as sink:
                await sink.send([b"short"])
                await sink.send([b"another"])
        assert [info async for info in storage.list_objects()] == []


async def test_sink_with_cancelled_send_cannot_be_published(open_storage: Open) -> None:
    """A chunk is missing, so the chunks after it would take its place."""
    async with open_storage(max_concurrency=1) as storage:
        with pytest.raises(StorageError, match="not published, because an earlier write failed or was cancelled"):
            async with storage.open_sink("x") as sink:
                await storage.shared.slots.acquire(1)
                with anyio.move_on_after(0.01) as scope:
                    await sink.send([bytes(CHUNK)])
                assert scope.cancelled_caught
                storage.shared.slots.release(1)
                for late in (sink.send([b"behind"]), sink.flush([])):
                    with pytest.raises(StorageError, match="only be abandoned"):
                        await late
        assert [info async for info in storage.list_objects()] == []


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
@pytest.mark.parametrize("operation", ["CreateMultipartUpload", "UploadPart", "CompleteMultipartUpload"])
async def test_native_asyncio_cancellation_leaves_whole_object_or_none(
    open_storage: Open, proxy: Any, store: Any, prefix: str, operation: str
) -> None:
    """``task.cancel()`` ignores shields, but the object is complete or absent, and no upload is left."""
    async with open_storage() as storage:
        proxy.plan = lambda request: "hold" if request.operation == operation else None
        sink = storage.open_sink("x")

        async def write() -> None:
            async with sink as opened:
                await opened.send([bytes(CHUNK)])
                await opened.send([b"end"])

        task = asyncio.create_task(write())
        await until(lambda: operation in proxy.operations())
        task.cancel()
        await asyncio.sleep(0)
        task.cancel()
        proxy.release()
        with pytest.raises(asyncio.CancelledError):
            await task
        published = sink.published is not None  # type: ignore[attr-defined]  # the sink is its own context
        assert published == (operation == "CompleteMultipartUpload")
        assert await anyio.to_thread.run_sync(store.get, f"{prefix}/x") == (
            bytes(CHUNK) + b"end" if published else None
        )
        assert await anyio.to_thread.run_sync(store.unfinished, prefix) == []


async def test_unfinished_uploads_are_listed_and_removed(open_storage: Open, store: Any, prefix: str) -> None:
    """Uploads are found by prefix. Removing one that no longer exists is not an error."""
    for name in ("a/1", "a/2", "b/1"):
        store.client.create_multipart_upload(Bucket=store.bucket, Key=f"{prefix}/{name}")
    async with open_storage() as storage:
        assert isinstance(storage, UnfinishedUploads)
        found = [upload async for upload in storage.list_unfinished("a/")]
        assert sorted(upload.key for upload in found) == ["a/1", "a/2"]
        assert all(upload.etag and upload.modified.tzinfo for upload in found)
        for upload in [*found, *found]:
            await storage.remove_unfinished(upload)
    assert store.unfinished(prefix) == [f"{prefix}/b/1"]
    leftover = store.client.list_multipart_uploads(Bucket=store.bucket, Prefix=prefix)["Uploads"][0]
    store.client.abort_multipart_upload(Bucket=store.bucket, Key=leftover["Key"], UploadId=leftover["UploadId"])
