"""An upload uses few requests and few chunks of memory, and fails when opened if it cannot succeed."""

from __future__ import annotations

import tracemalloc

import anyio
import pytest
from fake_gcs import UNIT, FakeGcs, Fault, nth
from gcs_uploads import DATA, write
from opening import open_quick

from asyncrec.errors import ObjectExistsError, ObjectNotFoundError
from asyncrec.testing._checks import content, send_all

pytestmark = pytest.mark.anyio


async def test_upload_sends_session_chunks_and_last_request(gcs: FakeGcs) -> None:
    async with open_quick() as storage:
        sink = await write(storage)
    assert gcs.log == ["open", "put", "put", "put", "put", "put", "last"]
    assert sink.published == (await _head(gcs, "key"))
    assert gcs.objects["bucket", "key"].data == DATA


@pytest.mark.parametrize("size", [0, 1, UNIT - 1, UNIT])
async def test_small_object_takes_two_requests(gcs: FakeGcs, size: int) -> None:
    async with open_quick(chunk_size=4 * UNIT) as storage:
        await write(storage, DATA[:size])
    assert gcs.log == ["open", "last"]
    assert gcs.objects["bucket", "key"].data == DATA[:size]


async def _head(gcs: FakeGcs, key: str) -> object:
    async with open_quick() as storage:
        return await storage.head(key)


async def test_missing_bucket_fails_opening_of_sink(gcs: FakeGcs) -> None:
    async with open_quick("gs://missing") as storage:
        with pytest.raises(ObjectNotFoundError, match="bucket does not exist"):
            async with storage.open_sink("key"):
                raise AssertionError("opened")


async def test_exclusive_sink_finds_existing_object_on_opening(gcs: FakeGcs) -> None:
    gcs.put("key", b"older")
    async with open_quick() as storage:
        with pytest.raises(ObjectExistsError, match="gs://bucket/key"):
            async with storage.open_sink("key", exclusive=True):
                raise AssertionError("opened")
    assert gcs.objects["bucket", "key"].data == b"older"


@pytest.mark.parametrize("how", ["", "reset-after", "forget-after", "status-after"])
async def test_racing_exclusive_writers_yield_one_winner(gcs: FakeGcs, how: str) -> None:
    """If the winner's response is lost, the id of its upload identifies it, not its bytes."""
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


async def test_sink_rejects_calls_after_context_exit(gcs: FakeGcs) -> None:
    async with open_quick() as storage:
        opening = storage.open_sink("key")
        async with opening as sink:
            await sink.send([b"data"])
        for late in (sink.send([b"x"]), sink.flush([b"x"])):
            with pytest.raises(anyio.ClosedResourceError):
                await late
    assert gcs.objects["bucket", "key"].data == b"data"


async def test_sinks_bound_copied_chunks_for_stalled_store(gcs: FakeGcs) -> None:
    """Together, twelve sinks keep two chunks and 256 KiB each; when the store continues, so do they."""
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
    # The client's two chunks, parts of them in the server's buffers, withheld tails, and objects.
    assert held < 3 * len(chunk) + 12 * UNIT
    assert all(gcs.objects["bucket", f"key-{n}"].data == chunk * 3 for n in range(12))
