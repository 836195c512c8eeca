"""Configurations with more actors, and with two actors of each kind that read torn listings."""

from __future__ import annotations

from collections.abc import Iterator

from ..states import Configuration
from ..writer import commit, flush, take
from .words import (
    committed,
    ends,
    merges,
    removes,
    told,
    writes,
)


def larger_casts() -> Iterator[Configuration]:
    yield Configuration(
        "two-enders-checkpoint",
        "a writer, two that end it, a checkpoint",
        (writes("W", flush("a"), take("b"), commit(), flush("c", 1)), ends("A", "W"), ends("B", "W"), merges("M")),
        twins=("A", "B"),
    )
    yield Configuration(
        "ender-compaction-checkpoint",
        "a writer, one that ends it, a compaction, a checkpoint",
        (writes("W", flush("a"), commit(), flush("b", 1)), ends("A", "W"), removes("C", "compact"), merges("M")),
    )
    yield Configuration(
        "torn-removers-checkpoint",
        "compact beside forget, whose lists are torn, and a checkpoint that deletes turns",
        (removes("A", "compact", "torn"), removes("Z", "forget", "torn"), merges("M")),
        store=committed("O", "a", "b", closed=True),
        told=told("a", "b"),
    )
    yield Configuration(
        "torn-enders",
        "a writer, and two that end it, whose lists are torn",
        (
            writes("W", flush("a"), flush("b"), commit()),
            ends("A", "W", "torn"),
            ends("B", "W", "torn"),
        ),
        twins=("A", "B"),
    )
    yield Configuration(
        "torn-ender-checkpoint",
        "a writer, one that ends it, whose lists are torn, and a checkpoint",
        (writes("W", flush("a"), commit(), flush("b", 1), commit(1)), ends("A", "W", "torn"), merges("M")),
    )
