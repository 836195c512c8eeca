"""Configurations that make checkpoints and delete the objects that these cover."""

from __future__ import annotations

from collections.abc import Iterator

from ..states import Actor, Configuration
from ..store import Put
from ..writer import CLOSE, Writing, commit, flush, take, writer
from .words import (
    ends,
    merges,
    removes,
    writes,
)


def checkpoints() -> Iterator[Configuration]:
    yield Configuration(
        "two-shards",
        "two open shards, one of them committed; an adopter; a checkpoint",
        (writes("W", flush("a"), flush("b", 1), commit(), flush("c", 1)), ends("A", "W"), merges("M")),
    )
    yield Configuration(
        "late-entries",
        "a checkpoint beside a writer and one that ends it, with late entries",
        (writes("W", take("a"), commit(), take("b", 1), commit(1), take("c", 2), CLOSE), ends("A", "W"), merges("M")),
        late=1,
        late_for=("W", "A"),
    )
    yield Configuration(
        "old-look",
        "one that ends by an old look, while commits are merged and deleted",
        (
            writes("W", flush("a"), commit(), flush("b", 1), commit(1), take("c", 2), commit(2)),
            ends("A", "W"),
            merges("M"),
        ),
    )
    yield Configuration(
        "lost-answer",
        "two that end, a checkpoint after the end, a writer with a lost answer",
        (
            writes("W", take("a"), commit(), take("b", 1), commit(1)),
            ends("A", "W", "leaves unflushed"),
            ends("B", "W", "leaves unflushed"),
            merges("M"),
        ),
        late=1,
        late_for=("W",),
        late_kinds=(Put,),
        twins=("A", "B"),
    )
    yield Configuration(
        "two-checkpoints",
        "checkpoints made and deleted twice, at once, beside a writer",
        (writes("W", take("a"), commit(), take("b", 1), commit(1)), merges("M"), merges("N")),
        late=1,
        twins=("M", "N"),
    )
    yield Configuration(
        "late-duplicate",
        "a flush entry whose duplicate comes late, a compaction, a checkpoint, an adopter",
        (
            writes("W", flush("a"), commit()),
            removes("C", "compact", may_end=False),
            merges("M"),
            ends("A", "W", "leaves"),
        ),
        late=1,
        late_for=("W",),
        late_kinds=(Put,),
    )
    yield Configuration(
        "repeats",
        "an end that repeats, beside a compaction and a checkpoint",
        (writes("W", take("a"), commit(), CLOSE), removes("C", "compact", may_end=False), merges("M")),
    )
    yield Configuration(
        "log-used-twice",
        "one id used twice, a checkpoint between",
        (
            writes("W", take("a"), commit(), CLOSE),
            Actor("X", writer, (Writing("W", (take("x", 5), commit(5)), token="u"),)),
            merges("M"),
        ),
    )
