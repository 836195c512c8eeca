"""A source of ranges: what it asks for, and what it makes of the answers."""

from __future__ import annotations

from datetime import UTC, datetime

import anyio
import pytest

from asyncrec.errors import ObjectChangedError, TransientStorageError
from asyncrec.storage import ObjectInfo, RangedSource
from asyncrec.testing import check_source
from asyncrec.testing._checks import content, receive_all

pytestmark = pytest.mark.anyio

DATA = content(100_000)


class Source(RangedSource):
    """Over bytes in memory, in blocks of a thousand."""

    window = 10_000

    def __init__(self, *, start: int = 0, end: int | None = None, etag: str | None = None, short: int = 0) -> None:
        super().__init__("mem", start=start, end=end, etag=etag)
        self.asked: list[tuple[int, int]] = []
        self.short = short

    async def look(self) -> ObjectInfo:
        await anyio.lowlevel.checkpoint()
        return ObjectInfo("key", len(DATA), "v1", None, datetime.now(UTC))

    async def fetch(self, start: int, end: int) -> list[bytes]:
        await anyio.lowlevel.checkpoint()
        self.asked.append((start, end))
        data = DATA[start : end - self.short]
        return [b"", *(data[n : n + 1000] for n in range(0, len(data), 1000))]


async def test_it_is_a_source_as_the_kit_wants_it() -> None:
    await check_source(Source, DATA)


async def test_it_asks_for_what_is_wanted_and_for_a_window_at_most() -> None:
    async with Source(start=10, end=25_000) as source:
        assert len(await source.receive(3_500)) == 1000
        assert source.buffered == 2_500
        assert await receive_all(source, max_bytes=1 << 20) == DATA[1_010:25_000]
        assert source.asked == [(10, 3_510), (3_510, 13_510), (13_510, 23_510), (23_510, 25_000)]


async def test_an_answer_that_is_short_is_transient_and_the_position_stays() -> None:
    async with Source(short=1) as source:
        with pytest.raises(TransientStorageError, match="999 bytes came"):
            await source.receive(1_000)
        source.short = 0
        assert await source.receive(1_000) == DATA[:1_000]


async def test_another_version_than_the_one_asked_for_is_refused() -> None:
    with pytest.raises(ObjectChangedError, match="v0"):
        async with Source(etag="v0"):
            pass


@pytest.mark.parametrize(("start", "end"), [(-1, None), (0, -1)])
async def test_offsets_count_from_the_beginning(start: int, end: int | None) -> None:
    with pytest.raises(ValueError, match="from the beginning"):
        Source(start=start, end=end)
