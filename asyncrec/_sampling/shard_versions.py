"""Check that shards still have the versions that they had when a state was taken.

If a shard was replaced, a position in it would refer to a different record. A shard that a manifest lists is never
replaced. The records of other shards may change although the names and sizes stay the same, so the entries of these
shards contain the version that was found.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from hashlib import blake2b
from typing import Any

from asyncrec._sampling.state_values import StateValues
from asyncrec._sampling.stream_state import ShardVersion, check_ordered, versions_in
from asyncrec._shards.manifest.segment import ShardEntry
from asyncrec._shards.manifest.shard_list import ShardList
from asyncrec.errors import DatasetError
from asyncrec.storage._base import ObjectInfo


def packed_version(info: ObjectInfo) -> list[Any]:
    """Return the version of an object, as JSON."""
    return [info.size, info.crc32c, info.etag, info.modified.isoformat()]


def is_version(packed: Sequence[Any], info: ObjectInfo) -> bool:
    """Return whether an object still has the packed version."""
    return same_version(packed, packed_version(info))


def same_version(then: Sequence[Any], now: Sequence[Any]) -> bool:
    """Return whether two packed versions describe the same object.

    If both have checksums, only the checksums are compared. A local etag contains the inode, so it also changes if the
    file is replaced with an identical copy. Such a copy counts as the same object if its modification time is the same
    and has a fraction of a second.
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
    """Compare the current versions of shards, if known, with ``versions``, which `stream_state.versions_in` returned.

    Raises:
        DatasetError: a shard was replaced. The message names the shard.
    """
    for shard, *version in versions:
        found = now(shard)
        if found is not None and not same_version(version, found):
            raise DatasetError(
                f"{path(shard)}: the shard was replaced after the state was taken: it now has {found[0]:,} bytes "
                f"(etag {found[2]}), not {version[0]:,} (etag {version[2]}). The position in the state is no longer "
                "valid: restore the old shard, or start again without the state"
            )


_VERSION = "version"


def with_version(entry: ShardEntry, info: ObjectInfo) -> ShardEntry:
    """Return a copy of ``entry``, whose shard no manifest lists, with the version that was found."""
    return replace(entry, extra={**entry.extra, _VERSION: packed_version(info)})


def version_in(entry: ShardEntry) -> list[Any] | None:
    """Return the version that `with_version` added, or `None` for a shard that a manifest lists."""
    return None if entry.committed else entry.extra.get(_VERSION)


class FileVersions:
    """The versions of the shards of a data set without a manifest, as stored in states.

    Args:
        path: returns the path of the shard with a given number, for messages.

    Attributes:
        packed: one ``[shard, *packed_version]`` per shard; empty if a manifest lists the shards.
    """

    def __init__(self, shards: ShardList, path: Callable[[int], str]) -> None:
        self._path = path
        self.packed: list[list[Any]] = []
        if len(shards) and version_in(shards[0]) is not None:
            self.packed = [[number, *(version_in(shard) or ())] for number, shard in enumerate(shards)]

    @property
    def fingerprint(self) -> str:
        """A digest of all versions, for callers that can only compare text; ``""`` if a manifest lists the shards."""
        told = [[size, crc32c, None if crc32c is not None else etag] for _, size, crc32c, etag, _ in self.packed]
        return blake2b(json.dumps(told).encode(), digest_size=8).hexdigest() if told else ""

    def check_state(self, state: Mapping[str, Any], kind: str, identity: Mapping[str, Any]) -> None:
        """Check that a state belongs to a stream over these records, in the same order.

        Raises:
            DatasetError: no manifest lists the shards, and a shard was replaced after the state was taken.
            ValueError, TypeError: as for `check_ordered`.
        """
        values = StateValues(state)
        versions = versions_in(values) if self.packed else []
        if versions and len(versions) != len(self.packed):
            # The shard numbers in the state may refer to other shards.
            check_ordered(values, kind, identity, listed=False)
        check_versions(versions_in(values, len(self.packed)) if versions else [], self._now, self._path)
        check_ordered(values, kind, identity, listed=not self.packed)

    def _now(self, shard: int) -> list[Any]:
        return self.packed[shard][1:]
