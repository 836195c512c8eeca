"""An upload that fails or is cancelled leaves either the complete object, or no object, session or request."""

from __future__ import annotations

import asyncio
import gc
import threading
from contextlib import suppress
from typing import Any

import anyio
import pytest
from asyncrec_gcs import sink as sink_module
from asyncrec_gcs import upload as upload_module
from fake_gcs import UNIT, FakeGcs, Fault, nth
from gcs_uploads import DATA, requests_of_a_write, write
from opening import open_quick

from asyncrec.errors import StorageError
from asyncrec.storage._base import ByteSink
from asyncrec.testing import cancel_at_every_checkpoint
from asyncrec.testing._checks import send_all

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("status", [200, 204, 404, 410, 499])
async def test_abort_ends_on_any_status_of_gone_session(
    gcs: FakeGcs, status: int, caplog: pytest.LogCaptureFixture
) -> None:
    gcs.plan = lambda kind, n: Fault("status-after", status) if kind == "abort" else None
    async with open_quick() as storage:
        with pytest.raises(KeyError):
            async with storage.open_sink("key") as sink:
                await send_all(sink, DATA)
                raise KeyError
    assert gcs.counts["abort"] == 1
    assert not gcs.unfinished
    assert not caplog.records


@pytest.mark.parametrize(("status", "attempts"), [(403, 1), (503, 4)])
async def test_failed_abort_is_logged_and_keeps_original_error(
    gcs: FakeGcs, status: int, attempts: int, caplog: pytest.LogCaptureFixture
) -> None:
    """The abort is retried a few times, less patiently than other requests; the caller gets the original error."""
    gcs.plan = lambda kind, n: Fault("status", status) if kind == "abort" else None
    async with open_quick() as storage:
        with pytest.raises(KeyError):
            async with storage.open_sink("key") as sink:
                await send_all(sink, DATA)
                raise KeyError
    assert gcs.counts["abort"] == attempts
    told = [record.getMessage() for record in caplog.records if "did not confirm it" in record.getMessage()]
    assert len(told) == 1
    assert told[0].startswith("gs://bucket/key: aborting the upload: ")


