"""Every stop of the walks in docs/architecture-walks.md is called, in the order of the page."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

import asyncrec
from asyncrec.storage._memory import MemoryStorage

pytestmark = pytest.mark.anyio

ROOT = Path(__file__).parents[2]


def stops(heading: str) -> list[tuple[str, str]]:
    """Return ``(file, function)`` for each stop below a heading."""
    page = (ROOT / "docs/architecture-walks.md").read_text("utf-8")
    section = page.partition(f"### {heading}\n")[2].partition("\n#")[0]
    items = re.split(r"^\d+\. ", section, flags=re.MULTILINE)[1:]
    found = [re.match(r"`([\w.]+)` in\s+`([\w/.]+)`", item) for item in items]
    assert all(found), "each stop begins with its function and its file"
    return [(match[2], match[1]) for match in found if match is not None]


class Called:
    """While entered, records asyncrec's functions in the order of their first calls."""

    def __init__(self) -> None:
        self.order: list[tuple[str, str]] = []
        self._seen: set[Any] = set()

    def __enter__(self) -> Called:
        self._before = sys.getprofile()
        sys.setprofile(self._note)
        return self

    def __exit__(self, *_: object) -> None:
        sys.setprofile(self._before)

    def _note(self, frame: FrameType, event: str, argument: object) -> None:
        code = frame.f_code
        if event != "call" or code in self._seen:
            return
        self._seen.add(code)
        path = Path(code.co_filename)
        if path.is_relative_to(ROOT / "asyncrec"):
            self.order.append((path.relative_to(ROOT).as_posix(), code.co_qualname))


async def test_written_record_passes_every_documented_stop_in_order() -> None:
    storage = MemoryStorage()
    walk = stops("The walk of a record")
    assert 1 < len(walk) <= 10
    async with asyncrec.open_sharded_writer("pages", storage=storage, max_shard_records=10) as writer:
        with Called() as called:
            await writer.write(b"a record")
            await writer.commit()
    assert [stop for stop in called.order if stop in walk] == walk
    assert (await asyncrec.read_manifest("pages", storage=storage)).records == 1
