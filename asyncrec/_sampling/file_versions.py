"""Of shards that no manifest lists, the entry says which version was found: their names and sizes may stay where their
records do not.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from hashlib import blake2b
from typing import Any

from asyncrec._sampling.shard_version import check_versions, packed_version
from asyncrec._sampling.state_values import StateValues
from asyncrec._sampling.stream_state import check_ordered, versions_in
from asyncrec._shards.manifest.segment import ShardEntry
from asyncrec._shards.manifest.shard_list import ShardList
from asyncrec.storage._base import ObjectInfo

_VERSION = "version"


def with_version(entry: ShardEntry, info: ObjectInfo) -> ShardEntry:
    """The entry of a shard that no manifest lists, with the version that was found, which goes where the entry goes."""
    return replace(entry, extra={**entry.extra, _VERSION: packed_version(info)})


def version_in(entry: ShardEntry) -> list[Any] | None:
    """What `with_version` noted; `None` of a shard that a manifest lists."""
    return None if entry.committed else entry.extra.get(_VERSION)


class FileVersions:
    """Which version each shard of a data set is that has no manifest, for states.

    Args:
        path: the path of a shard by its number, for messages.

    Attributes:
        packed: ``[shard, *packed_version]`` of each; empty where a manifest lists them.
    """

    def __init__(self, shards: ShardList, path: Callable[[int], str]) -> None:
        self._path = path
        self.packed: list[list[Any]] = []
        if len(shards) and version_in(shards[0]) is not None:
            self.packed = [[number, *(version_in(shard) or ())] for number, shard in enumerate(shards)]

    @property
    def fingerprint(self) -> str:
        """Of all of them, for what only compares text; ``""`` where a manifest lists the shards."""
        told = [[size, crc32c, None if crc32c is not None else etag] for _, size, crc32c, etag, _ in self.packed]
        return blake2b(json.dumps(told).encode(), digest_size=8).hexdigest() if told else ""

    def check_state(self, state: Mapping[str, Any], kind: str, identity: Mapping[str, Any]) -> None:
        """Refuse the state of a stream over other records than these, or in another order.

        Raises:
            DatasetError: no manifest lists the shards, and one of them was replaced since.
            ValueError, TypeError: as `check_ordered`.
        """
        values = StateValues(state)
        versions = versions_in(values) if self.packed else []
        if versions and len(versions) != len(self.packed):
            # The numbers may mean other shards.
            check_ordered(values, kind, identity, listed=False)
        check_versions(versions_in(values, len(self.packed)) if versions else [], self._now, self._path)
        check_ordered(values, kind, identity, listed=not self.packed)

    def _now(self, shard: int) -> list[Any]:
        return self.packed[shard][1:]
