"""`selected` finds the shards of a path, which may be a file, a folder, a pattern or a data set.

It tries, in this order: an object with this path; the manifest of a data set; a folder with all objects below it; and
shards whose names begin with the last part of the path. All tools interpret paths in this way.
"""

from __future__ import annotations

import os
import re
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import Any, Literal

from asyncrec._arguments import Size, record_limit
from asyncrec._concurrency.tasks import in_thread
from asyncrec._framing.frames import MAX_RECORD_BYTES
from asyncrec._path_log import PathLog
from asyncrec._shards.journal.home import home_of
from asyncrec._shards.manifest.loading import load_history
from asyncrec._shards.manifest.manifest import Manifest
from asyncrec._shards.manifest.names import is_data, may_be_shard
from asyncrec._shards.manifest.segment import ShardEntry
from asyncrec._shards.manifest.snapshot import datasets_like, matches_data_sets, merged, snapshot_of
from asyncrec._shards.ownership.listing import (
    listed_in_manifests,
    of_no_manifest,
    replaced_among,
    why_nothing_at,
    without_replaced,
    without_unfinished,
)
from asyncrec._shards.spool.folder import is_spool
from asyncrec.errors import ManifestError, ObjectNotFoundError, StoragePermissionError
from asyncrec.storage._base import ObjectInfo, Storage
from asyncrec.storage._listing import is_pattern, matching
from asyncrec.storage._local.storage import local_folder
from asyncrec.storage._prefixed import folder_at
from asyncrec.storage._registry import located
from asyncrec.storage._url import join, redact

_path_log = PathLog("asyncrec.tools")

# Matches the names of record files in a folder, by the conventions of TensorFlow, TFDS and TensorBoard. Files that are
# selected by their own path are read regardless of their names, and so are files that match a pattern, unless they are
# indexes.
_RECORDS = re.compile(r"\.tfrec|\.tfevents|-\d{5,}-of-\d{5,}(\.gz)?$")
# Matches a file that proves that a data set exists or is being created. The groups are the data set's folder and name.
_MADE = re.compile(r"((?:.*/)?)_(?:manifest|jobs)/([^/]+)/[^/]+\.jsonl?")


@dataclass(frozen=True, slots=True, kw_only=True)
class SelectedDataset:
    """A data set in a selection.

    Attributes:
        folder: the storage of the manifest, the shards and the indexes.
        prefix: the prefix of that folder in the selection's storage; ``""``, or ending in a slash.
    """

    folder: Storage
    prefix: str
    name: str
    manifest: Manifest


@dataclass(frozen=True, slots=True, kw_only=True)
class SelectedShard:
    """A file to read.

    Attributes:
        key: the key in the selection's storage.
        display_path: the display path.
        size: the size in bytes; for a shard of a data set, the size in the manifest.
        entry: the entry in the manifest; `None` if no manifest lists the file.
        dataset: the data set that lists the file; `None` if a pattern found it, because the pattern may match only a
            part of the data set.
        limit: the maximum length of a record, unless the manifest allows longer records.
    """

    key: str
    display_path: str
    size: int
    entry: ShardEntry | None = None
    dataset: SelectedDataset | None = None
    limit: int = MAX_RECORD_BYTES

    @property
    def max_record_bytes(self) -> int:
        """The maximum length of a record that the reader of this file accepts."""
        return self.limit if self.entry is None else max(self.limit, self.entry.max_record_bytes)

    @property
    def folder(self) -> str:
        """The key of the file's folder: ``""``, or ending in a slash."""
        return self.key[: self.key.rfind("/") + 1]

    @property
    def name(self) -> str:
        return self.key[self.key.rfind("/") + 1 :]


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """The shards and data sets of a path, in an open storage.

    Attributes:
        path: the path as it was passed, without secrets.
        base: the prefix that turns a key into a display path.
        shards: the shards in the order of their names, one data set after another.
        folder: the key of the folder: ``""``, or ending in a slash.
        limit: the maximum length of a record, as in `SelectedShard`.
    """

    path: str
    kind: Literal["file", "data set", "folder", "pattern", "name"]
    storage: Storage
    base: str
    shards: tuple[SelectedShard, ...]
    datasets: tuple[SelectedDataset, ...] = ()
    folder: str = ""
    limit: int = MAX_RECORD_BYTES

    async def is_spool(self) -> bool:
        """Return whether the path is the folder of a spool."""
        home = local_folder(folder_at(self.storage, self.folder)) if self.kind == "folder" else None
        return home is not None and await in_thread(is_spool, home.folder)

    @property
    def bytes(self) -> int:
        return sum(shard.size for shard in self.shards)

    @property
    def records(self) -> int | None:
        """The number of records in the manifests, or `None` if a shard is in no manifest."""
        counts = [shard.entry.records for shard in self.shards if shard.entry is not None]
        return sum(counts) if len(counts) == len(self.shards) else None

    @property
    def schema(self) -> Mapping[str, Any] | None:
        """The schema of the data sets, or `None` if their schemas differ."""
        schemas = [dataset.manifest.schema for dataset in self.datasets]
        return schemas[0] if schemas and all(schema == schemas[0] for schema in schemas) else None


