"""`RangedSource`: which ranges it requests, and how it handles the responses."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from functools import partial

import anyio
import pytest

from asyncrec.errors import ObjectChangedError, StorageError, TransientStorageError
from asyncrec.storage import ObjectInfo
from asyncrec.storage.http import LongAnswer, RangedSource, StreamSlots
from asyncrec.storage.http import _ranged_source as ranged_source
from asyncrec.testing import check_source
from asyncrec.testing._checks import content, receive_all

pytestmark = pytest.mark.anyio

DATA = content(100_000)
INFO = ObjectInfo("key", len(DATA), "v1", None, datetime.now(UTC))


class Source(RangedSource):
    """A ranged source over bytes in memory, which returns blocks of a thousand bytes."""

    window = 10_000

    def __init__(
        self,
        *,
        start: int = 0,
        end: int | None = None,
        info: ObjectInfo | None = None,
        short: int = 0,
        slots: StreamSlots | None = None,
    ) -> None:
        super().__init__("mem", start=start, end=end, info=info, slots=slots)
        self.asked: list[tuple[int, int]] = []
        self.short = short
        self.answers: list[Answer] = []
        self.breaks_at = len(DATA)
        self.refusal: StorageError | None = None

    async def look(self) -> ObjectInfo:
        await anyio.lowlevel.checkpoint()
        return INFO

    async def fetch(self, start: int, end: int) -> list[bytes]:
        await anyio.lowlevel.checkpoint()
        self.asked.append((start, end))
        data = DATA[start : end - self.short]
        return [b"", *(data[n : n + 1000] for n in range(0, len(data), 1000))]

    async def stream(self, start: int, end: int) -> Answer:
        await anyio.lowlevel.checkpoint()
        if self.refusal is not None:
            raise self.refusal
        self.answers.append(Answer(start, end, self.breaks_at))
        return self.answers[-1]


class Answer:
    """A response that streams blocks of 3,000 bytes, and fails at ``breaks_at``."""

    def __init__(self, start: int, end: int, breaks_at: int) -> None:
        self.start, self.end, self.breaks_at = start, end, breaks_at
        self.position = start
        self.closed = 0

    async def receive(self, size: int) -> list[bytes]:
        await anyio.lowlevel.checkpoint()
        assert not self.closed
        if self.position >= self.breaks_at:
            raise TransientStorageError("it broke")
        begin, self.position = self.position, min(self.position + 3_000, self.end)
        return [DATA[begin : self.position]]

    async def aclose(self) -> None:
        await anyio.lowlevel.checkpoint()
        self.closed += 1


async def test_ranged_source_passes_source_kit() -> None:
    await check_source(Source, DATA)


async def test_streaming_ranged_source_passes_source_kit() -> None:
    slots = StreamSlots(1)
    await check_source(partial(Source, slots=slots), DATA)
    assert slots.left == 1


async def test_continuous_reader_gets_one_response_from_start() -> None:
    slots = StreamSlots(1)
    async with Source(slots=slots, end=90_000) as source:
        assert await receive_all(source, max_bytes=10_000) == DATA[:90_000]
        assert not source.asked
        assert [(each.start, each.end, each.closed) for each in source.answers] == [(0, 90_000, 1)]
        assert slots.left == 1


async def test_reader_of_small_pieces_gets_ranges() -> None:
    async with Source(slots=StreamSlots(1)) as source:
        assert await receive_all(source, max_bytes=300) == DATA
        assert not source.answers


async def test_short_object_is_read_with_one_range() -> None:
    slots = StreamSlots(1)
    async with Source(slots=slots, end=9_000) as source:
        assert await receive_all(source, max_bytes=10_000) == DATA[:9_000]
        assert source.asked == [(0, 9_000)]
        assert not source.answers


async def test_paused_reader_gets_stream_after_quarter_window(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with Source(slots=StreamSlots(1)) as source:
        await source.receive(500)
        while source.buffered:
            await source.receive(10_000)
        monkeypatch.setattr(ranged_source, "_REST", -1.0)
        await source.receive(2_400)
        monkeypatch.undo()
        await source.receive(100)
        assert len(source.answers) == 1
        await source.receive(500)
        assert len(source.answers) == 2


class Known(Source):
    """A source whose first response describes the object, so that no separate look-up is needed."""

    said = True
    looks = 0

    async def first(self, start: int, end: int | None) -> tuple[ObjectInfo, LongAnswer | Sequence[bytes]] | None:
        await anyio.lowlevel.checkpoint()
        if not self.said or start >= len(DATA):
            return None
        self.answers.append(Answer(start, len(DATA) if end is None else min(end, len(DATA)), self.breaks_at))
        return INFO, self.answers[-1]

    async def look(self) -> ObjectInfo:
        self.looks += 1
        return await super().look()


async def test_self_describing_source_passes_source_kit() -> None:
    for slots in (StreamSlots(1), StreamSlots(0)):
        await check_source(partial(Known, slots=slots), DATA)


@pytest.mark.parametrize("end", [None, len(DATA) + 9])
async def test_empty_response_at_end_ends_source(end: int | None) -> None:
    class AtEnd(Source):
        async def first(self, start: int, end: int | None) -> tuple[ObjectInfo, LongAnswer | Sequence[bytes]] | None:
            await anyio.lowlevel.checkpoint()
            return INFO, [b""]

    async with AtEnd(start=len(DATA), end=end) as source:
        assert await receive_all(source) == b""


async def test_object_of_unknown_length_is_read_in_one_response() -> None:
    slots = StreamSlots(1)
    async with Known(slots=slots) as source:
        assert slots.left == 0, "it is under way"
        assert await receive_all(source, max_bytes=500) == DATA
        assert [(each.start, each.end, each.closed) for each in source.answers] == [(0, len(DATA), 1)]
        assert not source.asked
        assert not source.looks
    assert slots.left == 1


async def test_small_range_of_unknown_object_keeps_no_slot() -> None:
    slots = StreamSlots(1)
    async with Known(slots=slots, start=50, end=300) as source:
        assert (slots.left, source.answers[0].closed, source.buffered) == (1, 1, 250)
        assert await receive_all(source) == DATA[50:300]


async def test_unknown_object_without_slot_starts_with_small_range() -> None:
    async with Known() as source:
        assert [(each.start, each.end, each.closed) for each in source.answers] == [(0, 312, 1)]
        assert await receive_all(source, max_bytes=50_000) == DATA
        assert source.asked[0] == (312, 10_312)


async def test_failed_first_response_keeps_no_slot() -> None:
    slots = StreamSlots(1)
    source = Known(slots=slots)
    source.breaks_at = 0
    async with source:
        assert await receive_all(source, max_bytes=10_000) == DATA
    assert slots.left == 1
    source = Known(slots=slots, end=300)
    source.breaks_at = 0
    with pytest.raises(TransientStorageError, match="broke"):
        async with source:
            raise AssertionError("it was opened")
    assert (slots.left, source.answers[0].closed) == (1, 1)


async def test_source_queries_store_after_incomplete_response() -> None:
    slots = StreamSlots(1)
    source = Known(slots=slots)
    source.said = False
    async with source:
        assert (slots.left, source.looks) == (1, 1)
        assert await receive_all(source, max_bytes=10_000) == DATA


async def test_known_version_is_not_requested_on_entry() -> None:
    async with Known(info=INFO, slots=StreamSlots(1)) as source:
        assert source.info == INFO
        assert not source.answers
        assert await receive_all(source, max_bytes=10_000) == DATA
        assert len(source.answers) == 1, "by one answer"


async def test_source_without_free_slot_continues_with_ranges() -> None:
    slots = StreamSlots(1)
    async with Source(slots=slots) as first, Source(slots=slots) as second:
        await first.receive(10_000)
        assert slots.left == 0
        await second.receive(10_000)
        assert (len(first.answers), len(second.answers)) == (1, 0)
        assert second.asked == [(0, 10_000)]
    assert first.answers[0].closed == 1
    assert slots.left == 1


async def test_broken_stream_continues_with_range_then_another_stream() -> None:
    slots = StreamSlots(1)
    async with Source(slots=slots) as source:
        source.breaks_at = 40_000
        read = await receive_all(source, max_bytes=10_000)
        assert read == DATA
        assert source.answers[0].closed == 1
        assert source.answers[0].position == 42_000
        assert source.asked[0] == (42_000, 52_000)
        assert slots.left == 1


async def test_rejected_stream_raises_and_keeps_no_slot() -> None:
    slots = StreamSlots(1)
    async with Source(slots=slots) as source:
        source.refusal = ObjectChangedError("replaced")
        with pytest.raises(ObjectChangedError, match="replaced"):
            await receive_all(source, max_bytes=10_000)
        assert slots.left == 1
        source.refusal = TransientStorageError("not now")
        assert await receive_all(source, max_bytes=10_000) == DATA
        assert slots.left == 1


async def test_paused_reader_gets_range_and_returns_connection(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    slots = StreamSlots(1)
    async with Source(slots=slots) as source:
        while not source.answers:
            await source.receive(10_000)
        while source.buffered:
            await source.receive(10_000)
        monkeypatch.setattr(ranged_source, "_REST", -1.0)
        before = len(source.asked)
        await source.receive(10_000)
        assert source.answers[0].closed == 1
        assert len(source.asked) == before + 1
        assert slots.left == 1


async def test_source_cancelled_in_stream_returns_same_bytes_again() -> None:
    slots = StreamSlots(1)
    async with Source(slots=slots) as source:
        read = b""
        while not source.answers:
            read += await source.receive(10_000)
        while source.buffered:
            read += await source.receive(10_000)
        with anyio.CancelScope() as scope:
            scope.cancel()
            await source.receive(10_000)
        assert scope.cancelled_caught
        assert slots.left == 1
        assert read + await receive_all(source, max_bytes=10_000) == DATA


async def test_source_requests_at_most_one_window() -> None:
    async with Source(start=10, end=25_000) as source:
        assert await source.receive(3_500) == DATA[10:3_510]
        assert await source.receive(100) == DATA[3_510:3_610]
        assert source.buffered == 0
        assert await receive_all(source, max_bytes=1 << 20) == DATA[3_610:25_000]
        assert source.asked == [(10, 3_510), (3_510, 3_610), (3_610, 13_610), (13_610, 23_610), (23_610, 25_000)]


async def test_bytes_of_truncated_response_are_returned() -> None:
    async with Source(short=1) as source:
        assert len(await source.receive(1_000)) == 999
        source.short = 0
        assert await source.receive(1_000) == DATA[999:1_999]


@pytest.mark.parametrize("short", [1_000, -1, -90_001])
async def test_misfit_response_is_transient_and_keeps_position(
    short: int,
) -> None:
    async with Source(end=10_000, short=short) as source:
        with pytest.raises(TransientStorageError, match="returned"):
            await source.receive(1_000)
        source.short = 0
        assert await source.receive(1_000) == DATA[:1_000]


async def test_small_pieces_are_joined_but_large_uncopied() -> None:
    large = [bytes(100 << 10), bytes(200 << 10)]
    small = [bytes([n % 7]) * 10_000 for n in range(60)]

    class Pieces(Source):
        async def look(self) -> ObjectInfo:
            return ObjectInfo("key", 300 * 1024 + 600_000, "v1", None, datetime.now(UTC))

        async def fetch(self, start: int, end: int) -> list[bytes]:
            return [*large, *small]

    async with Pieces() as source:
        source.window = 1 << 20
        blocks = [await source.receive(1 << 20)]
        while source.buffered:
            blocks.append(await source.receive(1 << 20))
    assert b"".join(blocks) == b"".join([*large, *small])
    assert [block is piece for block, piece in zip(blocks, large, strict=False)] == [True, True]
    assert [len(block) for block in blocks][2:] == [270_000, 270_000, 60_000]


@pytest.mark.parametrize(("start", "end"), [(-1, None), (0, -1)])
async def test_negative_offsets_are_rejected(start: int, end: int | None) -> None:
    with pytest.raises(ValueError, match="from the beginning"):
        Source(start=start, end=end)
