"""Checks of a sharded writer's options alone: its path, the limits of its shards, and options with fixed values."""

from __future__ import annotations

import re

from asyncrec._records.writing.object_limits import MAX_SHARD_BYTES, ObjectLimits
from asyncrec._shards.journal.header import MOST_SHARDS
from asyncrec.errors import ArgumentValueError

# The name of a file of records, which begins with the data set's name.
_SHARD = re.compile(r"([^_.].*?)(?:-\d{5,6}(?:-of-\d{5,6})?)?\.tfrecords?(?:\.gz)?")


def check_is_no_file(path: str) -> None:
    """Refuse the name of a shard, or of a single file, in place of a data set's name."""
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
