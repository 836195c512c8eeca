"""`ObjectWriter` and its `WriteQueue`: tickets reach their levels in order, and failures reach every waiting caller."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any, Literal

import anyio
import anyio.lowlevel
import pytest

from asyncrec._framing.compression import parse_compression
from asyncrec._framing.frames import FRAME_OVERHEAD, encode_frames
from asyncrec._records.writing.inbox import FlushRequest
from asyncrec._records.writing.memory_budget import ByteBudget
from asyncrec._records.writing.object_limits import ObjectLimits
from asyncrec._records.writing.object_output import ObjectOutput
from asyncrec._records.writing.object_writer import ObjectWriter
from asyncrec._records.writing.write_batch import BATCH_BYTES, BATCH_RECORDS, KEY_BYTES, WriteBatch
from asyncrec._records.writing.write_queue import WriteQueue, copy_for_reraise
from asyncrec.storage._base import Buffer
from asyncrec.storage._chunk_writer import ChunkWriter
from asyncrec.storage._memory import MemoryStorage

pytestmark = [pytest.mark.anyio, pytest.mark.virtual_clock]


class Picky(Exception):
    """An exception that, like those of some clients, cannot be copied without its arguments."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(text)
        self.code = code


def test_reraised_error_is_copy_or_original() -> None:
    error = OSError(5, "disk")
    again = copy_for_reraise(error)
    assert (type(again), again.args, again.__cause__) == (OSError, (5, "disk"), error)
    assert again is not error
    picky = Picky(3, "text")
    assert copy_for_reraise(picky) is picky
    closed = copy_for_reraise(KeyboardInterrupt())
    assert isinstance(closed, anyio.ClosedResourceError)


async def _whole(tail: Sequence[Buffer]) -> int:
    return sum(map(len, tail))


class Host:
    """A host that keeps objects in memory; ``commits`` is whether published objects are committed at once."""

    def __init__(self, *, commits: bool = True, fails_at: str = "") -> None:
        self.storage = MemoryStorage()
        self.turn = anyio.Semaphore(1)
        self.commits, self.fails_at = commits, fails_at
        self.objects: list[tuple[int, int]] = []  # the number of records and the last ticket of each
        self.times: list[tuple[float, float]] = []
        self.heard = 0

    def _fail(self, what: str) -> None:
        if self.fails_at == what:
            raise OSError(what)

    @asynccontextmanager
    async def open_object(self) -> AsyncIterator[ObjectOutput]:
        self._fail("open")
        async with self.storage.open_sink(f"object{len(self.objects)}") as sink:
            sink.flush = _whole  # type: ignore[method-assign]  # durable, as on a disk
            yield ObjectOutput(ChunkWriter(sink), compression=parse_compression(""))
        self._fail("publish")

    async def before_publish(self) -> None:
        self._fail("before")

    async def published_object(
        self, output: ObjectOutput, first: float, last: float, ticket: int
    ) -> Literal["spooled", "committed"]:
        self._fail("commit")
        self.objects.append((output.records, ticket))
        self.times.append((first, last))
        return "committed" if self.commits else "spooled"

    def progressed(self) -> None:
        self.heard += 1

    async def go_on(self, error: Exception) -> list[WriteBatch] | None:
        return None


async def settled() -> None:
    for _ in range(30):
        await anyio.lowlevel.checkpoint()


@asynccontextmanager
async def writing_to(host: Host, **options: Any) -> AsyncIterator[tuple[WriteQueue, ByteBudget, Callable[..., None]]]:
    budget = ByteBudget(1 << 24)
    queue = WriteQueue(
        "objects", budget, limits=ObjectLimits(**options.get("limits", {})), compressed=options.get("compressed", False)
    )
    writer = ObjectWriter(
        host, queue, budget, durable_flush=options.get("durable_flush", True), eager=options.get("eager", False)
    )
    ticket = 0

    def append(size: int = 10) -> None:
        nonlocal ticket
        ticket += 1
        budget.used += size + FRAME_OVERHEAD
        queue.append(bytes(size), ticket)

    async with anyio.create_task_group() as group:
        group.start_soon(writer.run)
        yield queue, budget, append
        queue.close()
    assert writer.finished.is_set()
    assert writer.opened.is_set()