@asynccontextmanager
async def selected(
    path: str | os.PathLike[str],
    *,
    given_up: bool = False,
    max_record_bytes: Size = MAX_RECORD_BYTES,
    storage: Storage | None = None,
    storage_options: Mapping[str, Any] | None = None,
) -> AsyncIterator[Selection]:
    """Open the storage of ``path``, and find its shards. All names below a folder are held in memory.

    Args:
        given_up: also select a data set whose writers were all abandoned before they committed anything. Such a data
            set is empty, but objects with its names may exist.
        max_record_bytes: the maximum length of a record, except in shards for which a manifest allows longer records.

    Raises:
        ObjectNotFoundError: there is nothing at the path.
        StoragePermissionError: the store denies access.
        ManifestError: a manifest cannot be read.
    """
    display_path = redact(os.fspath(path))
    async with located(path, storage=storage, storage_options=storage_options) as (store, key):
        yield _limited(await _select(store, key, display_path, given_up), record_limit(max_record_bytes))


def _limited(selection: Selection, limit: int) -> Selection:
    if limit == MAX_RECORD_BYTES:
        return selection
    return replace(selection, limit=limit, shards=tuple(replace(shard, limit=limit) for shard in selection.shards))


async def reselected(selection: Selection) -> Selection:
    """Select a selection's data set again, in its current state."""
    (dataset,) = selection.datasets
    again = await _select(selection.storage, dataset.prefix + dataset.name, selection.path, given_up=False)
    return _limited(again, selection.limit)


async def _select(store: Storage, key: str, display_path: str, given_up: bool) -> Selection:
    base = display_path[: len(display_path) - len(key)] if display_path.endswith(key) else join(store.root, "x")[:-1]
    if base and not base.endswith(("/", "\\", ":")):
        base += "/"
    name = key.rpartition("/")[2]
    if is_pattern(name):
        return await _pattern(store, key, display_path, base)
    refused: StoragePermissionError | None = None
    if name:
        try:
            info = await store.head(key)
        except ObjectNotFoundError:
            pass
        except StoragePermissionError as error:
            refused = error  # this is how S3 reports a missing object if the caller may not list objects
        else:
            shard = SelectedShard(key=key, display_path=display_path, size=info.size)
            return Selection(path=display_path, kind="file", storage=store, base=base, shards=(shard,))
        dataset = None if name[0] in "_." else await _dataset(store, key, display_path, given_up)
        if dataset is not None:
            shards = await in_thread(_shards_of, [dataset], base)
            return Selection(
                path=display_path, kind="data set", storage=store, base=base, shards=shards, datasets=(dataset,)
            )
    folder = await _folder(store, key.rstrip("/") + "/" if key else "", display_path, base, given_up)
    if folder is not None:
        return folder
    home = local_folder(folder_at(store, key)) if name else None
    if name and not (home is not None and await in_thread(os.path.isdir, home.folder)):
        prefix = key[: len(key) - len(name)]
        found = {info.key[len(prefix) :]: info async for info in store.list_objects(key)}
        kept = await of_no_manifest(folder_at(store, prefix), name, [below for below in found if may_be_shard(below)])
        shards = _plain([found[below] for below in kept], base)
        if shards:
            return Selection(path=display_path, kind="name", storage=store, base=base, shards=shards)
    if refused is not None:
        raise refused
    raise ObjectNotFoundError(f"{display_path}: {await why_nothing_at(store, key)}")


