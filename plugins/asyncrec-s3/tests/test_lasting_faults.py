"""A permanent fault reaches the caller: acknowledged data is stored, and nothing else is left behind."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable
from typing import Any

import anyio
import pytest
from asyncrec_s3.plugin import open_s3
from asyncrec_s3.storage import S3Storage
from s3_opening import Open
from s3_store import CHUNK, KIND

from asyncrec.errors import (
    IntegrityError,
    ObjectChangedError,
    ObjectExistsError,
    StorageError,
    StoragePermissionError,
    TransientStorageError,
)

pytestmark = pytest.mark.anyio

SMALL = random.Random(1).randbytes(1_000)
LARGE = random.Random(2).randbytes(CHUNK + 1_000)


def always(operation: str, fault: str) -> Callable[[Any], str | None]:
    return lambda request: fault if request.operation == operation else None


@pytest.mark.parametrize("operation", ["CreateMultipartUpload", "UploadPart", "CompleteMultipartUpload", "PutObject"])
@pytest.mark.parametrize("fault", ["500", "403", "reset"])
async def test_permanent_fault_reaches_caller_without_leftovers(
    open_impatient: Open, proxy: Any, whole: Any, operation: str, fault: str
) -> None:
    """Nothing is published, nothing is left, and an existing object is unchanged."""
    data = SMALL if operation == "PutObject" else LARGE
    async with open_impatient() as storage:
        await storage.put("x", b"older")
        proxy.plan = always(operation, fault)
        expected = StoragePermissionError if fault == "403" else TransientStorageError
        with pytest.raises(expected, match="x"):
            await storage.put("x", data)
        await whole("x", b"older")


@pytest.mark.parametrize("operation", ["CompleteMultipartUpload", "PutObject"])
async def test_lost_response_is_resolved_by_lookup(
    open_impatient: Open, proxy: Any, whole: Any, operation: str
) -> None:
    """The request takes effect but all responses are lost: the object is published, and is reported as such."""
    data = SMALL if operation == "PutObject" else LARGE
    async with open_impatient() as storage:
        proxy.plan = always(operation, "500-after")
        info = await storage.put("x", data, exclusive=True)
        assert info.size == len(data)
        await whole("x", data)


async def test_error_notes_unknown_outcome_after_failed_lookup(open_impatient: Open, proxy: Any) -> None:
    """If the look-up fails as well, the error says that the object may exist."""
    async with open_impatient() as storage:
        proxy.plan = lambda request: {"PutObject": "500-after", "HeadObject": "500"}.get(request.operation)
        with pytest.raises(TransientStorageError) as caught:
            await storage.put("x", SMALL)
        assert any("unknown" in note for note in caught.value.__notes__)


async def test_acknowledged_but_absent_object_raises_integrity_error(
    open_impatient: Open, proxy: Any, store: Any, prefix: str
) -> None:
    """A store that completes an upload without having the object afterwards is not trusted."""

    def plan(request: Any) -> None:
        if request.operation == "HeadObject" and "CompleteMultipartUpload" in proxy.operations():
            store.client.delete_object(Bucket=store.bucket, Key=f"{prefix}/x")

    async with open_impatient() as storage:
        proxy.plan = plan
        with pytest.raises(IntegrityError, match="does not have it"):
            await storage.put("x", LARGE)


@pytest.mark.parametrize("data", [SMALL, LARGE], ids=["put", "upload"])
@pytest.mark.parametrize("fault", [None, "500-after", "reset-after"])
async def test_racing_exclusive_writers_yield_one_winner(
    open_impatient: Open, proxy: Any, whole: Any, data: bytes, fault: str | None
) -> None:
    """This holds even if both write the same bytes and the responses to their last requests are lost."""
    outcomes: list[str] = []
    last = "PutObject" if data is SMALL else "CompleteMultipartUpload"
    seen = 0

    def plan(request: Any) -> str | None:
        nonlocal seen
        seen += request.operation == last
        return fault if request.operation == last and seen <= 2 else None

    async def write(storage: S3Storage) -> None:
        try:
            await storage.put("x", data, exclusive=True)
            outcomes.append("won")
        except ObjectExistsError:
            outcomes.append("lost")

    async with open_impatient() as storage:
        proxy.plan = plan
        async with anyio.create_task_group() as group:
            group.start_soon(write, storage)
            group.start_soon(write, storage)
        assert sorted(outcomes) == ["lost", "won"]
        await whole("x", data)


async def test_source_rejects_object_replaced_by_other_size(
    open_storage: Open, proxy: Any, store: Any, prefix: str
) -> None:
    """The size at opening is outdated, so relying on it would read too little."""
    async with open_storage() as storage:
        known = await storage.put("x", SMALL)

        def plan(request: Any) -> None:
            if request.operation == "GetObject" and request.number < 5:
                store.put(f"{prefix}/x", SMALL + b"and more")

        async with storage.open_source("x", info=known) as source:
            proxy.plan = plan
            with pytest.raises(ObjectChangedError):
                await source.receive(len(SMALL))


async def test_missing_bucket_error_names_the_bucket(proxy: Any) -> None:
    """A missing bucket raises a clear error at once for each operation."""
    async with open_s3("s3://no-such-bucket-here", endpoint_url=proxy.endpoint) as storage:
        operations: list[Callable[[str], Awaitable[object]]] = [storage.get, storage.head, storage.delete]
        if KIND != "seaweedfs":  # it creates the bucket when an administrator writes to it
            operations.append(lambda key: storage.put(key, b"x"))
        for operation in operations:
            with pytest.raises(StorageError, match="no-such-bucket-here"):
                await operation("x")
        with pytest.raises(StorageError, match="no-such-bucket-here"):
            await anext(aiter(storage.list_objects()))
