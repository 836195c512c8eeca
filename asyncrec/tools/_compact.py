"""`compact` merges the manifest of a data set into a checkpoint, so that it opens in a few requests."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from asyncrec._shards.commit.compaction import GRACE_SECONDS, compact_manifest
from asyncrec._shards.manifest.snapshot import dataset_at
from asyncrec.storage._base import Storage
from asyncrec.storage._url import join, redact


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactReport:
    """What `compact` did.

    Attributes:
        checkpoint: the path of the newest checkpoint, which `asyncrec.open_dataset` takes; `None` where there is none.
        written: whether this call has made it: not when nothing was new, nor when another was faster.
        merged: the segments that were in no checkpoint before.
        deleted: segments, older checkpoints and runs of keys that were deleted.
        latest: the path of the object that names the checkpoint, where that was asked for.
    """

    path: str
    id: str
    shards: int
    records: int
    checkpoint: str | None
    written: bool
    merged: int
    deleted: tuple[str, ...]
    latest: str | None = None

    def to_json(self) -> dict[str, Any]:
        return {
            "path": self.path,
            "id": self.id,
            "shards": self.shards,
            "records": self.records,
            "checkpoint": self.checkpoint,
            "written": self.written,
            "merged": self.merged,
            "deleted": list(self.deleted),
            "latest": self.latest,
        }


async def compact(
    path: str | os.PathLike[str],
    *,
    grace: float = GRACE_SECONDS,
    latest: bool = False,
    storage: Storage | None = None,
    storage_options: Mapping[str, Any] | None = None,
) -> CompactReport:
    """Merge what was committed to the data set at ``path`` into a checkpoint: a manifest of columns, in one object.

    It may be called at any time, also while others write, read or compact. Whatever a reader finds, with a checkpoint
    or without, is the same. Call it now and then while a crawl goes on, and once when it has ended.

    It also reads the keys of shards that are new, and sorts them into *runs* beside the checkpoint, 24 bytes a key.
    Behind them a look-up by key, and a writer that skips duplicates, ask no request for each shard. It sorts a million
    keys at a time, which takes 150 MiB of memory, and up to 300 MiB where there are more that are new.

    Args:
        path: the data set's folder and name.
        grace: how many seconds after they were merged the segments of single commits are deleted, and checkpoints that
            have a successor: by a later call. At least a minute.
        latest: also write an object of a fixed name that says which checkpoint is the newest, for readers of a store
            that cannot list. That checkpoint is kept.

    Raises:
        ObjectNotFoundError: there is no manifest.
        ManifestError: it cannot be read.
        StorageError: the store failed.
    """
    options = None if storage_options is None else dict(storage_options)
    async with dataset_at(path, storage=storage, storage_options=options) as (folder, name):
        done = await compact_manifest(folder, name, path=redact(os.fspath(path)), grace=grace, latest=latest)
        return CompactReport(
            path=redact(os.fspath(path)),
            id=done.manifest.id,
            shards=len(done.manifest.shards),
            records=done.manifest.records,
            checkpoint=None if done.checkpoint is None else join(folder.root, done.checkpoint),
            written=done.written,
            merged=done.covered,
            deleted=done.deleted,
            latest=join(folder.root, done.latest) if done.latest else None,
        )