async def test_tickets_are_spooled_by_flush_and_committed_with_object() -> None:
    host = Host()
    async with writing_to(host) as (queue, budget, append):
        assert (queue.levels.first_unspooled, queue.levels.first_uncommitted, queue.levels.oldest_uncommitted) == (
            None,
            None,
            None,
        )
        await anyio.sleep(5)
        append()
        append()
        assert (queue.levels.first_unspooled, queue.levels.first_uncommitted) == (1, 1)
        assert queue.levels.oldest_uncommitted == pytest.approx(anyio.current_time())
        request = queue.flush()
        assert queue.flush() is request, "one that has not begun is shared"
        await request.done.wait()
        assert request.spooled
        assert (queue.levels.first_unspooled, queue.levels.first_uncommitted) == (None, 1)
        append()
        assert (queue.levels.first_unspooled, queue.levels.first_uncommitted) == (3, 1)
        assert (queue.records, queue.bytes) == (3, 3 * (10 + FRAME_OVERHEAD))
        queue.end_object()
        await settled()
        assert (queue.levels.first_unspooled, queue.levels.first_uncommitted) == (None, None)
        assert host.objects == [(3, 3)]
        assert budget.used == budget.under_way == budget.reserved == 0
        append()
        assert (queue.levels.first_unspooled, queue.levels.first_uncommitted) == (4, 4)
    assert host.objects == [(3, 3), (1, 4)]
    assert (queue.levels.first_unspooled, queue.levels.first_uncommitted) == (None, None)


async def test_published_objects_stay_uncommitted_until_commit_notice() -> None:
    async with writing_to(Host(commits=False)) as (queue, _, append):
        append()
        queue.end_object()
        append()
        queue.end_object()
        await settled()
        assert (queue.levels.first_unspooled, queue.levels.first_uncommitted) == (None, 1)
        queue.levels.committed(0)
        assert queue.levels.first_uncommitted == 1
        queue.levels.committed(1)
        assert queue.levels.first_uncommitted == 2
        queue.levels.committed(2)
        assert queue.levels.first_uncommitted is None


async def test_non_durable_flush_leaves_tickets_unspooled() -> None:
    async with writing_to(Host(), durable_flush=False) as (queue, _, append):
        append()
        request = queue.flush()
        await request.done.wait()
        assert not request.spooled
        assert queue.levels.first_unspooled == 1


async def test_empty_or_late_flush_completes_at_once() -> None:
    async with writing_to(Host()) as (queue, _, append):
        request = queue.flush()
        await request.done.wait()
        assert request.spooled
        append()
        queue.end_object()
        late = queue.flush()
        await late.done.wait()
        assert late.spooled
    after = queue.flush()
    assert isinstance(after, FlushRequest)
    assert after.done.is_set()


@pytest.mark.parametrize(
    ("limits", "size", "expected"),
    [
        ({"records": 3}, 10, [3, 3, 3, 1]),
        ({"bytes": 3 * (10 + FRAME_OVERHEAD)}, 10, [3, 3, 3, 1]),
        ({"bytes": 4 * (10 + FRAME_OVERHEAD) - 1}, 10, [3, 3, 3, 1]),
        ({"bytes": 5}, 10, [1] * 10),
        ({"records": 100}, 10, [10]),
    ],
)
@pytest.mark.parametrize("pause", [False, True])
async def test_object_ends_exactly_at_its_limit(
    limits: dict[str, int], size: int, expected: list[int], pause: bool
) -> None:
    host = Host()
    async with writing_to(host, limits=limits) as (_, _, append):
        for _ in range(10):
            append(size)
            if pause:
                await settled()
    assert [records for records, _ in host.objects] == expected
    assert host.objects[-1][1] == 10


async def test_batched_records_end_objects_like_single_records() -> None:
    host = Host()
    async with writing_to(host, limits={"records": 4}) as (queue, budget, _):
        for first, count in ((1, 3), (7, 3), (13, 1)):
            size = count * (10 + FRAME_OVERHEAD)
            budget.used += size
            queue.append_many([bytes(10)] * count, size, first, 2)
    assert host.objects == [(4, 7), (3, 13)]
    assert budget.used == 0


