"""Which rules of the protocol are in force. An actor asks ``on(RULE)``; `without` takes rules out."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Final, NamedTuple

_out: set[str] = set()
_caches: list[Callable[[], None]] = []


def on(rule: str) -> bool:
    """Whether the rule is in force."""
    assert rule in RULES, rule
    return rule not in _out


def depends_on_rules(clear: Callable[[], None]) -> None:
    """Have a cache cleared whenever the rules change."""
    _caches.append(clear)


@contextmanager
def without(rules: Iterable[str]) -> Iterator[None]:
    """Within it these rules are not in force."""
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
    """What the rule says, and a part of the title of a configuration that breaks without it, if one does."""

    says: str
    shown_by: str


RULES: Final[dict[str, Rule]] = {
    # entries
    "same-bytes": Rule(
        "a request without an answer is sent again with the same bytes, before anything else is tried",
        "two that end",
    ),
    "ended-by-look": Rule(
        "a writer whose number is taken looks at the whole log before it believes that its entry is not in",
        "writer flushes, commits",
    ),
    "look-after-begin": Rule("a writer looks at its log after it has won number 0", "one id used twice"),
    "highest-end": Rule("an end counts only as the highest number of its log", "between list and get"),
    "end-stays": Rule("the end of a log is never deleted", "two that end"),
    "numbered-repeats": Rule(
        "a commit that an end repeats has its number; what a checkpoint covers of it is skipped", "an end that repeats"
    ),
    "list-has-token": Rule("a list of its own has its maker's token in its name", "long lists"),
    "list-before-entry": Rule("a list of its own is there before the entry that names it", "long lists"),
    "list-stays-with-end": Rule("the list that an end names stays as long as the end", "long lists"),
    # ending another's log
    "adopt-in-end": Rule(
        "what a dead log had flushed is committed in the end itself, not in a log of the adopter's own", "two adopters"
    ),
    "look-after-end": Rule("an end for another counts only if a look afterwards shows nothing above it", "by an old look"),
    "token-per-attempt": Rule("each attempt has a token of its own, and so have its shards", "tries again"),
    "read-end-before-delete": Rule("a writer that was ended deletes no shard that the end names", "takes published"),
    "unsettled-deletes-nothing": Rule("what an unanswered request names is not deleted by its sender", "two late answers"),
    "sidecar-first": Rule("a sidecar is published before its shard", "takes published"),
    # flush entries
    "fence": Rule("whoever ends a log first wins its next flush number, too", "writer flushes, commits"),
    "look-behind-fence": Rule("what is adopted is looked up after the fence was won", "writer flushes, commits"),
    "fence-stays": Rule("the fence of a log that was ended by another is never deleted", "writer flushes, commits"),
    "fenced-writer-ends": Rule("a writer that meets a fence ends its log by itself, if no end is there", "meets a fence"),
    "opened-shards": Rule(
        "a commit says which open shards still live in flush entries, and from which number on", "duplicate comes late"
    ),
    "replaced-flush": Rule("a flush entry that repeats others says from which number on", "repeats its flush entries"),
    # checkpoints and looks
    "whole-look": Rule("a look in whose logs a number is missing is made again", "torn within"),
    "unknown-removal": Rule("a look that shows the removal of a shard that it does not know is made again", "list is torn"),
    "grace": Rule("covered entries are deleted only when no reader can still be reading an older list", "between list and get"),
    "checkpoints-stay": Rule(
        "if a pointer is there, a checkpoint's small object stays, and only its columns are deleted", "cannot list"
    ),
    "pointer-behind-checkpoint": Rule("the pointer is written after the checkpoint that it names", "cannot list"),
    "walk-from-pointer": Rule("a reader that cannot list goes on from the pointer, number by number", "cannot list"),
    "forgotten-in-checkpoint": Rule("a checkpoint carries the records that were forgotten in its shards", "forgets by naming"),
    "compaction-forgets": Rule("whatever rewrites a shard leaves out what was forgotten in it", "forgets by naming"),
    # turns
    "settle-turn": Rule("no process takes turn n+1 before the log of turn n has ended", "two that replace"),
    "look-after-turn": Rule("a turn counts only if a look afterwards shows no later one, nor a checkpoint that has it", "deletes turns"),
    "look-for-others-after-turn": Rule("a fixed set looks for other data and open logs after it took its turn", "open at once"),
    "begin-then-look": Rule("a writer that minds turns looks at them after its begin, not before", "open at once"),
    "remove-behind-end": Rule("what is replaced is deleted only when the end is known to be there", "alone"),
    "origins": Rule("a rewritten shard says where each record was first committed", "follower"),
    # sources and ids
    "source-turn": Rule("who continues a source wins its next turn, and reads the position behind that", "continue one source"),
    "end-the-owner": Rule("the log of a source's last owner has ended, or released it, before the next turn", "continue one source"),
    "release-names-turn": Rule("a release says which turn of the source it gives back", "releases a source"),
    "position-of-kept": Rule("an entry states a position only for records that it, or a flush entry, keeps", "releases a source"),
    "last-run-ended": Rule("the next run of an id begins when the last one has ended", "an id that a person chose"),
    # old lists
    "wait-out-old-lists": Rule("where a list may be old, a look that decides waits until it cannot be", "lists that may be old"),
}
