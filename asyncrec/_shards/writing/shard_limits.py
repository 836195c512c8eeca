"""Check a sharded writer's options: its path, shard limits, time intervals, and options with a fixed set of values."""

from __future__ import annotations

import re

from asyncrec._records.writing.object_limits import MAX_SHARD_BYTES, ObjectLimits
from asyncrec._shards.journal.header import MOST_SHARDS
from asyncrec.errors import ArgumentValueError

# Matches the name of a file of records. The first group is the name of the data set.
_SHARD = re.compile(r"([^_.].*?)(?:-\d{5,6}(?:-of-\d{5,6})?)?\.tfrecords?(?:\.gz)?")


def check_is_no_file(path: str) -> None:
    """Raise an error if the path names a shard or a single file rather than a data set."""
    name = path.replace("\\", "/").rpartition("/")[2]
    if match := _SHARD.fullmatch(name):
        raise ArgumentValueError(
            f"{path}: this is the name of a file, but the name of a data set has no suffix and no shard numbers; "
            f"write to {path[: len(path) - len(name)]}{match[1]}, or use open_writer to write a single file"
        )


def limits_of(
    num_shards: int | None, max_bytes: int | None, max_records: int | None, max_seconds: float | None, open_shards: int
) -> ObjectLimits:
    given = {"max_shard_bytes": max_bytes, "max_shard_records": max_records, "max_shard_seconds": max_seconds}
    for option, value in {**given, "num_shards": num_shards, "open_shards": open_shards}.items():
        if value is not None and value <= 0:
            raise ArgumentValueError(f"{option}={value}: must be greater than 0")
    if num_shards is not None and num_shards > MOST_SHARDS:
        raise ArgumentValueError(f"num_shards={num_shards:,}: must be at most {MOST_SHARDS:,}")
    if num_shards is None:
        if max_bytes is None and max_records is None:
            max_bytes = MAX_SHARD_BYTES
        return ObjectLimits(bytes=max_bytes, records=max_records, seconds=max_seconds)
    rolling = [option for option, value in given.items() if value is not None]
    if rolling or open_shards != 1:
        named = ", ".join(rolling or ["open_shards"])
        raise ArgumentValueError(
            f"num_shards={num_shards} cannot be combined with {named}, which is for rolling shards; pass one or the "
            "other"
        )
    return ObjectLimits()


def one_of(option: str, value: str, allowed: tuple[str, ...]) -> None:
    if value not in allowed:
        raise ArgumentValueError(f"{option} must be one of {', '.join(map(repr, allowed))}, not {value!r}")


# Flushing takes about 0.8 ms of CPU time for each open shard, or 1.5 % of one core for 16 shards
# (docs/how-to/continue-a-crawl.md).
_FLUSH_SECONDS = 1.0
# At this interval, one writer's requests cost $0.43 a month on S3 in us-east-1.
_STORE_FLUSH_SECONDS = 30.0
# The default and the minimum of ``dead_after``, in seconds. The default gives a store time to recover. The minimum is
# the smallest difference that times in whole seconds can show.
_DEAD_AFTER, _LEAST_DEAD_AFTER = 120.0, 2.0


def seconds_to_flush(given: float | str | None, *, on_disk: bool) -> float | None:
    """Return the age in seconds at which records are flushed, or `None` if they are flushed only on request.

    ``given`` is the option as passed by the caller; if it is ``"default"``, the age depends on ``on_disk``.
    """
    if isinstance(given, str):
        return _FLUSH_SECONDS if on_disk else _STORE_FLUSH_SECONDS
    return given


def silence_of_dead(flush_seconds: float | None, dead_after: float | None) -> float:
    """Return how many seconds a writer that flushes to its store must be silent before it may be considered dead.

    If the writer does not flush to its store, return 0.

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
            "because stores report times in whole seconds"
        )
    return dead_after
