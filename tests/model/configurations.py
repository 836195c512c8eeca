"""Who meets whom: small casts, each explored whole. W writes, A and B end, M and N merge, C compacts, D forgets, R and S
replace, F and G are fixed, V reads, f follows, P and Q continue a source."""

from __future__ import annotations

from collections.abc import Iterator

from . import folder
from .casts import (
    chooses,
    committed,
    consumes,
    ends,
    follows,
    grace,
    is_fixed,
    lock,
    merges,
    reads,
    reads_by_pointer,
    removes,
    told,
    writes,
)
from .engine import Actor, Configuration
from .judge import exclude, positions_without_gaps
from .objects import Content, Data, Name, Pointer
from .store import Put, after_a_power_cut
from .look import look_at
from .writer import CLOSE, Writing, commit, flush, take, writing


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
        (writes("W", flush("a"), flush("b"), commit(), flush("c", 1), flush("d", 1), commit(1)), ends("A", "W", "torn")),
    )
    yield Configuration(
        "long-lists",
        "long lists: a writer, two that end it, a checkpoint",
        (writes("W", flush("a"), commit(), long=True), ends("A", "W", "long published"), merges("M")),
        late=1,
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
        (writes("W", take("a"), commit(), take("b", 1), commit(1)), ends("A", "W"), ends("B", "W", "leaves"), merges("M")),
        late=1,
        late_for=("W",),
        late_kinds=(Put,),
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
        (writes("W", flush("a"), commit()), removes("C", "compact", may_end=False), merges("M"), ends("A", "W", "leaves")),
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
            Actor("X", writes("W").function, (Writing("W", (take("x", 5), commit(5)), token="u"), False)),
            merges("M"),
        ),
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
        "forget-by-name",
        "one that forgets by naming the record, beside a compaction and a checkpoint",
        (removes("C", "compact"), removes("D", "mark"), merges("M")),
        store=both,
        told=told("a", "b"),
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
        "list-then-get",
        "a reader between list and get, one that ends by an old look, deletions",
        (
            Actor("W", writing, (Writing("W", (take("c", 2), commit(2), take("e", 3), commit(3)), number=3, goes_on=False),)),
            reads("V"),
            merges("M"),
            ends("A", "W", "leaves"),
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
        late=1,
        late_for=("W",),
        late_kinds=(Put,),
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
        "one that releases a source, and takes it again, beside one that takes it between",
        (consumes("P", (1, True), (3, False)), consumes("Q", (2, True)), consumes("R", (4, False))),
        also=positions_without_gaps,
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


def folders() -> Iterator[Configuration]:
    """What a power cut leaves is judged in every state, and in one configuration it is a step."""
    yield Configuration(
        "folder",
        "a folder: a writer that commits and closes",
        (Actor("W", folder.writer, ("W", "a", "b")),),
        after=after_a_power_cut,
    )
    yield Configuration(
        "folder-ender",
        "a folder: a writer that was killed, and one that takes its shards as they are",
        (Actor("W", folder.writer, ("W", "a", "b")), Actor("A", folder.ender, ("A", "W"))),
        allowed=lock,
        after=after_a_power_cut,
    )
    yield Configuration(
        "folder-checkpoints",
        "a folder: two that make checkpoints beside a writer",
        (Actor("W", folder.writer, ("W", "a", "b")), Actor("M", folder.maker), Actor("N", folder.maker)),
        after=after_a_power_cut,
    )
    yield Configuration(
        "folder-remover",
        "a folder: one that replaces, beside a checkpoint",
        (Actor("R", folder.remover, ("R",)), Actor("M", folder.maker)),
        store=committed("O", "o", closed=True),
        told=told("o"),
        also=exclude(("o", "r")),
        after=after_a_power_cut,
    )
    yield Configuration(
        "folder-follower",
        "a folder: a follower, a power cut, and one that ends what was written before",
        (
            Actor("W", folder.writer, ("W", "a", "b")),
            Actor("power", folder.power),
            Actor("A", folder.ender, ("A", "W")),
            follows("f", 2, in_folder=True),
        ),
        allowed=lock,
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


def configurations() -> tuple[Configuration, ...]:
    groups = (writers_and_enders, checkpoints, turns, torn_lists, followers_and_sources, folders, old_lists, larger_casts)
    return tuple(each for group in groups for each in group())
