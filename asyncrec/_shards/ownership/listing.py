"""`list_shards` finds the shards of a data set in its manifest or, if it has no manifest, among the stored objects."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from os import PathLike
from typing import Any

from asyncrec._concurrency.tasks import in_thread
from asyncrec._shards.journal.home import home_of
from asyncrec._shards.journal.remedies import recover_command
from asyncrec._shards.manifest.loading import load_history
from asyncrec._shards.manifest.manifest import Manifest
from asyncrec._shards.manifest.names import maker_of, may_be_shard, rewriter_of, stem_of
from asyncrec._shards.manifest.segment import ShardEntry
from asyncrec._shards.manifest.snapshot import dataset_at, dataset_names, load_manifest, merged
from asyncrec._shards.ownership.census import find_jobs
from asyncrec._shards.ownership.marks import find_claims
from asyncrec.storage._base import Storage
from asyncrec.storage._listing import is_pattern, list_some, matching
from asyncrec.storage._local.storage import local_folder
from asyncrec.storage._prefixed import folder_at
from asyncrec.storage._url import join


async def list_shards(
    path: str | PathLike[str] | Manifest,
    *,
    storage: Storage | None = None,
    storage_options: dict[str, Any] | None = None,
) -> list[str]:
    """List the paths of a data set's shards, ready to be opened, in the order of their names.

    If there is a manifest, its shards are listed. Otherwise the storage is searched: ``path`` may contain ``*`` and
    ``?``, or be the beginning of the shards' names (``data/train`` finds ``data/train-00000-of-00002.tfrecord``). In
    the latter case, shards that a writer has published but not yet committed are left out. Shards of another data set
    whose name begins in the same way are left out too, because its own manifest lists them. Names that begin with ``_``
    or ``.``, or end in ``.idx`` or ``.tfindex``, are never shards. With ``storage``, the paths are keys in it.
    """
    if isinstance(path, Manifest):
        folder_path, _, _ = path.path.rpartition("/")
        return await in_thread(_joined, folder_path + "/" if folder_path else "", path.shards.paths())
    text = str(path)
    parent, slash, _ = text.rpartition("/")
    async with dataset_at(path, storage=storage, storage_options=storage_options, allow_pattern=True) as (folder, name):
        manifest = None if is_pattern(name) or not name else await load_manifest(folder, name, path=text)
        if manifest is not None:
            return await in_thread(_joined, parent + slash, manifest.shards.paths())
        if is_pattern(name):
            found = [info.key async for info in matching(folder, name) if may_be_shard(info.key)]
            keys = await without_replaced(folder, found)
        else:
            keys = [
                info.key async for info in folder.list_objects(name) if may_be_shard(info.key) and "/" not in info.key
            ]
            keys = await (of_no_manifest(folder, name, keys) if name else without_replaced(folder, keys))
    return _joined(parent + slash, keys)


def _joined(folder: str, keys: Iterable[str]) -> list[str]:
    """Return the full paths of keys in a folder. Call this in a thread, because there may be a million keys."""
    return [folder + key for key in keys]


async def longer_names(folder: Storage, beginning: str) -> list[str]:
    """Return the names of a folder's data sets that begin with ``beginning`` and are longer, in ascending order."""
    return [name for name in await dataset_names(folder, beginning) if name != beginning]


async def of_no_manifest(folder: Storage, name: str, keys: Sequence[str]) -> list[str]:
    """Leave out the shards of data sets with longer names, which their own manifests list, and of unfinished jobs."""
    others = await longer_names(folder, name)
    return await without_unfinished(
        folder, name, [key for key in keys if not any(maker_of(other, key) for other in others)]
    )


async def without_replaced(folder: Storage, keys: Sequence[str]) -> list[str]:
    """Leave out shards that `compact` or `delete` has replaced, or has published but not committed yet.

    For a while, old shards exist next to new ones with the same records. Therefore the data set's manifest decides,
    even if the shards were found by a pattern. The manifest of a data set without rewritten shards is not read.
    """
    rewritten = [key for key in keys if rewriter_of(key) is not None]
    return (await listed_in_manifests(folder, keys, of=rewritten))[0] if rewritten else list(keys)


