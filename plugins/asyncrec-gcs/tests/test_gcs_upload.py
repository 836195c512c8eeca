"""Uploads under faults: nothing half there, nothing lost, nothing left behind, and no success that was none."""

from __future__ import annotations

import asyncio
import threading
import tracemalloc
from collections.abc import Sequence

import anyio
import pytest
from asyncrec_gcs import session as session_module
from asyncrec_gcs import sink as sink_module
from asyncrec_gcs import upload as upload_module
from fake_gcs import UNIT, FakeGcs, Fault, nth
from opening import open_quick

from asyncrec.errors import (
    IntegrityError,
    ObjectExistsError,
    ObjectNotFoundError,
    StorageError,
    StoragePermissionError,
    TransientStorageError,
)
from asyncrec.storage._base import ByteSink, Storage
from asyncrec.testing._checks import content, pieces, send_all

pytestmark = pytest.mark.anyio

DATA = content(5 * UNIT + 77)
ONCE = [
    "status",
    "status-after",
    "reset",
    "reset-after",
    "truncate",
    "partial",
    "partial-reset",
    "forget-after",
    "page",
]


async def write(storage: Storage, data: bytes = DATA, key: str = "key", *, exclusive: bool = False) -> ByteSink:
    async with storage.open_sink(key, exclusive=exclusive) as sink:
        await send_all(sink, data)
    return sink


async def requests_of_a_write(gcs: FakeGcs, **options: int) -> list[str]:
    async with open_quick(**options) as storage:
        await write(storage)
    log = list(gcs.log)
    gcs.reset()
    return log


async def test_an_upload_is_a_session_its_chunks_and_a_short_last_request(gcs: FakeGcs) -> None:
    async with open_quick() as storage:
        sink = await write(storage)
    assert gcs.log == ["open", "put", "put", "put", "put", "put", "last"]
    assert sink.published == (await _head(gcs, "key"))
    assert gcs.objects["bucket", "key"].data == DATA


@pytest.mark.parametrize("size", [0, 1, UNIT - 1, UNIT])
async def test_a_small_object_takes_two_requests(gcs: FakeGcs, size: int) -> None:
    async with open_quick(chunk_size=4 * UNIT) as storage:
        await write(storage, DATA[:size])
    assert gcs.log == ["open", "last"]
    assert gcs.objects["bucket", "key"].data == DATA[:size]


async def _head(gcs: FakeGcs, key: str) -> object:
    async with open_quick() as storage:
        return await storage.head(key)


@pytest.mark.parametrize("exclusive", [False, True])
@pytest.mark.parametrize("how", ONCE)
async def test_any_request_may_fail_once_in_any_way(gcs: FakeGcs, how: str, exclusive: bool) -> None:
    """Each in turn; the object is there, whole, and once."""
    for k in range(1 + (how == "page"), 1 + len(await requests_of_a_write(gcs))):
        gcs.reset()
        gcs.plan = nth(k, Fault(how))
        async with open_quick() as storage:
            sink = await write(storage, exclusive=exclusive)
            assert sink.published is not None
            assert sink.published == await storage.head("key")
        assert gcs.objects["bucket", "key"].data == DATA
        assert gcs.generation == 1_700_000_000_000_001, "it was published twice"
        # A session whose address was lost on the way cannot be taken away: it expires.
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
async def test_a_fault_for_good_at_any_request_reaches_the_caller(
    gcs: FakeGcs, fault: Fault, error: type[StorageError]
) -> None:
    """From the k-th request on nothing but the abort gets through: an error, and no object, unless it says so."""
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
        elif fault != Fault("status-after", 400):  # a store that lies about its last answer cannot be helped
            assert found is None
        if k > 1:
            assert not gcs.unfinished


async def test_after_a_fault_only_what_is_not_stored_is_sent_again(gcs: FakeGcs) -> None:
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


