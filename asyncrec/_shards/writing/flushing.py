"""The default interval of flushes, and the silence after which a writer may be considered dead."""

from __future__ import annotations

from asyncrec.errors import ArgumentValueError

# Flushing takes some 0.8 ms of processor time for each open shard, so with 16 of them 1.5 % of one core
# (docs/how-to/continue-a-crawl.md).
_FLUSH_SECONDS = 1.0
# The requests cost $0.43 a month on S3 in us-east-1.
_STORE_FLUSH_SECONDS = 30.0
# The time that a store may need to recover, and the least difference between two times in whole seconds.
_DEAD_AFTER, _LEAST_DEAD_AFTER = 120.0, 2.0


def seconds_to_flush(given: float | str | None, *, on_disk: bool) -> float | None:
    """Return the age at which records are flushed, resolving ``"default"``; `None` means that there is no limit."""
    if isinstance(given, str):
        return _FLUSH_SECONDS if on_disk else _STORE_FLUSH_SECONDS
    return given


def silence_of_dead(flush_seconds: float | None, dead_after: float | None) -> float:
    """Return the silence after which a writer that flushes to its store may be considered dead; 0 if it does not flush.

    Raises:
        ArgumentValueError: ``dead_after`` is too short to distinguish a dead writer from one that is about to flush.
    """
    if flush_seconds is None:
        return 0.0
    if dead_after is None:
        return max(_DEAD_AFTER, 4 * flush_seconds)
    if not dead_after >= (least := max(_LEAST_DEAD_AFTER, 2 * flush_seconds)):
        raise ArgumentValueError(
            f"dead_after={dead_after:g}: must be at least {least:g}: twice flush_seconds, and not below 2 seconds, "
            "because stores tell times in whole seconds"
        )
    return dead_after
