"""Configurations with torn listings, with outdated listings, and with a reader that cannot list."""

from __future__ import annotations

from collections.abc import Iterator

from ..judge import exclude
from ..look import look_at
from ..objects import Content, Data, Name, Pointer
from ..states import Actor, Configuration
from ..store import Put
from ..writer import Writing, commit, flush, take, writing
from .words import (
    committed,
    ends,
    grace,
    is_fixed,
    merges,
    reads,
    reads_by_pointer,
    removes,
    told,
    writes,
)


def torn_lists() -> Iterator[Configuration]:
    old, told_a = committed("O", "a", closed=True), told("a")
    yield Configuration(
        "torn-reader",
        "two compactions one after the other, a reader whose list is torn",
        (removes("A", "first", may_end=False), removes("Z", "first", may_end=False), reads("V", "name")),
        store=old,
        told=told_a,
    )
    yield Configuration(
        "torn-checkpoint",
        "two compactions one after the other, a checkpoint whose list is torn",
        (removes("A", "first", may_end=False), removes("Z", "compact", may_end=False), merges("M", "name")),
        store=old,
        told=told_a,
    )
    yield Configuration(
        "torn-removers",
        "compact beside forget, whose lists are torn",
        (removes("A", "compact", "torn"), removes("Z", "forget", "torn")),
        store=committed("O", "a", "b", closed=True),
        told=told("a", "b"),
    )
    yield Configuration(
        "torn-replacers",
        "two that replace, whose lists are torn, and one that appends",
        (removes("A", "replace", "torn"), removes("Z", "replace", "torn"), writes("W", take("w"), commit())),
        store=committed("O", "o", closed=True),
        told=told("o"),
        also=exclude(("a", "z"), ("o", "a"), ("o", "z")),
    )
    yield Configuration(
        "torn-behind-writer",
        "a writer whose name sorts first, one that compacts behind it, a torn checkpoint",
        (writes("B", take("b"), commit()), removes("Z", "compact", may_end=False), merges("M", "name")),
        store=old,
        told=told_a,
    )
    yield Configuration(
        "torn-log",
        "a list torn within one log: a checkpoint and a reader beside three commits",
        (
            writes("W", take("a"), commit(), take("b", 1), commit(1), take("c", 2), commit(2)),
            merges("M", "number"),
            reads("V", "number"),
        ),
    )
    yield Configuration(
        "reader",
        "a reader, step by step, beside a writer, a checkpoint and its deletions",
        (writes("W", flush("a"), commit(), take("b", 1), commit(1)), reads("V"), merges("M")),
        allowed=grace,
    )
    yield Configuration(
        "reader-long-lists",
        "a reader, step by step, beside a writer with long lists, a checkpoint and its deletions",
        (writes("W", take("a"), commit(), take("b", 1), commit(1), long=True), reads("V"), merges("M")),
        allowed=grace,
    )
    yield Configuration(
        "list-then-get",
        "a reader between list and get, one that ends by an old look, deletions",
        (
            Actor(
                "W",
                writing,
                (Writing("W", (take("c", 2), commit(2), take("e", 3), commit(3)), number=3, goes_on=False),),
            ),
            reads("V"),
            merges("M"),
            ends("A", "W", "leaves unflushed"),
        ),
        store=committed("W", "a", "b"),
        told=told("a", "b"),
        allowed=grace,
    )
    yield Configuration(
        "pointer",
        "a reader that cannot list, beside two that make checkpoints",
        (merges("M", pointer=True), merges("N", pointer=True), reads_by_pointer("V")),
        late=1,
        late_kinds=(Put,),
        store=(*committed("O", "a", closed=True), *_first_checkpoint("a")),
        told=told_a,
        twins=("M", "N"),
    )


def _first_checkpoint(*records: str) -> tuple[tuple[Name, Content], ...]:
    columns = Name("columns", number=1, token="O")
    checkpoint = look_at(dict(committed("O", *records, closed=True))).make_checkpoint()._replace(columns=columns)
    return (
        (Name("checkpoint", number=1), checkpoint),
        (columns, Data(())),
        (Name("latest"), Pointer(1)),
    )


def old_lists() -> Iterator[Configuration]:
    yield Configuration(
        "old-lists-ender",
        "lists that may be old by one change: a writer and one that ends it",
        (writes("W", flush("a"), take("b"), commit(), flush("c", 1), commit(1)), ends("A", "W")),
        old_lists=True,
    )
    yield Configuration(
        "old-lists-fixed",
        "lists that may be old by one change: two fixed sets",
        (is_fixed("F"), is_fixed("G")),
        old_lists=True,
        also=exclude(("f", "g")),
    )
    yield Configuration(
        "old-lists-checkpoint",
        "lists that may be old: one that ends, a checkpoint, its deletions",
        (writes("W", take("a"), commit(), take("b", 1), commit(1)), ends("A", "W"), merges("M")),
        old_lists=True,
    )