async def test_damage_on_the_way_is_refused_by_the_store_before_it_is_visible(
    gcs: FakeGcs, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The checksum is of what was sent, and goes with the last request."""
    monkeypatch.setattr(upload_module, "crc32c_header", lambda value: upload_module_header(value ^ 1))
    async with open_quick() as storage:
        with pytest.raises(IntegrityError, match="gs://bucket/key"):
            await write(storage)
    assert not gcs.objects
    assert not gcs.unfinished


upload_module_header = upload_module.crc32c_header


async def test_an_object_stored_with_other_bytes_is_an_error_and_is_deleted(gcs: FakeGcs) -> None:
    gcs.plan = nth(1, Fault("corrupt"), "last")
    async with open_quick() as storage:
        with pytest.raises(IntegrityError, match="gs://bucket/key"):
            await write(storage)
    assert not gcs.objects


async def test_when_the_damaged_object_cannot_be_deleted_the_error_says_so(gcs: FakeGcs) -> None:
    plan = nth(1, Fault("corrupt"), "last")
    gcs.plan = lambda kind, n: Fault("status", 403) if kind == "delete" else plan(kind, n)
    async with open_quick() as storage:
        with pytest.raises(IntegrityError) as raised:
            await write(storage)
    assert "could not be deleted" in raised.value.__notes__[0]


@pytest.mark.parametrize("kind", ["put", "last"])
async def test_an_expired_session_is_an_error_that_says_what_to_do(gcs: FakeGcs, kind: str) -> None:
    gcs.plan = nth(1, Fault("expire"), kind)
    async with open_quick() as storage:
        with pytest.raises(StorageError, match="session is gone"):
            await write(storage)
    assert not gcs.objects


async def test_a_session_that_lost_acknowledged_bytes_is_an_integrity_error(gcs: FakeGcs) -> None:
    def plan(kind: str, n: int) -> Fault | None:
        if n == 3:
            for session in gcs.sessions.values():
                session.data.clear()
            return Fault("reset")
        return None

    gcs.plan = plan
    async with open_quick() as storage:
        with pytest.raises(IntegrityError, match="says it has 0 bytes"):
            await write(storage)
    assert not gcs.objects


async def test_a_failure_on_the_way_reaches_the_next_call_and_the_exit(gcs: FakeGcs) -> None:
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


@pytest.mark.parametrize("kind", ["open", "put", "last"])
async def test_a_request_in_which_nothing_moves_is_given_up_and_tried_again(
    gcs: FakeGcs, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session_module, "_STALLED", 0.2)
    gcs.plan = nth(1, Fault("stall"), kind)
    async with open_quick() as storage:
        await write(storage)
    assert gcs.objects["bucket", "key"].data == DATA


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_a_body_sent_in_part_is_not_begun_again_from_its_middle() -> None:
    async with asyncio.timeout(60) as patience:
        body = session_module._Body(memoryview(DATA), patience)
        assert b"".join([piece async for piece in body]) == DATA
        with pytest.raises(ConnectionResetError):
            aiter(body)


async def test_a_missing_bucket_is_found_out_on_opening(gcs: FakeGcs) -> None:
    async with open_quick("gs://missing") as storage:
        with pytest.raises(ObjectNotFoundError, match="bucket does not exist"):
            async with storage.open_sink("key"):
                raise AssertionError("opened")


async def test_an_exclusive_object_that_is_there_is_found_out_on_opening(gcs: FakeGcs) -> None:
    gcs.put("key", b"older")
    async with open_quick() as storage:
        with pytest.raises(ObjectExistsError, match="gs://bucket/key"):
            async with storage.open_sink("key", exclusive=True):
                raise AssertionError("opened")
    assert gcs.objects["bucket", "key"].data == b"older"


@pytest.mark.parametrize("aborts", [404, 499])
async def test_what_was_published_is_not_said_to_be_absent_when_nothing_can_be_read(gcs: FakeGcs, aborts: int) -> None:
    """The store answers 499 to taking away a session that it has completed: that is no proof of anything."""
    gcs.aborts = aborts
    gcs.page = 200, "{}"

    def plan(kind: str, n: int) -> Fault | None:
        return {"last": Fault("reset-after"), "query": Fault("answer"), "meta": Fault("answer")}.get(kind)

    gcs.plan = plan
    async with open_quick(attempts=3) as storage:
        with pytest.raises(TransientStorageError) as caught:
            await write(storage)
    assert gcs.objects["bucket", "key"].data == DATA
    assert any("whether it was published is not known" in note for note in caught.value.__notes__)


@pytest.mark.parametrize("how", ["", "reset-after", "forget-after", "status-after"])
async def test_of_racing_exclusive_writers_of_the_same_bytes_one_wins(gcs: FakeGcs, how: str) -> None:
    """Even when the winner's answer is lost: it is known by the id of its upload, not by its bytes."""
    gcs.plan = nth(1, Fault(how), "last") if how else gcs.plan
    async with open_quick() as storage:
        outcomes: list[str] = []
        opened = 0
        both = anyio.Event()

        async def race() -> None:
            nonlocal opened
            try:
                async with storage.open_sink("key", exclusive=True) as sink:
                    opened += 1
                    if opened == 2:
                        both.set()
                    await both.wait()
                    await send_all(sink, DATA)
                outcomes.append("won")
            except ObjectExistsError:
                outcomes.append("lost")

        async with anyio.create_task_group() as group:
            group.start_soon(race)
            group.start_soon(race)
    assert sorted(outcomes) == ["lost", "won"]
    assert gcs.objects["bucket", "key"].data == DATA
    assert not gcs.unfinished


# flush ------------------------------------------------------------------------------------------------------------


async def _flushed(gcs: FakeGcs, steps: Sequence[tuple[str, int]], chunk_units: int = 4) -> tuple[bytes, list[int]]:
    """Write with `send` of whole chunks and `flush` of tails, as a writer would; gives what was taken, and answers."""
    chunk = chunk_units * UNIT
    data = content(sum(size for _, size in steps) + chunk)
    position = held = 0
    answers = []
    async with open_quick(chunk_size=chunk) as storage:
        async with storage.open_sink("key") as sink:
            for what, size in steps:
                held += size
                while held >= chunk:
                    await sink.send(pieces(data[position : position + chunk]))
                    position, held = position + chunk, held - chunk
                if what == "flush":
                    answers.append(await sink.flush(pieces(data[position : position + held])))
                    stored = max((len(session.data) for session in gcs.sessions.values()), default=0)
                    assert position + answers[-1] >= stored - stored % UNIT
                    assert stored == position + answers[-1] or position == answers[-1] == 0, "what was sent is stored"
            if held:
                await sink.send(pieces(data[position : position + held]))
                position += held
    return data[:position], answers


@pytest.mark.parametrize(
    ("steps", "expected"),
    [
        ([("flush", 0)], [0]),
        ([("flush", 10)], [0]),
        ([("flush", UNIT)], [UNIT]),
        ([("flush", UNIT), ("flush", 0)], [UNIT, UNIT]),
        ([("flush", UNIT + 1), ("flush", UNIT)], [UNIT, 2 * UNIT]),
        ([("flush", 4 * UNIT)], [0]),
        ([("flush", 5 * UNIT + 9), ("flush", 2 * UNIT), ("write", 3 * UNIT)], [UNIT, 3 * UNIT]),
        ([("flush", 3 * UNIT), ("flush", UNIT), ("flush", 1)], [3 * UNIT, 0, 0]),
        ([("write", 9 * UNIT + 5), ("flush", 0), ("flush", 4 * UNIT - 5), ("write", 7)], [UNIT, UNIT]),
    ],
)
async def test_flush_stores_whole_units_and_never_sends_them_twice(
    gcs: FakeGcs, steps: list[tuple[str, int]], expected: list[int]
) -> None:
    data, answers = await _flushed(gcs, steps)
    assert gcs.objects["bucket", "key"].data == data
    assert answers == expected
    sent = sum(int(headers["Content-Length"]) for headers in gcs.seen if "Content-Range" in headers)
    assert sent == len(data)


async def test_what_was_flushed_has_to_be_sent(gcs: FakeGcs) -> None:
    async with open_quick(chunk_size=4 * UNIT) as storage:
        with pytest.raises(RuntimeError, match="never sent"):
            async with storage.open_sink("key") as sink:
                await sink.flush([DATA[:UNIT]])
        with pytest.raises(ValueError, match="sent again"):
            async with storage.open_sink("key") as sink:
                await sink.flush([DATA[:UNIT]])
                await sink.send([DATA[:5]])
    assert not gcs.objects
    assert not gcs.unfinished


async def test_of_a_damaged_object_only_its_own_generation_is_deleted(gcs: FakeGcs) -> None:
    """Another writer has replaced it meanwhile: that object is not ours to take away."""
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


@pytest.mark.parametrize("status", [200, 204, 404, 410, 499])
async def test_whatever_says_that_a_session_is_gone_ends_an_abort(
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
async def test_an_abort_that_fails_is_logged_and_hides_nothing(
    gcs: FakeGcs, status: int, attempts: int, caplog: pytest.LogCaptureFixture
) -> None:
    """It is tried a few times, and not with the patience that was lost before; the error is the caller's still."""
    gcs.plan = lambda kind, n: Fault("status", status) if kind == "abort" else None
    async with open_quick() as storage:
        with pytest.raises(KeyError):
            async with storage.open_sink("key") as sink:
                await send_all(sink, DATA)
                raise KeyError
    assert gcs.counts["abort"] == attempts
    told = [record.getMessage() for record in caplog.records if "not confirmed" in record.getMessage()]
    assert len(told) == 1
    assert told[0].startswith("gs://bucket/key: aborting the upload: ")


async def test_an_abort_does_not_wait_for_the_chunk_that_is_on_its_way(
    gcs: FakeGcs, monkeypatch: pytest.MonkeyPatch
) -> None:
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


async def test_an_upload_ends_with_as_few_requests_as_it_can_when_all_was_flushed(gcs: FakeGcs) -> None:
    """The last one carries nothing then, and is believed."""
    async with open_quick(chunk_size=4 * UNIT) as storage:
        async with storage.open_sink("key") as sink:
            assert await sink.flush([DATA[: 2 * UNIT]]) == 2 * UNIT
            await sink.send([DATA[: 2 * UNIT]])
        assert sink.published is not None
    assert gcs.objects["bucket", "key"].data == DATA[: 2 * UNIT]
    assert gcs.log == ["open", "put", "last"]


async def test_a_store_that_takes_nothing_of_what_it_is_sent_is_not_asked_for_ever(gcs: FakeGcs) -> None:
    """308 without a byte more, again and again: no progress is a failure that may pass, and patience has an end."""
    gcs.page = 308, ""
    gcs.plan = lambda kind, n: Fault("answer") if kind in ("put", "query") else None
    async with open_quick(attempts=3) as storage:
        with pytest.raises(TransientStorageError, match="took nothing"):
            await write(storage)
    assert gcs.counts["put"] <= 4
    assert not gcs.objects


async def test_an_upload_that_the_store_ends_before_its_last_byte_is_an_error(gcs: FakeGcs) -> None:
    gcs.page = 200, '{"name": "key", "size": "5", "generation": "1"}'
    gcs.plan = lambda kind, n: Fault("answer") if kind == "put" else None
    async with open_quick() as storage:
        with pytest.raises(StorageError, match="ended the upload before its last byte"):
            await write(storage)
    assert not gcs.objects


@pytest.mark.parametrize("stored", [5 * UNIT, 3 * UNIT])
async def test_a_store_that_says_it_has_what_it_was_not_sent_is_not_believed(gcs: FakeGcs, stored: int) -> None:
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


async def test_a_sink_is_used_within_its_context_and_once(gcs: FakeGcs) -> None:
    async with open_quick() as storage:
        opening = storage.open_sink("key")
        async with opening as sink:
            await sink.send([b"data"])
        for late in (sink.send([b"x"]), sink.flush([b"x"])):
            with pytest.raises(anyio.ClosedResourceError):
                await late
    assert gcs.objects["bucket", "key"].data == b"data"


# cancellation -----------------------------------------------------------------------------------------------------


async def test_cancelled_at_any_request_that_hangs_nothing_is_left(
    gcs: FakeGcs, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No session, no object, no request, no thread."""
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
async def test_cancelled_after_the_last_request_took_effect_the_object_is_published(
    gcs: FakeGcs, hangs: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its answer is lost, and finding out how it went is interrupted: the object says so, and so does the exit."""
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


# memory -----------------------------------------------------------------------------------------------------------


async def test_with_a_store_that_takes_nothing_only_so_many_chunks_are_copied(gcs: FakeGcs) -> None:
    """Twelve sinks together hold two chunks, and 256 KiB each; when the store goes on, so do they."""
    chunk = content(8 * UNIT)
    go = anyio.Event()
    opened = done = 0

    async def one(n: int) -> None:
        nonlocal opened, done
        async with storage.open_sink(f"key-{n}") as sink:
            opened += 1
            await go.wait()
            for _ in range(3):
                await sink.send([chunk])
        done += 1

    async with open_quick(chunk_size=len(chunk), max_concurrency=2) as storage:
        async with anyio.create_task_group() as group:
            for n in range(12):
                group.start_soon(one, n)
            with anyio.fail_after(10):
                while opened < 12:
                    await anyio.lowlevel.checkpoint()
                gcs.taking.clear()
                tracemalloc.start()
                before = tracemalloc.get_traced_memory()[0]
                go.set()
                while gcs.counts["put"] < 2:
                    await anyio.lowlevel.checkpoint()
            await anyio.wait_all_tasks_blocked()
            held = tracemalloc.get_traced_memory()[0] - before
            tracemalloc.stop()
            assert done == 0
            gcs.taking.set()
    assert gcs.most_puts == 2
    # The two chunks in the client, parts of them in the server's buffers, what is held back, and objects.
    assert held < 3 * len(chunk) + 12 * UNIT
    assert all(gcs.objects["bucket", f"key-{n}"].data == chunk * 3 for n in range(12))


@pytest.mark.parametrize("status", [404, 410, 499])
async def test_a_session_that_the_store_has_ended_is_said_to_be_gone(gcs: FakeGcs, status: int) -> None:
    gcs.plan = lambda kind, n: Fault("status", status) if kind in ("put", "last", "query") else None
    async with open_quick() as storage:
        with pytest.raises(StorageError, match=f"HTTP {status}: the upload session is gone"):
            await write(storage)
    assert ("bucket", "key") not in gcs.objects
