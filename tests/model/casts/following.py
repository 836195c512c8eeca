"""Configurations of followers, sources, and writer ids that a user chooses."""

from __future__ import annotations

from collections.abc import Iterator

from ..judge import positions_without_gaps
from ..states import Configuration
from ..writer import commit, flush, take
from .words import (
    chooses,
    consumes,
    ends,
    follows,
    merges,
    removes,
    writes,
)


def followers_and_sources() -> Iterator[Configuration]:
    yield Configuration(
        "follower",
        "a follower beside a writer, its adopter and a compaction",
        (
            writes("W", flush("a"), commit(), flush("b", 1)),
            ends("A", "W"),
            removes("C", "compact", may_end=False),
            follows("f", 3),
        ),
    )
    yield Configuration(
        "follower-compaction",
        "a follower beside a writer and a compaction",
        (writes("W", take("a"), commit(), take("b", 1), commit(1)), removes("C", "compact"), follows("f", 3)),
    )
    yield Configuration(
        "source",
        "two that continue one source; the first is a zombie",
        (consumes("P", (2, False)), consumes("Q", (2, False))),
        late=1,
        also=positions_without_gaps,
        twins=("P", "Q"),
    )
    yield Configuration(
        "three-consumers",
        "three that continue one source",
        (consumes("P", (1, False)), consumes("Q", (1, False)), consumes("R", (2, False))),
        also=positions_without_gaps,
        twins=("P", "Q"),
    )
    yield Configuration(
        "release",
        "two that release a source, and take it again",
        (consumes("P", (1, True), (2, False)), consumes("Q", (1, True), (2, False))),
        late=1,
        also=positions_without_gaps,
        twins=("P", "Q"),
    )
    yield Configuration(
        "chosen-id",
        "an id that a person chose, used by two at once",
        (chooses("P", "w", 2), chooses("Q", "w", 2)),
        late=1,
        also=positions_without_gaps,
        twins=("P", "Q"),
    )
    yield Configuration(
        "chosen-id-checkpoint",
        "an id that a person chose, used by two at once, and a checkpoint",
        (chooses("P", "w", 1), chooses("Q", "w", 2), merges("M")),
        also=positions_without_gaps,
    )
