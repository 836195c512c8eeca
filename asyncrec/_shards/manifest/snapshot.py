"""Read the manifest of a data set, from any store."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import datetime
from fnmatch import fnmatchcase
from functools import partial
from os import PathLike
from typing import Any

from asyncrec._shards.manifest.history import History
from asyncrec._shards.manifest.loading import (
    LoadedManifest,
    in_thread_unless,
    load_history,
    load_listed,
    read_checkpoint,
    read_pointer,
)
from asyncrec._shards.manifest.manifest import Manifest, manifest_of
from asyncrec._shards.manifest.names import (
    MANIFESTS,
    begin_of,
    check_relative,
    checkpoint_key,
    claim_of,
    latest_key,
    manifest_prefix,
    source_turn_of,
    split_checkpoint_path,
)
from asyncrec.errors import ArgumentTypeError, ArgumentValueError, ObjectNotFoundError
from asyncrec.storage._base import Storage
from asyncrec.storage._listing import beginning_of, is_pattern
from asyncrec.storage._local.storage import local_folder
from asyncrec.storage._prefixed import PrefixedStorage
from asyncrec.storage._registry import located
from asyncrec.storage._url import join, redact


async def read_manifest(
    path: str | PathLike[str],
    at: str | datetime | None = None,
    *,
    storage: Storage | None = None,
    storage_options: dict[str, Any] | None = None,
) -> Manifest:
    """Read the manifest of the data set at ``path``, a folder and a name such as ``"s3://crawl/2026/pages"``.

    ``path`` may also be the path of a checkpoint (`asyncrec.tools.compact`). A checkpoint holds a complete snapshot, so
    no folder is listed.

    ``at`` selects an earlier snapshot: a time, or the `Manifest.id` of the snapshot.

    Raises:
        ObjectNotFoundError: the data set has no manifest.
        ManifestError: a segment cannot be read, or the data set never had a snapshot with this id.
    """
    where, checkpoint = split_checkpoint_path(str(path)) or (path, None)
    async with dataset_at(where, storage=storage, storage_options=storage_options) as (folder, name):
        if checkpoint is not None:
            return await load_checkpoint(folder, name, checkpoint, path=redact(str(where)), at=at)
        manifest = await load_manifest(folder, name, path=redact(str(path)), at=at)
    if manifest is None:
        raise ObjectNotFoundError(
            f"{redact(str(path))}: the data set has no manifest; pass its path as folder and name, without shard "
            "numbers"
        )
    return manifest


@asynccontextmanager
async def dataset_at(
    path: str | PathLike[str],
    *,
    storage: Storage | None = None,
    storage_options: dict[str, Any] | None = None,
    allow_pattern: bool = False,
) -> AsyncIterator[tuple[Storage, str]]:
    """Open the folder of a data set, and yield the folder's `Storage` and the data set's name.

    Raises:
        ValueError: the path does not end with a valid name of a data set.
        TypeError: the argument is not a path.
    """
    if not isinstance(path, str | PathLike):
        raise ArgumentTypeError(
            f"the path of a data set is a str or os.PathLike, not a {type(path).__name__}; to read several data sets "
            "of one folder together, give open_dataset a pattern such as 'crawl/pages-2026-11-*', or interleave the "
            "shards of each (list_shards)"
        )
    async with located(path, storage=storage, storage_options=storage_options) as (store, key):
        folder, _, name = key.rpartition("/")
        if not allow_pattern:
            check_name(name, redact(str(path)))
        yield (PrefixedStorage(store, folder + "/") if folder else store), name


def address_of(path: str | PathLike[str], folder: Storage, name: str, *, storage: Storage | None = None) -> str:
    """Return the address, without credentials, under which jobs record the data set that `dataset_at` opened."""
    local = local_folder(folder)
    if local is not None:
        return join(local.folder, name)
    return redact(str(path)) if storage is None else join(folder.root, name)


def check_name(name: str, path: str) -> None:
    """Check that ``name`` is a valid name of a data set. ``path`` is used in the error message.

    Raises:
        ArgumentValueError: the name is invalid.
    """
    if not name or name[0] in "_." or is_pattern(name):
        raise ArgumentValueError(
            f"{path}: the path of a data set ends in its name (such as 'pages' in 's3://crawl/2026/pages'). A name "
            "must not begin with '_' or '.' and must not contain * ? or ["
        )
    try:
        check_relative(f"{name}-0.tfrecord")  # similar to the shard names that the manifest will list
    except ValueError as error:
        raise ArgumentValueError(
            f"{path}: this name cannot be used for a data set, because its manifest could not list the shards: {error}"
        ) from error


async def load_manifest(folder: Storage, name: str, *, path: str, at: str | datetime | None = None) -> Manifest | None:
    """Load the snapshot of a data set; return `None` if nothing was ever committed to it."""
    return await snapshot_of(path, await load_history(folder, name), at=at)


async def load_checkpoint(
    folder: Storage, name: str, file: str, *, path: str, at: str | datetime | None = None
) -> Manifest:
    """Load the snapshot in a checkpoint without listing any folder.

    ``file`` is the file name of the checkpoint, or of the pointer to the latest checkpoint.

    Raises:
        ObjectNotFoundError: the checkpoint does not exist.
        ManifestError: the checkpoint cannot be read.
    """
    if (key := manifest_prefix(name) + file) == latest_key(name):
        key = checkpoint_key(name, *await read_pointer(folder, key))
    return await merged(path, await read_checkpoint(folder, key), at=at)


async def snapshot_of(path: str, history: History, *, at: str | datetime | None = None) -> Manifest | None:
    """Return the snapshot of a history, or `None` if nothing was ever committed."""
    return None if history.is_empty else await merged(path, history, at=at)


async def merged(path: str, history: History, *, at: str | datetime | None = None) -> Manifest:
    """Call `manifest_of`, in a worker thread unless the call is cheap."""
    return await in_thread_unless(history.is_little and at is None, partial(manifest_of, path, history, at=at))


async def dataset_names(folder: Storage, beginning: str = "") -> list[str]:
    """Return the sorted names of the data sets in a folder that have a manifest and begin with ``beginning``."""
    keys = [info.key.split("/", 2)[1:] async for info in folder.list_objects(MANIFESTS + beginning)]
    return sorted({name for name, *files in keys if not any(map(_is_of_a_job, files))})


def _is_of_a_job(file: str) -> bool:
    """Return whether a file in a manifest's folder is a mark, a claim or a turn. These do not commit anything."""
    return begin_of(file) is not None or claim_of(file) is not None or source_turn_of(file) is not None


