"""A state says which version of a shard it stands in: in a shard that was replaced, a position means something else."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any

from asyncrec._sampling.stream_state import ShardVersion
from asyncrec.errors import DatasetError
from asyncrec.storage._base import ObjectInfo


def packed_version(info: ObjectInfo) -> list[Any]:
    """Which version of an object it is, as JSON."""
    return [info.size, info.crc32c, info.etag, info.modified.isoformat()]


def is_version(packed: Sequence[Any], info: ObjectInfo) -> bool:
    """Whether an object is still the one that was packed."""
    return same_version(packed, packed_version(info))


def same_version(then: Sequence[Any], now: Sequence[Any]) -> bool:
    """Whether two packed versions are of the same object.

    A checksum decides where the store keeps one. An etag that changed may be another file's with the same content,
    since a local one holds its inode: a copy that kept its time of modification, to the microsecond, is the same.
    """
    size, crc32c, etag, modified = then
    if size != now[0] or (None not in (crc32c, now[1]) and crc32c != now[1]):
        return False
    if etag == now[2] or (crc32c is not None and crc32c == now[1]):
        return True
    return modified == now[3] and bool(datetime.fromisoformat(now[3]).microsecond)


def check_versions(
    versions: Sequence[ShardVersion], now: Callable[[int], Sequence[Any] | None], path: Callable[[int], str]
) -> None:
    """Refuse versions, as `stream_state.versions_in` gave them, where one is another now, as far as it is known.

    Raises:
        DatasetError: a shard was replaced; it says which.
    """
    for shard, *version in versions:
        found = now(shard)
        if found is not None and not same_version(version, found):
            raise DatasetError(
                f"{path(shard)}: it was replaced since the state was taken: it has {found[0]:,} bytes, etag "
                f"{found[2]}, and had {version[0]:,}, etag {version[2]}. A position in it means something "
                "else now: bring the old one back, or begin anew without the state"
            )
