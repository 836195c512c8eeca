"""A user's deserializer function may block the event loop only briefly."""

from __future__ import annotations

from itertools import pairwise
from types import SimpleNamespace

import pytest

from asyncrec._sampling.interleave.provenance import TracedRecords
from asyncrec._sampling.interleave_sampler import deserializer
from asyncrec._sampling.interleave_sampler.deserializer import Deserializer

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize(("seconds", "most"), [(0.01, 1), (0.0002, 3), (0.000001, 600)])
async def test_deserializer_yields_after_half_millisecond_or_slow_record(
    seconds: float, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 0.0
    since: list[int] = [0]

    def slow(record: bytes) -> bytes:
        nonlocal now
        now += seconds
        since[-1] += 1
        return record

    async def turn() -> None:
        since.append(0)

    monkeypatch.setattr(deserializer, "time", SimpleNamespace(perf_counter=lambda: now))
    monkeypatch.setattr(deserializer, "checkpoint", turn)
    records = [b"%d" % number for number in range(2000)]
    examples, error = await Deserializer(slow, 1, str).run(TracedRecords(records))
    assert (examples, error) == (records, None)
    assert max(since) <= most + 1  # the first record is deserialized alone, because its cost is not yet known
    assert min(since[:-1]) >= min(most, 2) / 2


async def test_deserializer_batches_shrink_as_function_slows(monkeypatch: pytest.MonkeyPatch) -> None:
    now, took = 0.0, 0.000001
    calls: list[float] = []

    def function(record: bytes) -> bytes:
        nonlocal now
        now += took
        calls.append(now)
        return record

    turns: list[int] = []

    async def turn() -> None:
        turns.append(len(calls))

    monkeypatch.setattr(deserializer, "time", SimpleNamespace(perf_counter=lambda: now))
    monkeypatch.setattr(deserializer, "checkpoint", turn)
    made = Deserializer(function, 1, str)
    await made.run(TracedRecords([b"x"] * 500))
    took = 0.01
    turns.clear()
    await made.run(TracedRecords([b"x"] * 100))
    assert [b - a for a, b in pairwise(turns)] == [1] * (len(turns) - 1)
    assert turns[0] - 500 <= 64