async def _pattern(store: Storage, key: str, display_path: str, base: str) -> Selection:
    found = [info async for info in matching(store, key) if may_be_shard(info.key.rpartition("/")[2])]
    if not found:
        folder, _, name = key.rpartition("/")
        if named := await datasets_like(folder_at(store, f"{folder}/" if folder else ""), name):
            raise ObjectNotFoundError(matches_data_sets(display_path, named))
        raise ObjectNotFoundError(f"{display_path}: no file matches this pattern")
    folder = key[: key.rfind("/") + 1]
    names = [info.key[len(folder) :] for info in found]
    try:
        kept, entries = await listed_in_manifests(folder_at(store, folder), names, of=names)
    except ManifestError as error:
        # A pattern finds the shards of a data set even if the manifest cannot be read. The manifest is needed only to
        # exclude shards that `compact` or `delete` has replaced.
        kept, entries = await without_replaced(folder_at(store, folder), names), {}
        _path_log.warning(display_path, "the records are read without their keys: %s", error)

    def listed() -> tuple[SelectedShard, ...]:  # blocks, because there may be a million shards
        there = set(kept)
        shards = (shard for shard in _plain(found, base) if shard.name in there)
        return tuple(replace(shard, entry=entries[shard.name]) if shard.name in entries else shard for shard in shards)

    return Selection(path=display_path, kind="pattern", storage=store, base=base, shards=await in_thread(listed))


async def _dataset(store: Storage, key: str, display_path: str, given_up: bool) -> SelectedDataset | None:
    prefix, name = key[: key.rfind("/") + 1], key[key.rfind("/") + 1 :]
    folder = folder_at(store, prefix)
    history = await load_history(folder, name)
    manifest = await (merged if given_up and history.writers else snapshot_of)(display_path, history)
    return None if manifest is None else SelectedDataset(folder=folder, prefix=prefix, name=name, manifest=manifest)


async def _finished(store: Storage, key: str, found: list[ObjectInfo]) -> list[ObjectInfo]:
    """Return ``found`` without the objects that a job has published to the data set at ``key``, but not yet committed.

    That data set has no manifest yet.
    """
    prefix, name = key[: key.rfind("/") + 1], key[key.rfind("/") + 1 :]
    folder = folder_at(store, prefix)
    below = [info.key[len(prefix) :] for info in found if info.key.startswith(key)]
    kept = set(await without_unfinished(folder, name, below))
    return [info for info in found if not info.key.startswith(key) or info.key[len(prefix) :] in kept]


async def _folder(store: Storage, prefix: str, display_path: str, base: str, given_up: bool) -> Selection | None:
    """Select the data sets and record files below a prefix. Return `None` if no object is there."""
    found: list[ObjectInfo] = []
    datasets: dict[str, SelectedDataset] = {}
    made: set[str] = set()  # names of data sets that a job has begun to write
    anything = False
    async for info in store.list_objects(prefix):
        anything = True
        below = info.key[len(prefix) :]
        if match := _MADE.fullmatch(below):
            if is_data(match[1] + match[2]):
                made.add(prefix + match[1] + match[2])
        elif may_be_shard(below) and _RECORDS.search(below):
            found.append(info)
    if not anything:
        return None
    for parent in {info.key[: info.key.rfind("/") + 1] for info in found}:
        home = home_of(folder_at(store, parent))  # on a disk, the header of a job is its mark
        made.update(parent + header.name for header in await in_thread(home.headers))
    for key in sorted(made):
        dataset = await _dataset(store, key, base + key, given_up)
        if dataset is not None:
            datasets[key] = dataset
            found = await in_thread(_without_replaced, dataset, found)
        else:
            found = await _finished(store, key, found)
    of_datasets = await in_thread(_shards_of, [*datasets.values()], base)
    named = {shard.key for shard in of_datasets}
    shards = of_datasets + _plain([info for info in found if info.key not in named], base)
    return Selection(
        path=display_path,
        kind="folder",
        folder=prefix,
        storage=store,
        base=base,
        shards=shards,
        datasets=tuple(datasets.values()),
    )


def _without_replaced(dataset: SelectedDataset, found: list[ObjectInfo]) -> list[ObjectInfo]:
    """Return the objects that were not replaced. Replaced objects are kept for readers of older snapshots. Blocks."""
    prefix = dataset.prefix
    keys = [info.key[len(prefix) :] for info in found if info.key.startswith(prefix)]
    gone = {prefix + key for key in replaced_among(dataset.manifest, dataset.name, keys)}
    return [info for info in found if info.key not in gone]


def _shards_of(datasets: Iterable[SelectedDataset], base: str) -> tuple[SelectedShard, ...]:
    """Return the shards of data sets. Blocks, because there may be a million shards."""
    return tuple(
        SelectedShard(
            key=dataset.prefix + entry.path,
            display_path=base + dataset.prefix + entry.path,
            size=entry.bytes,
            entry=entry,
            dataset=dataset,
        )
        for dataset in datasets
        for entry in dataset.manifest.shards
    )


def _plain(found: list[ObjectInfo], base: str) -> tuple[SelectedShard, ...]:
    return tuple(SelectedShard(key=info.key, display_path=base + info.key, size=info.size) for info in found)
