"""Configurations of one writer and processes that end its log: late responses, fences, sidecars, long lists."""

from __future__ import annotations

from collections.abc import Iterator

from ..states import Configuration
from ..writer import CLOSE, commit, flush, take
from .words import (
    ends,
    merges,
    writes,
)


def writers_and_enders() -> Iterator[Configuration]:
    yield Configuration(
        "writer-ender",
        "a writer flushes, commits and closes; one ends it at any moment; a late answer",
        (writes("W", flush("a"), flush("b"), commit(), flush("c", 1), CLOSE), ends("A", "W")),
        late=1,
    )
    yield Configuration(
        "two-late-answers",
        "the same, shorter, with two late answers",
        (writes("W", flush("a"), take("b"), commit(), CLOSE), ends("A", "W")),
        late=2,
    )
    yield Configuration(
        "two-adopters",
        "two adopters of one writer, and a late answer of any of the three",
        (writes("W", flush("a"), flush("b")), ends("A", "W"), ends("B", "W")),
        late=1,
        twins=("A", "B"),
    )
    yield Configuration(
        "fenced",
        "a writer meets a fence whose maker has died",
        (writes("W", flush("a"), take("b"), flush("c"), flush("d"), commit()), ends("A", "W")),
        late=1,
        late_for=("W",),
    )
    yield Configuration(
        "waits-behind-a-fence",
        "a writer that two end meets a fence, waits for the end, and writes what is left in a new log",
        (writes("W", flush("a"), flush("b"), take("c"), commit(), waits=True), ends("A", "W"), ends("B", "W")),
        late=1,
        twins=("A", "B"),
    )
    yield Configuration(
        "repeated-flushes",
        "a writer repeats its flush entries; a duplicate comes late; one ends it",
        (writes("W", flush("a"), flush("b", 1), flush("c", repeat=True), commit(1), flush("d")), ends("A", "W")),
        late=1,
    )
    yield Configuration(
        "sidecars",
        "an adopter that takes published shards and their sidecars; the writer is told",
        (writes("W", flush("a"), take("b"), commit(), CLOSE, sidecars=True), ends("A", "W", "published sidecars")),
        late=1,
    )
    yield Configuration(
        "second-attempt",
        "an adopter that loses, and tries again, with late deletions",
        (writes("W", flush("a"), flush("b"), take("c", 1), commit(1)), ends("A", "W", attempts=2)),
        late=1,
        late_for=("A",),
    )
    yield Configuration(
        "torn-ender",
        "an adopter whose lists are torn",
        (
            writes("W", flush("a"), flush("b"), commit(), flush("c", 1), flush("d", 1), commit(1)),
            ends("A", "W", "torn"),
        ),
    )
    yield Configuration(
        "long-lists",
        "long lists: a writer, two that end it, a checkpoint",
        (writes("W", flush("a"), commit(), long=True), ends("A", "W", "long published"), merges("M")),
        late=1,
    )
