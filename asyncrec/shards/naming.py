"""The names of a data set's objects, and which names are data at all.

A data set is a folder and a name: ``s3://crawl/2026/pages`` is ``pages`` in ``s3://crawl/2026``. There stand

    pages-00000-of-00008.tfrecord             a fixed shard (TensorFlow's own pattern)
    pages-<writer>-000000.tfrecord            a rolling shard: the writer that made it, and its number there
    _index/<shard>.index                      where each record begins
    _keys/<shard>.keys                        which record it is
    _manifest/pages/<writer>-000000.json      one segment of the manifest, written by a commit
    _manifest/pages/<writer>-closed.json      the last: it repeats all that the writer committed
    _replacing/pages/<writer>                 while a writer replaces the data set by rolling shards in a remote store

Names whose first character is ``_`` or ``.`` are not data: the convention of Hadoop, Spark and Ray.
"""

from __future__ import annotations

import re
import secrets
import time

__all__ = [
    "closing_segment_key",
    "fixed_shard_name",
    "index_key",
    "is_data",
    "keys_key",
    "manifest_prefix",
    "new_writer_id",
    "replacing_key",
    "rolling_shard_name",
    "segment_key",
    "validate_writer_id",
]

_WRITER_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.]{0,63}")


def fixed_shard_name(name: str, shard: int, num_shards: int) -> str:
    return f"{name}-{shard:05d}-of-{num_shards:05d}.tfrecord"


def rolling_shard_name(name: str, writer: str, sequence: int) -> str:
    return f"{name}-{writer}-{sequence:06d}.tfrecord"


def index_key(shard: str) -> str:
    return f"_index/{shard}.index"


def keys_key(shard: str) -> str:
    return f"_keys/{shard}.keys"


def manifest_prefix(name: str) -> str:
    return f"_manifest/{name}/"


def segment_key(name: str, writer: str, sequence: int) -> str:
    return f"{manifest_prefix(name)}{writer}-{sequence:06d}.json"


def closing_segment_key(name: str, writer: str) -> str:
    return f"{manifest_prefix(name)}{writer}-closed.json"


def replacing_key(name: str, writer: str) -> str:
    return f"_replacing/{name}/{writer}"


def is_data(key: str) -> bool:
    """Whether a key may be a shard: no part of it begins with ``_`` or ``.``."""
    return not any(part.startswith(("_", ".")) for part in key.split("/"))


def new_writer_id() -> str:
    """14 hexadecimal digits: the second it began, so that names sort by time, and 24 random bits.

    Two writers that begin in the same second and draw the same bits still cannot overwrite each other: every object is
    created exclusively.
    """
    return f"{int(time.time()):08x}{secrets.token_hex(3)}"


def validate_writer_id(writer: str) -> str:
    """The id itself, or a ValueError: it becomes part of names, so it has no ``-``, no ``/`` and no space."""
    if not _WRITER_ID.fullmatch(writer):
        raise ValueError(
            f"writer_id {writer!r} becomes part of file names: 1 to 64 letters, digits, '_' or '.', "
            "beginning with a letter or digit"
        )
    return writer
