"""A state says which version of a shard it stands in: in a shard that was replaced, a position means something else."""

from __future__ import annotations

from typing import Any

from asyncrec.storage._base import ObjectInfo

__all__ = ["is_version", "packed_version"]


def packed_version(info: ObjectInfo) -> list[Any]:
    """Which version of an object it is, as JSON."""
    return [info.size, info.crc32c, info.etag, info.modified.isoformat()]


def is_version(packed: list[Any], info: ObjectInfo) -> bool:
    """Whether an object is still the one that was packed.

    A checksum decides where the store keeps one. An etag that changed may be another file's with the same content,
    since a local one holds its inode: a copy that kept its time of modification, to the microsecond, is the same.
    """
    size, crc32c, etag, modified = packed
    if size != info.size or (None not in (crc32c, info.crc32c) and crc32c != info.crc32c):
        return False
    if etag == info.etag or (crc32c is not None and crc32c == info.crc32c):
        return True
    return bool(info.modified.microsecond) and modified == info.modified.isoformat()
