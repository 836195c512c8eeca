"""The segments of a manifest are freed in a worker thread, because this takes a while for a million shards."""

from __future__ import annotations

import threading
from typing import Any

import pytest

import asyncrec
from asyncrec._shards.manifest import loading
from asyncrec._shards.manifest.segment import Segment, parse_segment
from asyncrec.storage._memory import MemoryStorage

pytestmark = pytest.mark.anyio


async def test_segments_are_freed_off_event_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    storage = MemoryStorage()
    for number in range(5):
        async with asyncrec.open_sharded_writer("pages", storage=storage, max_shard_records=1) as writer:
            await writer.write(b"%d" % number)
    freed_in: list[int] = []

    class Watched(Segment):
        def __del__(self) -> None:
            freed_in.append(threading.get_ident())

    def parse(content: bytes, *, name: str) -> Segment:
        segment = parse_segment(content, name=name)
        fields: dict[str, Any] = {each: getattr(segment, each) for each in Segment.__dataclass_fields__}
        return Watched(**fields)

    monkeypatch.setattr(loading, "parse_segment", parse)
    monkeypatch.setattr(loading, "_TOGETHER", 2)
    monkeypatch.setattr(loading, "_LEAST_MERGED", 2)
    monkeypatch.setattr(loading, "_LITTLE_BYTES", 0)
    history = await loading.load_history(storage, "pages")
    assert len(history.shards) == 5
    assert len(freed_in) == 5
    assert threading.get_ident() not in freed_in
