"""The walk from bytes to a batch in docs/architecture-walks.md lists the actual calls."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

import asyncrec

pytestmark = pytest.mark.anyio

ROOT = Path(__file__).parents[2]
PACKAGE = Path(asyncrec.__file__).parent
# From the heading to the end of the table.
SECTION = re.compile(r"^### From bytes to a batch$.*?(?:^\|[^\n]*\n)+", re.MULTILINE | re.DOTALL)
Stop = tuple[str, str]


def section() -> str:
    found = SECTION.search((ROOT / "docs" / "architecture-walks.md").read_text("utf-8"))
    assert found is not None, "the section is there"
    return found[0]


def stops() -> list[Stop]:
    """Return the calls of the walk with their files, innermost first."""
    return re.findall(r"^\| \d+ \| `([\w.]+)` \| `([\w./]+)` \|", section(), re.MULTILINE)


@contextmanager
def stacks_at(name: str) -> Iterator[list[list[Stop]]]:
    """Record our part of the call stack, innermost first, at each call of a function with this name."""
    found: list[list[Stop]] = []

    def profile(frame: FrameType, event: str, argument: Any) -> None:
        if event != "call" or frame.f_code.co_qualname != name:
            return
        stack: list[Stop] = []
        each: FrameType | None = frame
        while each is not None:
            path = Path(each.f_code.co_filename)
            if path.is_relative_to(PACKAGE):
                stack.append((each.f_code.co_qualname, path.relative_to(PACKAGE.parent).as_posix()))
            each = each.f_back
        found.append(stack)

    before = sys.getprofile()
    sys.setprofile(profile)
    try:
        yield found
    finally:
        sys.setprofile(before)


async def stack_of_a_read(folder: Path) -> list[Stop]:
    """Return the call stack while the records of a batch are read."""
    async with asyncrec.open_writer(folder / "a.tfrecord") as writer:
        await writer.write_many([b"%d" % number for number in range(50)])
    with stacks_at(stops()[0][0]) as found:
        async with asyncrec.InterleaveSampler(folder, bytes, 1, 4, prefetch_size=0, num_repeat=1) as sampler:
            assert len(await anext(sampler)) == 4
    return found[-1]


async def test_walk_lists_stops_in_call_order(tmp_path: Path) -> None:
    walk = stops()
    stack = await stack_of_a_read(tmp_path)
    assert [each for each in stack if each in walk] == walk


async def test_walk_section_names_every_class_on_stack(tmp_path: Path) -> None:
    classes = {name.partition(".")[0] for name, _ in await stack_of_a_read(tmp_path) if "." in name}
    assert classes
    assert sorted(name for name in classes if f"`{name}" not in section()) == []


def test_walk_has_at_most_ten_stops() -> None:
    assert 5 <= len(stops()) <= 10
