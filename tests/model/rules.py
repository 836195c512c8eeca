"""The rules of the protocol that are in force. Actors ask with ``on(RULE)``; `without` disables rules."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Final, NamedTuple

_out: set[str] = set()
_caches: list[Callable[[], None]] = []


def on(rule: str) -> bool:
    """Return whether the rule is in force."""
    assert rule in RULES, rule
    return rule not in _out


def depends_on_rules(clear: Callable[[], None]) -> None:
    """Register a cache to be cleared whenever the rules change."""
    _caches.append(clear)


@contextmanager
def without(rules: Iterable[str]) -> Iterator[None]:
    """Disable these rules within the context."""
    unknown = set(rules) - RULES.keys()
    if unknown:
        raise ValueError(f"not rules of the model: {', '.join(sorted(unknown))}; --rules lists them")
    _out.update(rules)
    for clear in _caches:
        clear()
    try:
        yield
    finally:
        _out.clear()
        for clear in _caches:
            clear()


class Rule(NamedTuple):
    """The text of a rule, and the name of a configuration that breaks without it."""

    says: str
    shown_by: str


RULES: Final[dict[str, Rule]] = {
    # entries
    "same-bytes": Rule(
        "a request without an answer is sent again with the same bytes, before anything else is tried",
        "late-entries",
    ),
    "ended-by-look": Rule(
        "a writer whose number is taken looks at the whole log before it believes that its entry is not in",
        "writer-ender",
    ),
    "look-after-begin": Rule("a writer looks at its log after it has won number 0", "log-used-twice"),
    "end-stays": Rule("the end of a log is never deleted", "old-look"),
    "numbered-repeats": Rule(
        "a commit that an end repeats has its number; what a checkpoint covers of it is skipped", "repeats"
    ),
    "list-has-token": Rule("a list of its own has its maker's token in its name", "long-lists"),
    "list-before-entry": Rule("a list of its own is there before the entry that names it", "long-lists"),
    "list-stays-with-end": Rule("the list that an end names stays as long as the end", "long-lists"),
    # ending another writer's log
    "adopt-in-end": Rule(
        "what a dead log had flushed is committed in the end itself, not in a log of the adopter's own", "two-adopters"
    ),
    "look-after-end": Rule("an end for another counts only if a look afterwards shows nothing above it", "old-look"),
    "token-per-attempt": Rule("each attempt has a token of its own, and so have its shards", "second-attempt"),
    "read-end-before-delete": Rule("a writer that was ended deletes no shard that the end names", "sidecars"),
    "unsettled-deletes-nothing": Rule(
        "what an unanswered request names is not deleted by its sender", "two-late-answers"
    ),
    "sidecar-first": Rule("a sidecar is published before its shard", "sidecars"),
    # flush entries
    "fence": Rule("a process that ends a log first wins its next flush number", "writer-ender"),
    "look-behind-fence": Rule("what is adopted is looked up after the fence was won", "torn-ender"),
    "fence-stays": Rule("the fence of a log that was ended by another is never deleted", "writer-ender"),
    "fenced-writer-ends": Rule("a writer that meets a fence ends its log by itself, if no end is there", "fenced"),
    "opened-shards": Rule(
        "a commit says which open shards still live in flush entries, and from which number on", "late-duplicate"
    ),
    "replaced-flush": Rule("a flush entry that repeats others says from which number on", "repeated-flushes"),
    # checkpoints and looks
    "whole-look": Rule(
        "a look in whose logs a number is missing, or an end has something above it, is made again", "torn-log"
    ),
    "unknown-removal": Rule(
        "a look that shows the removal of a shard that it does not know is made again", "torn-checkpoint"
    ),
    "grace": Rule(
        "covered entries are deleted only when no reader can still be reading an older list", "list-then-get"
    ),
    "checkpoints-stay": Rule(
        "if a pointer is there, a checkpoint's small object stays, and only its columns are deleted", "pointer"
    ),
    "pointer-behind-checkpoint": Rule("the pointer is written after the checkpoint that it names", "pointer"),
    "walk-from-pointer": Rule("a reader that cannot list goes on from the pointer, number by number", "pointer"),
    "forgotten-in-checkpoint": Rule(
        "a checkpoint carries the records that were forgotten in its shards", "forget-by-name"
    ),
    "compaction-forgets": Rule("whatever rewrites a shard leaves out what was forgotten in it", "forget-by-name"),
    # turns
    "settle-turn": Rule("no process takes turn n+1 before the log of turn n has ended", "two-replace"),
    "look-after-turn": Rule(
        "a turn counts only if a look afterwards shows no later one, nor a checkpoint that has it", "old-turn"
    ),
    "look-for-others-after-turn": Rule(
        "a fixed set looks for other data and open logs after it took its turn", "fixed-appending"
    ),
    "begin-then-look": Rule("a writer that minds turns looks at them after its begin, not before", "fixed-appending"),
    "removed-still-there": Rule(
        "a rewriter whose turn was won by another takes a later one only if all that it removes is still there",
        "retried-turn",
    ),
    "remove-behind-end": Rule("what is replaced is deleted only when the end is known to be there", "replace"),
    "origins": Rule("a rewritten shard says where each record was first committed", "follower-compaction"),
    # sources and ids
    "source-turn": Rule("who continues a source wins its next turn, and reads the position behind that", "source"),
    "end-the-owner": Rule("the log of a source's last owner has ended, or released it, before the next turn", "source"),
    "release-names-turn": Rule("a release says which turn of the source it gives back", "release"),
    "position-of-kept": Rule("an entry states a position only for records that it, or a flush entry, keeps", "release"),
    "last-run-ended": Rule("the next run of an id begins when the last one has ended", "chosen-id"),
    # a local folder
    "sync-content": Rule("the content of a file is synced before its name is linked", "folder"),
    "sync-entries": Rule("the folder of an entry is synced before anything is acknowledged", "folder"),
    "sync-shards-first": Rule("the folder of a shard is synced before the entry that names it is linked", "folder"),
    "sync-before-delete": Rule(
        "the folder of a checkpoint is synced before any process deletes what it covers", "folder-checkpoints"
    ),
    "sync-before-end": Rule(
        "a process that ends a log syncs the folder of its entries before it links the next one", "folder-ender"
    ),
    "sync-what-is-adopted": Rule(
        "the folder of a shard that is adopted as it is is synced before the end that names it", "folder-ender"
    ),
    "follower-syncs": Rule("a follower syncs the folder before it notes how far it has read", "folder-follower"),
    # old lists
    "wait-out-old-lists": Rule(
        "where a list may be old, a look that decides waits until it cannot be", "old-lists-ender"
    ),
}
