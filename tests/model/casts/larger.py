"""Larger casts: minutes each."""

from __future__ import annotations

from collections.abc import Iterator

from ..states import Configuration
from ..writer import commit, flush, take
from .words import (
    ends,
    merges,
    removes,
    writes,
)


def larger_casts() -> Iterator[Configuration]:
    yield Configuration(
        "two-enders-checkpoint",
        "a writer, two that end it, a checkpoint",
        (writes("W", flush("a"), take("b"), commit(), flush("c", 1)), ends("A", "W"), ends("B", "W"), merges("M")),
        twins=("A", "B"),
        long=True,
    )
    yield Configuration(
        "ender-compaction-checkpoint",
        "a writer, one that ends it, a compaction, a checkpoint",
        (writes("W", flush("a"), commit(), flush("b", 1)), ends("A", "W"), removes("C", "compact"), merges("M")),
        long=True,
    )