async def test_time_limit_counts_from_first_record() -> None:
    host = Host()
    async with writing_to(host, limits={"seconds": 60}) as (_, _, append):
        for wait in (0, 59, 2, 100):
            await anyio.sleep(wait)
            append()
        await anyio.sleep(61)
        assert [records for records, _ in host.objects] == [2, 1, 1]
    assert [round(last - first) for first, last in host.times] == [60, 60, 60]


async def test_many_small_records_form_one_ordered_object() -> None:
    host = Host()
    async with writing_to(host, eager=True) as (queue, _, append):
        for _ in range(2 * BATCH_RECORDS + 5):
            append(1)
        assert queue.records == 2 * BATCH_RECORDS + 5
    assert host.objects == [(2 * BATCH_RECORDS + 5, 2 * BATCH_RECORDS + 5)]


async def test_eager_writer_publishes_empty_object() -> None:
    for eager, objects in ((True, [(0, 0)]), (False, [])):
        host = Host()
        async with writing_to(host, eager=eager):
            pass
        assert host.objects == objects


@pytest.mark.parametrize("fails_at", ["open", "before", "publish", "commit"])
async def test_failure_releases_memory_and_all_waiters(fails_at: str) -> None:
    host = Host(fails_at=fails_at)
    async with writing_to(host, eager=True) as (queue, budget, append):
        append()
        append()
        flush = queue.flush()
        append()
        queue.end_object()
        append()
        await settled()
        assert queue.error is not None
        assert str(queue.error) == fails_at
        assert flush.done.is_set()
        assert host.heard
        append()
        queue.end_object()
        late = queue.flush()
        assert late.done.is_set()
        assert not late.spooled
        assert (queue.levels.first_uncommitted, host.objects) == (1, [])
    assert budget.under_way == 0
    assert budget.used == 0
    assert queue.flush().done.is_set()


class Slow(Host):
    """A host where opening takes ``opening`` seconds, and publishing waits for ``may_publish``."""

    def __init__(self, *, opening: float = 0) -> None:
        super().__init__()
        self.opening = opening
        self.publishing = anyio.Event()
        self.may_publish = anyio.Event()

    @asynccontextmanager
    async def open_object(self) -> AsyncIterator[ObjectOutput]:
        await anyio.sleep(self.opening)
        async with super().open_object() as output:
            yield output

    async def before_publish(self) -> None:
        self.publishing.set()
        await self.may_publish.wait()


async def test_flush_waits_for_own_object_only() -> None:
    """A flush for the current object finishes without waiting for flushes that are queued for the next object."""
    host = Slow()
    async with writing_to(host) as (queue, _, append):
        append()
        first = queue.flush()
        append()
        again = queue.flush()
        queue.end_object()
        append()
        later = queue.flush()
        assert len({first, again, later}) == 3
        await host.publishing.wait()
        assert (first.done.is_set(), again.done.is_set(), later.done.is_set()) == (True, True, False)
        assert (first.spooled, again.spooled) == (True, True)
        host.may_publish.set()
        await later.done.wait()
        assert later.spooled
    assert [records for records, _ in host.objects] == [2, 1]


async def test_concurrent_flushes_share_one_object_flush() -> None:
    host = Host()
    flushed = 0
    opening = host.open_object

    @asynccontextmanager
    async def counting() -> AsyncIterator[ObjectOutput]:
        async with opening() as output:
            flush = output.flush

            async def counted() -> bool:
                nonlocal flushed
                flushed += 1
                return await flush()

            output.flush = counted  # type: ignore[method-assign]  # to count
            yield output

    host.open_object = counting  # type: ignore[method-assign]  # likewise
    async with writing_to(host) as (queue, _, append):
        requests = []
        for _ in range(5):
            append()
            requests.append(queue.flush())
        for request in requests:
            await request.done.wait()
            assert request.spooled
        assert queue.levels.first_unspooled is None
    assert flushed == 1


async def test_records_delayed_by_opening_get_full_time_limit() -> None:
    """Their time limit had expired before the object opened; a new limit avoids many small objects."""
    host = Slow(opening=100)
    host.may_publish.set()
    async with writing_to(host, limits={"seconds": 60}) as (queue, _, append):
        append()
        queue.seal()
        await anyio.sleep(100 + 59)
        append()
        assert host.objects == []
        await anyio.sleep(2)
        assert [records for records, _ in host.objects] == [2]
        await anyio.sleep(1000)
    assert len(host.objects) == 1


