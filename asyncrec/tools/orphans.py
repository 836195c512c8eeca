"""Objects that look like a data set's and are in no manifest: found, adopted, or deleted.

A writer that was killed leaves them: index and keys are published before their shard, and the shard before the segment
that names it. What a data set had before and has no more (a replaced shard whose deletion failed) is told apart: it is
never adopted, for its records were replaced.

A shard that is just being committed looks the same. So what is younger than an age is left alone.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from asyncrec.errors import ObjectNotFoundError
from asyncrec.framing.compression import parse_compression
from asyncrec.records.budget import ByteBudget
from asyncrec.records.slab import KEY_BYTES
from asyncrec.shards.commit import Committer
from asyncrec.shards.naming import index_key, keys_key, manifest_prefix, new_writer_id
from asyncrec.shards.segment import MAX_SEGMENT_BYTES, ShardEntry, format_time, parse_segment
from asyncrec.shards.snapshot import for_each
from asyncrec.storage.base import Storage
from asyncrec.storage.url import join
from asyncrec.tools.checking import ShardReport
from asyncrec.tools.selecting import SelectedDataset

__all__ = ["MIN_AGE", "Orphan", "adopt", "find_orphans", "remove"]

# No commit takes so long between a shard and its segment, but for fixed shards that are published together.
MIN_AGE = 3600.0

_BESIDE = ("_index/", "_keys/")


@dataclass(frozen=True, slots=True, kw_only=True)
class Orphan:
    """One object.

    Attributes:
        path: for people.
        key: in the data set's folder.
        kind: ``"shard"``, ``"index"`` or ``"keys"`` (of a shard that is not there, either).
        replaced: the data set had it, and has it no more.
        recent: it is younger than the age asked for: perhaps it is being committed.
    """

    path: str
    key: str
    kind: str
    size: int
    modified: datetime
    replaced: bool
    recent: bool

    def to_json(self) -> dict[str, Any]:
        return {
            "path": self.path,
            "kind": self.kind,
            "bytes": self.size,
            "modified": self.modified.isoformat(),
            "replaced": self.replaced,
            "recent": self.recent,
        }


async def find_orphans(dataset: SelectedDataset, base: str, *, min_age: float = MIN_AGE) -> list[Orphan]:
    """What lies in the data set's folder under its names and is in no manifest."""
    folder, name = dataset.folder, dataset.name
    named = {key for shard in dataset.manifest.shards for key in _objects(shard)}
    pattern = re.compile(re.escape(name) + r"-(\d{5,}-of-\d{5,}|[A-Za-z0-9][A-Za-z0-9_.]{0,63}-\d{6,})\.tfrecord")
    found = []
    shards = set()
    for prefix in ("", *_BESIDE):
        suffix = {"": "", "_index/": ".index", "_keys/": ".keys"}[prefix]
        async for info in folder.list_objects(f"{prefix}{name}-"):
            shard = info.key[len(prefix) : len(info.key) - len(suffix)]
            if info.key in named or not info.key.endswith(suffix) or not pattern.fullmatch(shard):
                continue
            if not prefix:
                shards.add(shard)
            elif shard in shards or any(shard == entry.path for entry in dataset.manifest.shards):
                continue  # it goes with its shard
            found.append((info, prefix.strip("_/") or "shard", shard))
    if not found:
        return []
    before = await _ever_named(folder, name)
    youngest = datetime.now(UTC) - timedelta(seconds=min_age)
    return [
        Orphan(
            path=join(base + dataset.prefix.rstrip("/"), info.key) if dataset.prefix else base + info.key,
            key=info.key,
            kind=kind,
            size=info.size,
            modified=info.modified,
            replaced=shard in before,
            recent=info.modified > youngest,
        )
        for info, kind, shard in found
    ]


async def adopt(dataset: SelectedDataset, orphans: Sequence[tuple[Orphan, ShardReport]]) -> None:
    """Make shards, each checked and whole, part of the data set, by one commit.

    Raises:
        StorageError: the manifest could not be written.
    """
    committer = Committer(
        dataset.folder,
        dataset.name,
        new_writer_id(),
        compression=parse_compression(""),
        with_index=False,
        schema=None,
        metadata=None,
        on_commit=None,
        budget=ByteBudget(1),
        after=dataset.manifest,
    )
    entries = []
    for orphan, report in orphans:
        keys = await _size(dataset.folder, keys_key(orphan.key))
        time = format_time(orphan.modified.timestamp())
        entries.append(
            ShardEntry(
                path=orphan.key,
                records=report.records,
                bytes=report.bytes,
                crc32c=report.crc32c,
                compression=report.compression,
                index=index_key(orphan.key) if await _size(dataset.folder, index_key(orphan.key)) is not None else None,
                keys=keys_key(orphan.key) if keys == KEY_BYTES * report.records else None,
                first=time,
                last=time,
                committed=committer.now(),
            )
        )
    await committer.close(entries)


async def remove(dataset: SelectedDataset, orphans: Iterable[Orphan]) -> None:
    """Delete them, with the index and the keys of each shard."""
    for orphan in orphans:
        if orphan.kind == "shard":
            await dataset.folder.delete(index_key(orphan.key))
            await dataset.folder.delete(keys_key(orphan.key))
        await dataset.folder.delete(orphan.key)


async def _ever_named(folder: Storage, name: str) -> set[str]:
    """All shards that any segment added or removed."""
    keys = [info.key async for info in folder.list_objects(manifest_prefix(name)) if info.key.endswith(".json")]

    async def read(key: str) -> set[str]:
        segment = parse_segment(await folder.get(key, max_bytes=MAX_SEGMENT_BYTES), name=key)
        return {entry.path for entry in segment.add} | set(segment.remove)

    return set().union(*await for_each(read, keys))


async def _size(folder: Storage, key: str) -> int | None:
    try:
        return (await folder.head(key)).size
    except ObjectNotFoundError:
        return None


def _objects(entry: ShardEntry) -> list[str]:
    return [key for key in (entry.path, entry.index, entry.keys) if key]