async def test_abort_skips_waiting_for_chunk_in_flight(gcs: FakeGcs, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sink_module, "ABORT_SECONDS", 1000.0)
    gcs.plan = nth(1, Fault("stall"), "put")
    async with open_quick() as storage:
        with anyio.fail_after(20), pytest.raises(KeyError):
            async with storage.open_sink("key") as sink:
                await sink.send([DATA[:UNIT]])
                await sink.send([DATA[UNIT : 2 * UNIT]])
                await anyio.to_thread.run_sync(gcs.reached.wait)
                raise KeyError
        await anyio.to_thread.run_sync(gcs.wait_until_idle)
    assert not gcs.unfinished
    assert not gcs.objects


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_abandoned_chunk_failure_is_not_logged(
    gcs: FakeGcs, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """asyncio logs exceptions of tasks that were never retrieved, but here the caller gets its own error."""
    sending = asyncio.Event()

    async def append(self: Any, data: memoryview) -> None:
        sending.set()
        try:
            await asyncio.Event().wait()
        finally:
            raise StorageError("refused")

    monkeypatch.setattr(upload_module.Upload, "append", append)
    async with open_quick() as storage:
        with pytest.raises(KeyError):
            async with storage.open_sink("key") as sink:
                await sink.send([DATA[: UNIT + 1]])
                await sending.wait()
                raise KeyError
    del sink
    gc.collect()
    assert [record.getMessage() for record in caplog.records if record.name == "asyncio"] == []


async def test_cancellation_at_any_stalled_request_leaves_nothing_behind(
    gcs: FakeGcs, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No session, object, request or thread is left."""
    monkeypatch.setattr(upload_module, "_OPEN_SECONDS", 0.01)
    monkeypatch.setattr(sink_module, "_PUBLISH_SECONDS", 0.01)
    threads = {thread.name for thread in threading.enumerate()}
    for k in range(1, 1 + len(await requests_of_a_write(gcs))):
        gcs.reset()
        gcs.plan = nth(k, Fault("stall"))
        async with anyio.create_task_group() as group:

            async def cancel_when_reached(group: anyio.abc.TaskGroup = group) -> None:
                await anyio.to_thread.run_sync(gcs.reached.wait)
                group.cancel_scope.cancel()

            group.start_soon(cancel_when_reached)
            async with open_quick() as storage:
                await write(storage)
                raise AssertionError(f"request {k} hangs, and was not missed")
        assert not gcs.objects
        assert not gcs.unfinished
        await anyio.to_thread.run_sync(gcs.wait_until_idle)
    assert not {name for name in {thread.name for thread in threading.enumerate()} - threads if "bridge" in name}


@pytest.mark.parametrize("hangs", ["query", "abort", "meta"])
async def test_sink_cancelled_after_last_request_reports_publication(
    gcs: FakeGcs, hangs: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The response is lost, and the look-up that follows is cancelled. The object exists, and the sink reports it."""
    monkeypatch.setattr(sink_module, "_PUBLISH_SECONDS", 0.01)
    stall = nth(1, Fault("stall"), hangs)

    def plan(kind: str, n: int) -> Fault | None:
        if kind == "last":
            return Fault("reset-after")
        return stall(kind, n) or (Fault("status", 400) if kind == "query" else None)

    gcs.plan = plan
    async with open_quick() as storage:
        sink: ByteSink | None = None
        with anyio.CancelScope() as scope:
            async with anyio.create_task_group() as group:

                async def cancel_when_reached() -> None:
                    await anyio.to_thread.run_sync(gcs.reached.wait)
                    scope.cancel()

                group.start_soon(cancel_when_reached)
                async with storage.open_sink("key") as sink:
                    await send_all(sink, DATA)
                await anyio.lowlevel.checkpoint()
                raise AssertionError("the cancellation comes with the next await")
        assert sink is not None
        assert sink.published is not None
        assert scope.cancelled_caught
        assert gcs.objects["bucket", "key"].data == DATA


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_cancelled_send_finishes_copying_before_raising(gcs: FakeGcs, monkeypatch: pytest.MonkeyPatch) -> None:
    """The caller may then reuse the buffers; asyncio's own cancellation ignores shields."""
    copying, go = threading.Event(), threading.Event()
    ended: list[bool] = []

    def cut(*args: Any) -> Any:
        copying.set()
        go.wait()
        ended.append(True)
        raise AssertionError("its result is lost")

    monkeypatch.setattr("asyncrec_gcs.sink._cut", cut)
    async with open_quick(chunk_size=8 * UNIT) as storage:

        async def write() -> None:
            async with storage.open_sink("key") as sink:
                try:
                    await sink.send([bytes(8 * UNIT)])
                finally:
                    ended.append(False)

        task = asyncio.ensure_future(write())
        await anyio.to_thread.run_sync(copying.wait)
        task.cancel()
        await asyncio.sleep(0)
        await anyio.wait_all_tasks_blocked()
        go.set()
        with pytest.raises(asyncio.CancelledError):
            await task
    assert ended == [True, False]


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_cancelled_sends_release_buffer_space(gcs: FakeGcs) -> None:
    """Wherever an upload is cancelled, the next one is not blocked, even with room for only one chunk."""
    chunk = 5 * UNIT
    async with open_quick(chunk_size=chunk, max_concurrency=1) as storage:

        async def send() -> None:
            with suppress(KeyError):
                async with storage.open_sink("key") as sink:
                    await sink.send([bytes(chunk)])
                    await sink.send([bytes(chunk)])
                    raise KeyError

        await cancel_at_every_checkpoint(send)
        with anyio.fail_after(20):
            await write(storage, bytes(chunk + 1))
    assert not gcs.unfinished
