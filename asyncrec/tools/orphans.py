"""Objects that look like a data set's and are in no manifest: found, adopted, or deleted.

A writer that was killed leaves them: index and keys are published before their shard, and the shard before the segment
that names it. Not all of them are to be adopted, as `asyncrec.recover` has it too: not what the data set had and has no
more (a replaced shard whose deletion failed), not shards that are published all or none, and not those of a writer that
ended well without them or was replacing the data set.

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
from asyncrec.shards.adopting import ever_listed
from asyncrec.shards.commit import Committer
from asyncrec.shards.naming import index_key, keys_key, new_writer_id, replacing_key
from asyncrec.shards.segment import ShardEntry, format_time
from asyncrec.shards.snapshot import load_segments
from asyncrec.storage.base import ObjectInfo, Storage
from asyncrec.tools.checking import ShardReport
from asyncrec.tools.selecting import SelectedDataset

__all__ = ["MIN_AGE", "Orphan", "adopt", "find_orphans", "remove"]

# No commit takes so long between a shard and its segment, but for fixed shards that are published together.
MIN_AGE = 3600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Orphan:
    """One object.

    Attributes:
        path: for people.
        key: in the data set's folder.
        kind: ``"shard"``, ``"index"`` or ``"keys"`` (of a shard that is not there, either).
        refused: why it is not to be adopted; `None` for a shard that may be, when it is whole.
        recent: it is younger than the age asked for: perhaps it is being committed.
    """

    path: str
    key: str
    kind: str
    size: int
    modified: datetime
    refused: str | None
    recent: bool

    def to_json(self) -> dict[str, Any]:
        return {
            "path": self.path,
            "kind": self.kind,
            "bytes": self.size,
            "modified": self.modified.isoformat(),
            "refused": self.refused,
            "recent": self.recent,
        }


async def find_orphans(dataset: SelectedDataset, base: str, *, min_age: float = MIN_AGE) -> list[Orphan]:
    """What lies in the data set's folder under its names and is in no manifest."""
    folder, name = dataset.folder, dataset.name
    named = {key for shard in dataset.manifest.shards for key in _objects(shard)}
    pattern = re.compile(re.escape(name) + r"-(?:\d{5,}-of-\d{5,}|([A-Za-z0-9][A-Za-z0-9_.]{0,63})-\d{6,})\.tfrecord")
    found: list[tuple[ObjectInfo, str, str, str | None]] = []
    shards = {entry.path for entry in dataset.manifest.shards}
    for prefix, suffix, kind in (("", "", "shard"), ("_index/", ".index", "index"), ("_keys/", ".keys", "keys")):
        async for info in folder.list_objects(f"{prefix}{name}-"):
            shard = info.key[len(prefix) : len(info.key) - len(suffix)]
            match = pattern.fullmatch(shard)
            if info.key in named or not info.key.endswith(suffix) or match is None:
                continue
            if kind == "shard":
                shards.add(shard)
            elif shard in shards:
                continue  # it goes with its shard
            found.append((info, kind, shard, match[1]))
    if not found:
        return []
    segments = await load_segments(folder, name)
    before = ever_listed(segments) | {path for segment in segments for path in segment.remove}
    ended = {each for each, writer in dataset.manifest.writers.items() if writer.closed}
    replacing = {info.key.rpartition("/")[2] async for info in folder.list_objects(replacing_key(name, ""))}

    def refused(kind: str, shard: str, writer: str | None) -> str | None:
        if kind != "shard":
            return "its shard is not there"
        if shard in before:
            return "it was replaced"
        if writer is None:
            return "it is one of shards that are published all or none"
        if writer in ended:
            return "its writer ended well without it"
        return "its writer was replacing the data set" if writer in replacing else None

    youngest = datetime.now(UTC) - timedelta(seconds=min_age)
    return [
        Orphan(
            path=base + dataset.prefix + info.key,
            key=info.key,
            kind=kind,
            size=info.size,
            modified=info.modified,
            refused=refused(kind, shard, writer),
            recent=info.modified > youngest,
        )
        for info, kind, shard, writer in found
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


async def _size(folder: Storage, key: str) -> int | None:
    try:
        return (await folder.head(key)).size
    except ObjectNotFoundError:
        return None


def _objects(entry: ShardEntry) -> list[str]:
    return [key for key in (entry.path, entry.index, entry.keys) if key]