async def test_compressed_object_ends_with_batch_reaching_its_limit() -> None:
    """The compressed size is only known after the batch is written, but the record count is known before."""
    host = Host()
    async with writing_to(host, compressed=True, limits={"bytes": 100, "records": 6}) as (queue, _, append):
        for size in (50, 50, 50):  # 66 bytes each when framed
            append(size)
            queue.seal()
            await settled()
        assert [records for records, _ in host.objects] == [2]
        for _ in range(5):
            append(0)
        await settled()
        assert [records for records, _ in host.objects] == [2], "one of these was taken before"
        append(0)
        await settled()
        assert [records for records, _ in host.objects] == [2, 6]
    assert [records for records, _ in host.objects] == [2, 6, 1]


async def test_records_after_early_end_count_towards_next_object() -> None:
    """This applies to batches in the queue and to the pending batch."""
    host = Slow()
    async with writing_to(host, limits={"seconds": 60, "records": 5, "bytes": 5 * (10 + FRAME_OVERHEAD)}) as (
        queue,
        _,
        append,
    ):
        append()
        queue.seal()
        await settled()
        await anyio.sleep(61)
        await host.publishing.wait()
        append()
        append()
        queue.seal()
        append()
        append()
        append()
        append()
        host.may_publish.set()
    assert [records for records, _ in host.objects] == [1, 5, 1]
    assert host.objects[-1][1] == 7


@pytest.mark.parametrize("limits", [{"records": 3}, {"bytes": 3 * (10 + FRAME_OVERHEAD)}])
async def test_sealed_batch_counts_towards_limits_like_its_records(limits: dict[str, int]) -> None:
    """The batch follows the pending records, and starts a new object only if the current one has no room."""
    host = Host()
    async with writing_to(host, limits=limits) as (queue, budget, append):
        append()
        budget.used += 10 + FRAME_OVERHEAD
        queue.append_sealed(
            WriteBatch.of_large(bytes(10), encode_frames([bytes(10)]), ticket=2, time=anyio.current_time())
        )
        assert (queue.levels.first_uncommitted, queue.records, queue.bytes) == (1, 2, 2 * (10 + FRAME_OVERHEAD))
        budget.used += 2 * (10 + FRAME_OVERHEAD)
        for ticket in (3, 4):
            queue.append_sealed(
                WriteBatch.of_large(bytes(10), encode_frames([bytes(10)]), ticket=ticket, time=anyio.current_time())
            )
        await settled()
        assert host.objects == [(3, 3)]
        assert (queue.levels.first_uncommitted, queue.levels.first_unspooled) == (4, 4)
    assert host.objects == [(3, 3), (1, 4)]
    assert budget.used == budget.under_way == 0


async def test_flush_missed_by_its_object_completes_on_publication() -> None:
    """The object's time limit passes before the flush runs, and the object contains all records to be flushed."""
    host = Slow()
    async with writing_to(host, limits={"seconds": 60}) as (queue, _, append):
        append()
        queue.seal()
        await anyio.sleep(61)
        await host.publishing.wait()
        late = queue.flush()
        await settled()
        assert not late.done.is_set()
        host.may_publish.set()
        await late.done.wait()
        assert late.spooled
        assert queue.levels.first_uncommitted is None
    assert [records for records, _ in host.objects] == [1]


async def test_cancelled_owner_leaves_error_and_releases_waiters() -> None:
    """All waiting callers are released, and no memory stays reserved."""
    host = Slow()
    budget = ByteBudget(1 << 20)
    queue = WriteQueue("objects", budget, limits=ObjectLimits(), compressed=False)
    writer = ObjectWriter(host, queue, budget, durable_flush=True, eager=True)
    async with anyio.create_task_group() as group:
        group.start_soon(writer.run)
        budget.used += 10 + FRAME_OVERHEAD
        queue.append(bytes(10), 1)
        queue.end_object()
        await host.publishing.wait()
        budget.used += 2 * (10 + FRAME_OVERHEAD)
        queue.append(bytes(10), 2)
        flush = queue.flush()
        queue.append(bytes(10), 3)
        group.cancel_scope.cancel()
    assert queue.error is not None
    assert not isinstance(queue.error, Exception)
    assert isinstance(copy_for_reraise(queue.error), anyio.ClosedResourceError)
    assert flush.done.is_set()
    assert not flush.spooled
    assert (budget.used, budget.under_way, queue.levels.first_uncommitted) == (0, 0, 1)


