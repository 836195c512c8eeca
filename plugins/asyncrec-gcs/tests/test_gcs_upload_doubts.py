"""An upload counts as published only if the evidence agrees with the store's report."""

from __future__ import annotations

import pytest
from asyncrec_gcs import upload as upload_module
from fake_gcs import UNIT, FakeGcs, Fault, nth
from gcs_uploads import DATA, write
from opening import open_quick

from asyncrec.errors import IntegrityError, StorageError, TransientStorageError

pytestmark = pytest.mark.anyio


async def test_damaged_upload_is_rejected_before_publishing(gcs: FakeGcs, monkeypatch: pytest.MonkeyPatch) -> None:
    """The checksum covers the data as sent, and is part of the last request."""
    monkeypatch.setattr(upload_module, "crc32c_header", lambda value: upload_module_header(value ^ 1))
    async with open_quick() as storage:
        with pytest.raises(IntegrityError, match="gs://bucket/key"):
            await write(storage)
    assert not gcs.objects
    assert not gcs.unfinished


upload_module_header = upload_module.crc32c_header


async def test_upload_deletes_object_stored_with_other_bytes(gcs: FakeGcs) -> None:
    gcs.plan = nth(1, Fault("corrupt"), "last")
    async with open_quick() as storage:
        with pytest.raises(IntegrityError, match="gs://bucket/key"):
            await write(storage)
    assert not gcs.objects


async def test_error_notes_failed_deletion_of_damaged_object(gcs: FakeGcs) -> None:
    plan = nth(1, Fault("corrupt"), "last")
    gcs.plan = lambda kind, n: Fault("status", 403) if kind == "delete" else plan(kind, n)
    async with open_quick() as storage:
        with pytest.raises(IntegrityError) as raised:
            await write(storage)
    assert "could not be deleted" in raised.value.__notes__[0]


async def test_cleanup_deletes_only_own_generation_of_damaged_object(gcs: FakeGcs) -> None:
    """Another writer has replaced the object in the meantime, and that writer's object must not be deleted."""
    damage = nth(1, Fault("corrupt"), "last")

    def plan(kind: str, n: int) -> Fault | None:
        if kind == "delete":
            gcs.put("key", b"another's")
        return damage(kind, n)

    gcs.plan = plan
    async with open_quick() as storage:
        with pytest.raises(IntegrityError) as raised:
            await write(storage)
    assert gcs.log[-1] == "delete"
    assert gcs.objects["bucket", "key"].data == b"another's"
    assert not hasattr(raised.value, "__notes__"), "that it is gone is what was wanted"


async def test_upload_detects_session_losing_acknowledged_bytes(gcs: FakeGcs) -> None:
    def plan(kind: str, n: int) -> Fault | None:
        if n == 3:
            for session in gcs.sessions.values():
                session.data.clear()
            return Fault("reset")
        return None

    gcs.plan = plan
    async with open_quick() as storage:
        with pytest.raises(IntegrityError, match="reports 0 stored bytes"):
            await write(storage)
    assert not gcs.objects


@pytest.mark.parametrize("aborts", [404, 499])
async def test_error_reports_unknown_publication_without_readable_response(gcs: FakeGcs, aborts: int) -> None:
    """The store responds with 499 when a session that it has completed is aborted, which proves nothing."""
    gcs.aborts = aborts
    gcs.page = 200, "{}"

    def plan(kind: str, n: int) -> Fault | None:
        return {"last": Fault("reset-after"), "query": Fault("answer"), "meta": Fault("answer")}.get(kind)

    gcs.plan = plan
    async with open_quick(attempts=3) as storage:
        with pytest.raises(TransientStorageError) as caught:
            await write(storage)
    assert gcs.objects["bucket", "key"].data == DATA
    assert any("it is unknown whether the object was published" in note for note in caught.value.__notes__)


async def test_error_omits_doubt_about_proven_absent_object(gcs: FakeGcs) -> None:
    """The store was asked and has no such object, so readers of the error need not check."""
    gcs.plan = lambda kind, n: Fault("status", 400) if kind == "last" else None
    async with open_quick() as storage:
        with pytest.raises(StorageError) as caught:
            await write(storage)
    assert gcs.log[-1] == "meta"
    assert not hasattr(caught.value, "__notes__")


async def test_upload_gives_up_on_store_accepting_no_bytes(gcs: FakeGcs) -> None:
    """Repeated 308s without progress count as a transient failure, and retries are limited."""
    gcs.page = 308, ""
    gcs.plan = lambda kind, n: Fault("answer") if kind in ("put", "query") else None
    async with open_quick(attempts=3) as storage:
        with pytest.raises(TransientStorageError, match="accepted none"):
            await write(storage)
    assert gcs.counts["put"] <= 4
    assert not gcs.objects


async def test_upload_ended_early_by_store_raises(gcs: FakeGcs) -> None:
    gcs.page = 200, '{"name": "key", "size": "5", "generation": "1"}'
    gcs.plan = lambda kind, n: Fault("answer") if kind == "put" else None
    async with open_quick() as storage:
        with pytest.raises(StorageError, match="ended the upload before the last byte"):
            await write(storage)
    assert not gcs.objects


@pytest.mark.parametrize("stored", [5 * UNIT, 3 * UNIT])
async def test_upload_rejects_impossible_stored_count(gcs: FakeGcs, stored: int) -> None:
    asked = 0

    def plan(kind: str, n: int) -> Fault | None:
        nonlocal asked
        if kind == "put":
            asked += 1
            if asked == 2:
                return Fault("status", 308, {"Range": f"bytes=0-{stored - 1}"})
        return None

    gcs.plan = plan
    async with open_quick() as storage:
        with pytest.raises(IntegrityError, match="are possible"):
            await write(storage)
    assert not gcs.objects