async def listed_in_manifests(
    folder: Storage, keys: Sequence[str], *, of: Sequence[str]
) -> tuple[list[str], dict[str, ShardEntry]]:
    """Look up shards in the manifests of the data sets in a folder that may have shards with the names ``of``.

    Returns:
        The keys, except those of shards that one of these data sets has replaced or has not committed yet; and the
        entries, by key, of the shards that their manifests list.

    Raises:
        ManifestError: a manifest cannot be read.
    """
    gone: set[str] = set()
    entries: dict[str, ShardEntry] = {}

    def look(manifest: Manifest, name: str) -> None:
        gone.update(replaced_among(manifest, name, keys))
        wanted = set(keys)
        rows = [row for row, path in enumerate(manifest.shards.paths()) if path in wanted]
        entries.update((entry.path, entry) for entry in map(manifest.shards.__getitem__, rows))

    for name in await dataset_names(folder, ""):
        if await in_thread(_may_have, name, of):
            await in_thread(look, await merged(name, await load_history(folder, name)), name)
    return [key for key in keys if key not in gone], entries


def _may_have(name: str, keys: Sequence[str]) -> bool:
    """Return whether any of these keys may be a shard of the data set. Blocks."""
    return any(maker_of(name, key) for key in keys)


def replaced_among(manifest: Manifest, name: str, keys: Iterable[str]) -> list[str]:
    """Return the keys that were shards of a data set but no longer are, or are uncommitted rewritten shards. Blocks."""
    shards = manifest.shards
    return [
        key
        for key in keys
        if maker_of(name, key) and not shards.names(key) and (rewriter_of(key) or shards.history.lists(key))
    ]


async def without_unfinished(folder: Storage, name: str, keys: Sequence[str]) -> list[str]:
    """Leave out the objects of unfinished jobs, in a data set that has no manifest.

    The shards that a job has published must not be read before the job commits, nor after the job was abandoned. Shards
    that other programs, such as TensorFlow, wrote under similar names are not left out.
    """
    unfinished = set((await load_history(folder, name)).writers)
    jobs = await find_jobs(folder, name)
    unfinished.update(stem for job in jobs for stem in (job.header.writer, *job.header.stems))
    plain = any(claim.plain for claim in await find_claims(folder, name))

    def is_unfinished(key: str) -> bool:
        stem, found = stem_of(name, key), maker_of(name, key)
        if stem is None or found is None:
            return False
        return stem in unfinished or stem.partition(".")[0] in unfinished or (plain and found[0] is None)

    return [key for key in keys if not is_unfinished(key)]


async def is_anything_at(store: Storage, key: str) -> bool:
    """Return whether a path names a folder, shards, or an existing data set, even if it has nothing but a tombstone."""
    prefix, name = key[: key.rfind("/") + 1], key[key.rfind("/") + 1 :]
    places = [f"{key.rstrip('/')}/" if key else "", *([f"{prefix}_manifest/{name}/"] if name else [])]
    for place in places:
        if await list_some(store, place, ""):
            return True
    if not name:
        return False
    keys = [info.key[len(prefix) :] async for info in store.list_objects(key)]
    return bool(await of_no_manifest(folder_at(store, prefix), name, [key for key in keys if may_be_shard(key)]))


async def why_nothing_at(store: Storage, key: str) -> str:
    """Return the error message for a path at which there is nothing to read."""
    prefix, name = key[: key.rfind("/") + 1], key[key.rfind("/") + 1 :]
    if name and name[0] not in "_." and await find_jobs(folder_at(store, prefix), name):
        return (
            "no records of this data set are committed yet; 'asyncrec watch' shows what its writers are doing, and "
            f"{recover_command(join(store.root, key))} commits records left by dead writers"
        )
    if name and (others := await longer_names(folder_at(store, prefix), name)):
        there = ", ".join(prefix + other for other in others[:10])
        return f"there is no data set with this name; the folder contains {there}"
    home = local_folder(folder_at(store, key))
    if not key and home is None:
        return "nothing is stored here"
    if home is not None and await in_thread(os.path.isdir, home.folder):
        made = {header.name for header in await in_thread(home_of(home).headers)}
        begun = (
            f"; not committed yet: {', '.join(sorted(made))}; 'asyncrec watch' shows what the writers are doing, and "
            f"{recover_command(join(store.root, key))} commits records left by dead writers"
            if made
            else ""
        )
        return f"the folder contains no data set and no record file{begun}"
    return (
        "there is no such file, folder or data set; the path of a data set consists of its folder and its "
        "name, without shard numbers"
    )