async def test_batch_with_keys_pads_keyless_records() -> None:
    """A batch has a key for every record or for none, even if records with and without keys alternate."""
    none = bytes(KEY_BYTES)
    size = 1 + FRAME_OVERHEAD
    async with writing_to(Host()) as (queue, budget, append):
        append(1)
        assert queue._pending is not None
        assert queue._pending.keys is None
        budget.used += 4 * size
        queue.append(b"x", 2, b"k" * KEY_BYTES)
        queue.append(b"x", 3)
        queue.append_many([b"x"] * 2, 2 * size, 4)
        assert queue._pending.keys == [none, b"k" * KEY_BYTES, none, none, none]
        assert (queue._pending.first, queue._pending.last) == (1, 5)


async def test_batch_is_queued_at_byte_or_record_limit() -> None:
    host = Slow()
    async with writing_to(host) as (queue, budget, append):
        append(BATCH_BYTES - 2 * FRAME_OVERHEAD - 1)
        assert queue._pending is not None
        append(1)
        assert queue._pending is None, "of bytes"
        for _ in range(BATCH_RECORDS - 1):
            append(0)
        assert queue._pending is not None
        append(0)
        assert queue._pending is None, "of records"
        budget.used += BATCH_RECORDS * FRAME_OVERHEAD
        queue.append_many([b""] * BATCH_RECORDS, BATCH_RECORDS * FRAME_OVERHEAD, 5000)
        assert queue._pending is None, "of records that came together"
        host.may_publish.set()


async def test_first_batch_of_queue_is_partial() -> None:
    """Otherwise queues that are filled at the same rate would all have full batches in the same turn of the loop."""
    budget = ByteBudget(1 << 24)
    queue = WriteQueue("objects", budget, limits=ObjectLimits(), compressed=False, first_part=0.25)
    ticket = 0

    def appended_until_handed_over(size: int) -> int:
        nonlocal ticket
        before = budget.under_way
        for count in itertools.count(1):
            ticket += 1
            queue.append(bytes(size), ticket)
            if budget.under_way > before:
                return count
        raise AssertionError

    quarter = BATCH_BYTES // 4 // (1000 + FRAME_OVERHEAD) + 1
    whole = BATCH_BYTES // (1000 + FRAME_OVERHEAD) + 1
    assert [appended_until_handed_over(1000) for _ in range(3)] == [quarter, whole, whole]
    queue.append(bytes(1000), ticket + 1)
    queue.flush()
    assert [appended_until_handed_over(0) for _ in range(3)] == [BATCH_RECORDS // 4, BATCH_RECORDS, BATCH_RECORDS]
    queue.append(b"", ticket + 1)
    queue.end_object()
    part, size = BATCH_RECORDS // 8, BATCH_RECORDS // 8 * FRAME_OVERHEAD
    for expected in (2, 8):
        before = budget.under_way
        for _ in range(expected):
            assert budget.under_way == before
            queue.append_many([b""] * part, size, ticket + 1)
            ticket += part
        assert budget.under_way > before


async def test_sidecar_bytes_are_released_with_their_object() -> None:
    host = Host()
    index = MemoryStorage()

    @asynccontextmanager
    async def opening() -> AsyncIterator[ObjectOutput]:
        number = len(host.objects)
        async with host.storage.open_sink(f"o{number}") as sink, index.open_sink(f"i{number}") as beside:
            yield ObjectOutput(ChunkWriter(sink), compression=parse_compression(""), index=ChunkWriter(beside))

    host.open_object = opening  # type: ignore[method-assign]  # with an index
    async with writing_to(host) as (queue, budget, append):
        for _ in range(3):
            append(10)
            queue.seal()
            await settled()
            assert budget.reserved == len(b"0 26\n")
            queue.end_object()
            await settled()
            assert budget.reserved == 0
    assert len(host.objects) == 3
