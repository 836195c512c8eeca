"""Configurations of the actors that take turns: fixed sets and processes that remove shards."""

from __future__ import annotations

from collections.abc import Iterator

from ..judge import exclude
from ..states import Configuration
from ..store import Put
from ..writer import CLOSE, commit, take
from .words import (
    committed,
    is_fixed,
    merges,
    removes,
    told,
    writes,
)


def turns() -> Iterator[Configuration]:
    old, both = committed("O", "o", closed=True), committed("O", "a", "b", closed=True)
    yield Configuration(
        "replace",
        "one that replaces, alone, with two late answers",
        (removes("R", "replace"),),
        late=2,
        late_kinds=(Put,),
        store=committed("O", "o", sidecars=True, closed=True),
        told=told("o"),
        also=exclude(("o", "r")),
    )
    yield Configuration(
        "fixed-appending",
        "a fixed set and one that appends, which open at once",
        (is_fixed("F"), writes("W", take("w"), commit(), CLOSE, minds_turns=True, goes_on=False)),
        late=1,
        also=exclude(("f", "w")),
    )
    yield Configuration(
        "two-fixed",
        "two fixed sets, each may end the other",
        (is_fixed("F"), is_fixed("G")),
        late=1,
        also=exclude(("f", "g")),
    )
    yield Configuration(
        "two-fixed-checkpoint",
        "two fixed sets, a checkpoint that deletes turns",
        (is_fixed("F"), is_fixed("G"), merges("M")),
        late=1,
        late_for=("F", "G"),
        late_kinds=(Put,),
        also=exclude(("f", "g")),
    )
    yield Configuration(
        "two-replace",
        "two that replace, one that appends",
        (removes("R", "replace"), removes("S", "replace"), writes("W", take("w"), commit())),
        late=1,
        late_for=("R", "S"),
        late_kinds=(Put,),
        store=old,
        told=told("o"),
        also=exclude(("r", "s"), ("o", "r"), ("o", "s")),
    )
    yield Configuration(
        "compact-forget-writer",
        "compact beside forget beside a writer",
        (removes("C", "compact"), removes("D", "forget"), writes("W", take("w"), commit())),
        late=1,
        late_for=("C", "D"),
        late_kinds=(Put,),
        store=both,
        told=told("a", "b"),
    )
    yield Configuration(
        "compact-forget-checkpoint",
        "compact beside forget, a checkpoint that deletes turns and ends",
        (removes("C", "compact"), removes("D", "forget"), merges("M")),
        late=1,
        late_for=("C", "D"),
        late_kinds=(Put,),
        store=both,
        told=told("a", "b"),
    )
    yield Configuration(
        "old-turn",
        "compact and forget, which both have looked, and a checkpoint that deletes the turn of the first",
        (removes("C", "compact", may_end=False), removes("D", "forget", may_end=False), merges("M")),
        store=both,
        told=told("a", "b"),
    )
    yield Configuration(
        "retried-turn",
        "two that rewrite a shard each, and take another turn if theirs is taken, beside one that forgets in the first",
        (removes("C", "first", "again"), removes("D", "forget"), removes("E", "last", "again")),
        store=both,
        told=told("a", "b"),
    )
    yield Configuration(
        "forget-by-name",
        "one that forgets by naming the record, beside a compaction and a checkpoint",
        (removes("C", "compact"), removes("D", "mark"), merges("M")),
        store=both,
        told=told("a", "b"),
    )