async def datasets_like(folder: Storage, pattern: str) -> list[str]:
    """Return the data sets in a folder whose own names match a pattern, even if the names of their shards do not."""
    return [name for name in await dataset_names(folder, beginning_of(pattern)) if fnmatchcase(name, pattern)]


def matches_data_sets(path: str, names: list[str]) -> str:
    """Return the error message for a pattern that matches the names of data sets (`datasets_like`) but no shard."""
    return (
        f"{path}: no shard matches this pattern, but the names of these data sets do: {', '.join(names[:10])}; to read "
        f"them together, match the names of their shards: '{path}-*'"
    )


async def load_manifests(folder: Storage) -> dict[str, Manifest]:
    """Load the manifests of all data sets in a folder, sorted by name."""
    loaded = {
        name: await load_manifest(folder, name, path=join(folder.root, name)) for name in await dataset_names(folder)
    }
    return {name: manifest for name, manifest in loaded.items() if manifest is not None}


class ManifestFollower:
    """The manifest of a growing data set. It can be loaded repeatedly without reading any segment twice."""

    def __init__(self, folder: Storage, name: str, *, path: str) -> None:
        self._folder = folder
        self._name = name
        self._path = path
        self._known: LoadedManifest | None = None
        self._manifest: Manifest | None = None

    async def load(self) -> Manifest | None:
        """Load the current snapshot. Return the same object as before if nothing has changed.

        Return `None` if nothing was ever committed.
        """
        found = await load_listed(self._folder, self._name, self._known)
        if found is None:
            self._manifest = None
        elif self._known is None or found.history is not self._known.history:
            self._manifest = await snapshot_of(self._path, found.history)
        self._known = found
        return self._manifest
