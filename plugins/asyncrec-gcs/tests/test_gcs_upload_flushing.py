"""Flushed bytes are stored in whole units, and are not sent twice."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from fake_gcs import UNIT, FakeGcs
from gcs_uploads import DATA
from opening import open_quick

from asyncrec.testing._checks import content, pieces

pytestmark = pytest.mark.anyio


async def _flushed(gcs: FakeGcs, steps: Sequence[tuple[str, int]], chunk_units: int = 4) -> tuple[bytes, list[int]]:
    """Write with `send` for whole chunks and `flush` for the rest, as a writer does; return data and responses."""
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
async def test_flush_stores_whole_units_without_resending(
    gcs: FakeGcs, steps: list[tuple[str, int]], expected: list[int]
) -> None:
    data, answers = await _flushed(gcs, steps)
    assert gcs.objects["bucket", "key"].data == data
    assert answers == expected
    sent = sum(int(headers["Content-Length"]) for headers in gcs.seen if "Content-Range" in headers)
    assert sent == len(data)


async def test_sink_requires_flushed_bytes_to_be_sent_again(gcs: FakeGcs) -> None:
    async with open_quick(chunk_size=4 * UNIT) as storage:
        with pytest.raises(RuntimeError, match="flushed bytes were not sent again"):
            async with storage.open_sink("key") as sink:
                await sink.flush([DATA[:UNIT]])
        with pytest.raises(ValueError, match="sent again"):
            async with storage.open_sink("key") as sink:
                await sink.flush([DATA[:UNIT]])
                await sink.send([DATA[:5]])
    assert not gcs.objects
    assert not gcs.unfinished


async def test_fully_flushed_upload_adds_only_last_request(gcs: FakeGcs) -> None:
    """The last request then has no body, and its response is trusted."""
    async with open_quick(chunk_size=4 * UNIT) as storage:
        async with storage.open_sink("key") as sink:
            assert await sink.flush([DATA[: 2 * UNIT]]) == 2 * UNIT
            await sink.send([DATA[: 2 * UNIT]])
        assert sink.published is not None
    assert gcs.objects["bucket", "key"].data == DATA[: 2 * UNIT]
    assert gcs.log == ["open", "put", "last"]
