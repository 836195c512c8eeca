"""A source of ranges: what it asks for, and what it makes of the answers."""

from __future__ import annotations

from datetime import UTC, datetime
from functools import partial

import anyio
import pytest

from asyncrec.errors import ObjectChangedError, StorageError, TransientStorageError
from asyncrec.storage import ObjectInfo
from asyncrec.storage.http import RangedSource, StreamSlots
from asyncrec.storage.http import _ranged_source as ranged_source
from asyncrec.testing import check_source
from asyncrec.testing._checks import content, receive_all

pytestmark = pytest.mark.anyio

DATA = content(100_000)


class Source(RangedSource):
    """Over bytes in memory, in blocks of a thousand."""

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
        return ObjectInfo("key", len(DATA), "v1", None, datetime.now(UTC))

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
    """To the end, in blocks of 3,000 bytes; it breaks where it is told to."""

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


async def test_it_is_a_source_as_the_kit_wants_it() -> None:
    await check_source(Source, DATA)


async def test_it_is_one_too_where_it_streams() -> None:
    slots = StreamSlots(1)
    await check_source(partial(Source, slots=slots), DATA)
    assert slots.left == 1


async def test_who_keeps_up_reads_on_in_one_answer_after_a_first_one() -> None:
    slots = StreamSlots(1)
    async with Source(slots=slots, end=90_000) as source:
        assert await receive_all(source, max_bytes=10_000) == DATA[:90_000]
        assert source.asked == [(0, 10_000)]
        assert [(each.start, each.end, each.closed) for each in source.answers] == [(10_000, 90_000, 1)]
        assert slots.left == 1


async def test_who_asks_for_less_than_half_a_window_at_a_time_gets_ranges() -> None:
    async with Source(slots=StreamSlots(1)) as source:
        assert await receive_all(source, max_bytes=4_999) == DATA
        assert not source.answers


async def test_who_has_got_less_than_a_quarter_of_a_window_or_needs_no_more_than_one_gets_ranges() -> None:
    async with Source(slots=StreamSlots(1)) as source:
        await source.receive(2_499)
        await source.receive(10_000)
        assert not source.answers
    async with Source(slots=StreamSlots(1), end=20_000) as source:
        assert await receive_all(source, max_bytes=10_000) == DATA[:20_000]
        assert not source.answers


async def test_a_quarter_of_a_window_and_half_a_one_asked_for_begin_an_answer() -> None:
    async with Source(slots=StreamSlots(1)) as source:
        await source.receive(2_500)
        await source.receive(5_000)
        assert [each.start for each in source.answers] == [2_500]


async def test_where_no_slot_is_left_it_goes_on_with_ranges() -> None:
    slots = StreamSlots(1)
    async with Source(slots=slots) as first, Source(slots=slots) as second:
        for source in (first, second):
            while len(source.asked) < 1 or source.buffered:
                await source.receive(10_000)
        await first.receive(10_000)
        assert slots.left == 0
        await second.receive(10_000)
        assert (len(first.answers), len(second.answers)) == (1, 0)
        assert second.asked == [(0, 10_000), (10_000, 20_000)]
    assert first.answers[0].closed == 1
    assert slots.left == 1


async def test_an_answer_that_breaks_is_gone_on_with_by_a_range_and_then_by_another_answer() -> None:
    slots = StreamSlots(1)
    async with Source(slots=slots) as source:
        source.breaks_at = 40_000
        read = await receive_all(source, max_bytes=10_000)
        assert read == DATA
        assert source.answers[0].closed == 1
        assert source.answers[0].position == 40_000
        assert source.asked[:2] == [(0, 10_000), (40_000, 50_000)]
        assert slots.left == 1


async def test_a_stream_that_is_refused_is_told_and_keeps_no_slot() -> None:
    slots = StreamSlots(1)
    async with Source(slots=slots) as source:
        source.refusal = ObjectChangedError("replaced")
        with pytest.raises(ObjectChangedError, match="replaced"):
            await receive_all(source, max_bytes=10_000)
        assert slots.left == 1
        source.refusal = TransientStorageError("not now")
        assert await receive_all(source, max_bytes=10_000) == DATA[10_000:]
        assert slots.left == 1


async def test_a_reader_that_rested_is_given_a_range_and_its_connection_goes_back(
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


async def test_cancelled_in_an_answer_it_gives_the_same_bytes_again() -> None:
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


async def test_it_asks_for_what_is_wanted_and_for_a_window_at_most() -> None:
    async with Source(start=10, end=25_000) as source:
        assert await source.receive(3_500) == DATA[10:3_510]
        assert await source.receive(100) == DATA[3_510:3_610]
        assert source.buffered == 0
        assert await receive_all(source, max_bytes=1 << 20) == DATA[3_610:25_000]
        assert source.asked == [(10, 3_510), (3_510, 3_610), (3_610, 13_610), (13_610, 23_610), (23_610, 25_000)]


async def test_what_came_of_an_answer_that_broke_off_is_given_out() -> None:
    async with Source(short=1) as source:
        assert len(await source.receive(1_000)) == 999
        source.short = 0
        assert await source.receive(1_000) == DATA[999:1_999]


@pytest.mark.parametrize("short", [1_000, -1, -90_001])
async def test_an_answer_of_nothing_or_of_more_than_was_asked_for_is_transient_and_the_position_stays(
    short: int,
) -> None:
    async with Source(end=10_000, short=short) as source:
        with pytest.raises(TransientStorageError, match="bytes came"):
            await source.receive(1_000)
        source.short = 0
        assert await source.receive(1_000) == DATA[:1_000]


async def test_small_pieces_are_put_together_and_large_ones_are_not_copied() -> None:
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
async def test_offsets_count_from_the_beginning(start: int, end: int | None) -> None:
    with pytest.raises(ValueError, match="from the beginning"):
        Source(start=start, end=end)
