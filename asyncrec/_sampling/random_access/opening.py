"""`open_dataset` opens a `Dataset`. It reads the manifest or, if there is no manifest, finds the shards."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from os import PathLike
from typing import Any

from asyncrec._arguments import Size, record_limit
from asyncrec._framing.frames import MAX_RECORD_BYTES
from asyncrec._sampling.random_access.dataset import Dataset
from asyncrec._sampling.random_access.scan_manifest import snapshot_in
from asyncrec._shards.manifest.manifest import Manifest
from asyncrec._shards.manifest.names import split_checkpoint_path
from asyncrec._shards.manifest.snapshot import dataset_at, load_checkpoint
from asyncrec.storage._base import Storage
from asyncrec.storage._cached import CACHE_BYTES, cache_at, through
from asyncrec.storage._url import redact


@asynccontextmanager
async def open_dataset(
    path: str | PathLike[str] | Manifest,
    *,
    newest: str | None = None,
    cache: str | PathLike[str] | None = None,
    cache_bytes: Size = CACHE_BYTES,
    max_record_bytes: Size = MAX_RECORD_BYTES,
    storage: Storage | None = None,
    storage_options: dict[str, Any] | None = None,
) -> AsyncIterator[Dataset]:
    """Read any record of a data set: ``async with open_dataset("s3://crawl/2026/pages") as dataset: ...``.

    Args:
        path: the data set's folder and name; or a `Manifest`, to read an earlier snapshot; or a checkpoint
            (`asyncrec.tools.compact`), for a store that cannot list objects; or a folder that holds one data set, or
            shards without a manifest; or the beginning of the shards' names, or a pattern for these names, such as
            ``"crawl/pages-2026-11-*"``. The records of shards without a manifest are counted on opening, from the
            indexes of the shards, or by reading each shard that has no index. A trailing slash selects all shards in
            the folder. If the shards belong to several data sets, they are read together, and a warning is logged.
        newest: a feature, such as ``"date"``, that determines the newest of the records with one key. This is the
            record with the largest value. A value is a number, or a text of at most 32 bytes, compared byte by byte.
            Among equal values, the last committed record is the newest. A record without the feature is the oldest. A
            record without a key has no other versions. The data set then returns the newest version of each key (see
            `Dataset`). The first look-up by key reads the same keys as without ``newest``, and every look-up reads all
            versions of its key. A stream first reads all keys, and all records whose key occurs more than once, and
            keeps a bit for each record. For millions of keys, this needs temporary files of 24 bytes for each key, and
            81 bytes for each record whose key occurs more than once.
        cache: a local folder that caches the data read, including the manifest and the indexes, for all processes on
            this machine. Each process requests only a listing, and data that no process has yet read. Use a cache for a
            remote store that is read more than once, or by several processes.
        cache_bytes: the maximum size of all cached files, 64 GiB by default. The least recently used files are removed.
        max_record_bytes: a longer record raises an error if there is neither a manifest nor an index; see
            `open_reader`.
        storage: an open `Storage`, which this call uses but does not close.
        storage_options: options for the backend, if this call opens the storage.

    Raises:
        ObjectNotFoundError: there is neither a manifest nor a shard, or ``path`` is a folder of several data sets.
        ManifestError: the manifest cannot be read.
        FormatError: there is no manifest, and a shard without an index is damaged.
        ValueError: the schema has no feature ``newest``, or its values have no order.
        DatasetError: ``newest`` was passed, but no record has a key.
    """
    longest = record_limit(max_record_bytes)
    given = path if isinstance(path, Manifest) else None
    where: str | PathLike[str] = path.path if isinstance(path, Manifest) else path
    where, checkpoint = (None if given else split_checkpoint_path(str(where))) or (where, None)
    disk_cache = await cache_at(cache, cache_bytes)
    opening = dataset_at(where, storage=storage, storage_options=storage_options, allow_pattern=True)
    async with opening as (store, name):
        folder, manifest = through(store, disk_cache), given
        display_path = redact(str(where))
        if checkpoint is not None:
            manifest = await load_checkpoint(folder, name, checkpoint, path=display_path)
        if manifest is None:
            folder, name, manifest = await snapshot_in(
                store,
                name,
                path=display_path,
                cached=lambda found: through(found, disk_cache),
                max_record_bytes=longest,
            )
        dataset = Dataset(folder, name, manifest, newest=newest)
        try:
            yield dataset
        finally:
            await dataset.lookup.close()
