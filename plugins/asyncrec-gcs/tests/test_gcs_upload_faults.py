"""A failed request is retried while that may help. Then the caller gets an error, and no partial object is left."""

from __future__ import annotations

import pytest
from asyncrec_gcs import session
from fake_gcs import UNIT, FakeGcs, Fault, nth
from gcs_uploads import DATA, requests_of_a_write, write
from opening import open_quick

from asyncrec.errors import StorageError, StoragePermissionError, TransientStorageError
from asyncrec.storage.http import SlicedBody
from asyncrec.testing._checks import content

pytestmark = pytest.mark.anyio

ONCE = [
    "status", "status-after", "reset", "reset-after", "truncate", "partial", "partial-reset", "forget-after", "page",
]  # fmt: skip


@pytest.mark.slow(but=["reset", "partial-reset", "forget"])
@pytest.mark.parametrize("exclusive", [False, True])
@pytest.mark.parametrize("how", ONCE)
async def test_upload_survives_one_fault_at_any_request(gcs: FakeGcs, how: str, exclusive: bool) -> None:
    """Each request fails in turn. In every case, the complete object is stored exactly once."""
    for k in range(1 + (how == "page"), 1 + len(await requests_of_a_write(gcs))):
        gcs.reset()
        gcs.plan = nth(k, Fault(how))
        async with open_quick() as storage:
            sink = await write(storage, exclusive=exclusive)
            assert sink.published is not None
            assert sink.published == await storage.head("key")
        assert gcs.objects["bucket", "key"].data == DATA
        assert gcs.generation == 1_700_000_000_000_001, "it was published twice"
        # A session whose URL was lost in transit cannot be aborted, so it remains until it expires.
        assert len(gcs.unfinished) == (
            k == 1 and how in ("status-after", "reset-after", "forget-after", "partial-reset")
        )


@pytest.mark.parametrize(
    ("fault", "error"),
    [
        (Fault("status", 503), TransientStorageError),
        (Fault("status-after", 503), TransientStorageError),
        (Fault("reset"), TransientStorageError),
        (Fault("reset-after"), TransientStorageError),
        (Fault("status", 403), StoragePermissionError),
        (Fault("status", 400), StorageError),
        (Fault("status-after", 400), StorageError),
    ],
)
async def test_permanent_fault_at_any_request_reaches_caller(
    gcs: FakeGcs, fault: Fault, error: type[StorageError]
) -> None:
    """From request k on, only the abort succeeds: an error is raised, and no object exists unless the error says so."""
    for k in range(1, 1 + len(await requests_of_a_write(gcs))):
        gcs.reset()
        gcs.plan = lambda kind, n, k=k: fault if n >= k and kind not in ("abort", "meta") else None  # type: ignore[misc]  # the lambda's default
        async with open_quick(attempts=3) as storage:
            published = raised = None
            try:
                published = (await write(storage)).published
            except StorageError as caught:
                raised = caught
        if published is None:
            assert isinstance(raised, error)
            assert "gs://bucket/key" in str(raised)
        found = gcs.objects.get(("bucket", "key"))
        if published is not None:
            assert found is not None
            assert found.data == DATA
        elif fault != Fault("status-after", 400):  # a wrong final response from the store cannot be detected
            assert found is None
        if k > 1:
            assert not gcs.unfinished


async def test_upload_resends_only_unstored_bytes(gcs: FakeGcs) -> None:
    gcs.plan = nth(1, Fault("partial-reset"), "put")
    async with open_quick(chunk_size=8 * UNIT) as storage:
        await write(storage, content(9 * UNIT))
    spans = [headers["Content-Range"] for headers in gcs.seen if "Content-Range" in headers]
    assert spans == [
        f"bytes 0-{7 * UNIT - 1}/*",
        "bytes */*",
        f"bytes {3 * UNIT}-{7 * UNIT - 1}/*",
        f"bytes {7 * UNIT}-{8 * UNIT - 1}/*",
        f"bytes {8 * UNIT}-{9 * UNIT - 1}/{9 * UNIT}",
    ]


async def test_chunk_failure_reaches_next_send_and_exit(gcs: FakeGcs) -> None:
    gcs.plan = lambda kind, n: Fault("status", 400) if kind == "put" else None
    async with open_quick() as storage:
        raised: list[StorageError] = []
        with pytest.raises(StorageError):
            async with storage.open_sink("key") as sink:
                await sink.send([DATA[:UNIT]])
                for _ in range(3):
                    try:
                        await sink.send([DATA[:UNIT]])
                    except StorageError as error:
                        raised.append(error)
        assert len(raised) >= 2
    assert not gcs.objects
    assert not gcs.unfinished


@pytest.mark.parametrize("how", ["stall", "stall-after"])
@pytest.mark.parametrize("kind", ["open", "put", "last"])
async def test_stalled_request_is_abandoned_and_retried(
    gcs: FakeGcs, kind: str, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A session that was opened without a response is left over, because its URL is unknown."""
    monkeypatch.setattr(session, "_STALLED", 0.2)
    gcs.plan = nth(1, Fault(how), kind)
    with gcs.listening():
        async with open_quick() as storage:
            await write(storage)
    assert gcs.objects["bucket", "key"].data == DATA
    assert gcs.left == []
    assert gcs.unfinished == (["key"] if (kind, how) == ("open", "stall-after") else [])


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_sliced_body_cannot_restart_after_sending() -> None:
    body = SlicedBody(memoryview(DATA))
    assert b"".join([piece async for piece in body]) == DATA
    with pytest.raises(ConnectionResetError):
        aiter(body)


@pytest.mark.parametrize("kind", ["put", "last"])
async def test_expired_session_raises_with_advice(gcs: FakeGcs, kind: str) -> None:
    gcs.plan = nth(1, Fault("expire"), kind)
    async with open_quick() as storage:
        with pytest.raises(StorageError, match="session has expired"):
            await write(storage)
    assert not gcs.objects


@pytest.mark.parametrize("status", [404, 410, 499])
async def test_ended_session_is_reported_as_expired(gcs: FakeGcs, status: int) -> None:
    gcs.plan = lambda kind, n: Fault("status", status) if kind in ("put", "last", "query") else None
    async with open_quick() as storage:
        with pytest.raises(StorageError, match=f"HTTP {status}: the upload session has expired"):
            await write(storage)
    assert ("bucket", "key") not in gcs.objects
