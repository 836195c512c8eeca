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
from asyncrec.tools._report_json import json_of


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactReport:
    """The result of `compact`.

    Attributes:
        checkpoint: the path of the newest checkpoint, which `asyncrec.open_dataset` accepts; `None` if there is none.
        written: whether this call has made it. It has not if there was nothing new, or another call was faster.
        merged: how many segments were in no checkpoint before.
        deleted: the segments, older checkpoints, runs of keys and turns of sources that were deleted.
        latest: the path of the object that names the checkpoint, if it was requested.
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
        return json_of(self, "path id shards records checkpoint written merged deleted latest")


async def compact(
    path: str | os.PathLike[str],
    *,
    grace: float = GRACE_SECONDS,
    latest: bool = False,
    storage: Storage | None = None,
    storage_options: Mapping[str, Any] | None = None,
) -> CompactReport:
    """Merge the commits of the data set at ``path`` into a checkpoint: a manifest in one object.

    You can call it at any time, also while others write, read or compact. Readers find the same records with a
    checkpoint and without. Call it now and then while a crawl is going on, and once when it has ended.

    It also reads the keys of new shards, and sorts them into *runs* beside the checkpoint, 24 bytes a key. With runs, a
    look-up by key, and a writer that skips duplicates, need no request for each shard. It sorts a million keys at a
    time, which takes 150 MiB of memory, and up to 300 MiB if more keys are new.

    Args:
        path: the data set's folder and name.
        grace: how many seconds after they were merged the segments of single commits are deleted, and checkpoints that
            have a successor; a later call deletes them. At least a minute.
        latest: also write an object with a fixed name that says which checkpoint is the newest, for readers of a store
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
