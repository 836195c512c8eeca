"""Patterns in the last part of a path: what counts as a pattern, and what it matches."""

from __future__ import annotations

import pytest

from asyncrec.storage._listing import is_pattern, matching
from asyncrec.storage._memory import MemoryStorage
from asyncrec.testing import FlakyStorage

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize(("name", "is_one"), [("a*", True), ("a?", True), ("a[0-9]", True), ("a]", False), ("", False)])
async def test_pattern_is_recognised_by_three_characters(name: str, is_one: bool) -> None:
    assert is_pattern(name) is is_one


@pytest.mark.parametrize(
    ("pattern", "found"),
    [
        ("a*", ["a1", "a2"]),
        ("?1", ["a1", "b1"]),
        ("a[2-9]", ["a2"]),
        ("f/*", ["f/c1"]),
        ("f*/c1", []),  # no patterns before the last slash
        ("*", ["a1", "a2", "b1"]),
    ],
)
async def test_pattern_matches_objects_of_one_folder(pattern: str, found: list[str]) -> None:
    storage = MemoryStorage()
    for key in ("a1", "a2", "b1", "f/c1", "f/g/d1"):
        await storage.put(key, b"")
    assert [info.key async for info in matching(storage, pattern)] == found


async def test_pattern_lists_only_keys_with_its_literal_prefix() -> None:
    storage = FlakyStorage(MemoryStorage())
    assert [info async for info in matching(storage, "f/train-*-of-8")] == []
    assert storage.operations == [("list", "f/train-")]
