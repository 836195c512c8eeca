"""`copy` copies files and data sets from one store to another, byte for byte, and verifies the checksums as it reads.

Each shard of a data set is copied together with its index and its keys. The manifest is written last, so an interrupted
copy is not yet a data set, and another call can continue it. Objects that the target already has are not copied again.
If an object that the target's manifest lists is missing, it is restored without a commit.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from asyncrec._concurrency.map import concurrently
from asyncrec._concurrency.tasks import in_thread
from asyncrec._shards.commit.shard import CommitClock
from asyncrec._shards.manifest.manifest import Manifest, carried_from
from asyncrec._shards.manifest.names import stem_of
from asyncrec._shards.manifest.origins import origins_of, with_origins
from asyncrec._shards.manifest.progress import newer
from asyncrec._shards.manifest.segment import ShardEntry, Sidecar
from asyncrec._shards.manifest.snapshot import load_manifest
from asyncrec._shards.ownership.clearing import delete_replaced
from asyncrec._shards.writing.open_job import open_job, whole_job_header
from asyncrec.errors import ArgumentValueError, ConflictError, ObjectExistsError
from asyncrec.storage._base import Storage
from asyncrec.storage._listing import is_pattern
from asyncrec.storage._local.storage import local_folder
from asyncrec.storage._prefixed import folder_at
from asyncrec.storage._registry import located
from asyncrec.storage._url import join, redact
from asyncrec.tools._copied_object import Item, copy_object, is_same, is_there
from asyncrec.tools._metadata import conversions_of
from asyncrec.tools._parameters import Advance, Progress
from asyncrec.tools._report_json import json_of
from asyncrec.tools._selection import SelectedDataset, Selection, selected

# The number of objects to copy at once, to hide the latency of both stores. Each copy needs memory for two chunks.
_CONCURRENT = 4


@dataclass(slots=True, kw_only=True)
class CopyReport:
    """The result of `copy`.

    Attributes:
        copied: the paths of new objects, without manifests.
        kept: the paths of identical objects that the target already had.
        kept_by_size: the paths in ``kept`` that were compared only by size, because the store has no checksums;
            `verify` compares their contents.
        bytes: the number of bytes copied.
    """

    source: str
    target: str
    copied: list[str] = field(default_factory=list)
    kept: list[str] = field(default_factory=list)
    kept_by_size: list[str] = field(default_factory=list)
    bytes: int = 0

    def to_json(self) -> dict[str, Any]:
        return json_of(self, "source target bytes copied kept kept_by_size")


async def copy(
    source: str | os.PathLike[str],
    target: str | os.PathLike[str],
    *,
    overwrite: bool = False,
    parallelism: int = _CONCURRENT,
    progress: Progress = lambda done, total: None,
    storage: Storage | None = None,
    storage_options: Mapping[str, Any] | None = None,
    target_storage: Storage | None = None,
    target_storage_options: Mapping[str, Any] | None = None,
) -> CopyReport:
    """Copy ``source`` to ``target``.

    A data set becomes the data set ``target`` (folder and name; its shards are renamed accordingly). A single file
    becomes the file ``target``, or a file in that folder if it ends in ``/``. The contents of a folder or a pattern are
    copied below ``target`` and keep their names.

    Each object is verified. The data read is compared with the CRC32C in the manifest or the source's store. The data
    written is verified by the sink, and by the CRC32C in the target's store, if any. If the target is an earlier state
    of the same data set, it is brought up to date. Objects in its manifest are copied again if they are missing or
    differ in size or checksum. In a store without checksums, only `verify` finds damage that does not change the size.

    Args:
        overwrite: replace files at the target that differ, instead of raising an error.

    Raises:
        IntegrityError: the data read does not match the source's checksum; no part of that object was published.
        ObjectExistsError: the target is another file or data set.
        ConflictError: another process is creating, or has replaced, the data set at the target.
    """
    report = CopyReport(source=redact(os.fspath(source)), target=redact(os.fspath(target)))
    async with (
        selected(source, storage=storage, storage_options=storage_options) as selection,
        located(target, storage=target_storage, storage_options=target_storage_options) as (store, key),
    ):
        advance = Advance(progress, selection.bytes)

        async def one(item: Item, folder: Storage | None = None) -> bool:
            into = store if folder is None else folder
            display_path = join(into.root, item.target)
            if item.listed:
                # No other job uses a name that is listed in a manifest, and only contents that match the manifest
                # are published.
                exclusive = False
                found = await is_there(into, item)
                there = found != "no"
                if found == "by size":
                    report.kept_by_size.append(display_path)
            else:
                # Objects of a data set are never overwritten. If another program has used one of their names, the call
                # raises an error.
                exclusive = folder is not None
                there = await is_same(selection.storage, into, item, overwrite=overwrite and not exclusive)
            if there:
                report.kept.append(display_path)
                return False
            # Not ``report.bytes += await ...``: other tasks change the sum while this one waits.
            size = await copy_object(selection.storage, into, item, advance, exclusive=exclusive)
            report.bytes += size
            report.copied.append(display_path)
            return True

        items = [
            Item(shard.key, _target(selection, shard.key, key), None)
            for shard in selection.shards
            if shard.dataset is None
        ]
        await concurrently(one, items, tasks=parallelism)
        for dataset in selection.datasets:
            at = key if selection.kind == "data set" else _target(selection, dataset.prefix + dataset.name, key)
            await _copy_dataset(dataset, store, at, one, parallelism, alone=selection.kind == "data set")
    report.copied.sort()
    report.kept.sort()
    report.kept_by_size.sort()
    return report


def _target(selection: Selection, key: str, target: str) -> str:
    """Return the key of an object's copy: the target's key, followed by the object's path relative to the selection."""
    if selection.kind == "file":
        return target + key.rpartition("/")[2] if not target or target.endswith("/") else target
    below = selection.path[len(selection.base) :] if selection.path.startswith(selection.base) else ""
    below = below.rstrip("/") + "/" if selection.kind == "folder" and below.rstrip("/") else below.rpartition("/")[0]
    below = below if not below or below.endswith("/") else below + "/"
    name = key.removeprefix(below)
    return f"{target.rstrip('/')}/{name}" if target.rstrip("/") else name


async def _copy_dataset(
    dataset: SelectedDataset, store: Storage, at: str, one: Callable[..., Any], parallelism: int, *, alone: bool
) -> None:
    """Copy a data set. ``alone`` means that the call copies only this data set, so the caller chose its new name."""
    prefix, name = at[: at.rfind("/") + 1], at[at.rfind("/") + 1 :]
    if not name or name[0] in "_." or is_pattern(name):
        below = join(join(store.root, at), dataset.name)
        inside = f"; to copy it into that folder, use {below}" if not name else ""
        raise ArgumentValueError(
            f"the name of a target data set, which is the last part of its path, must not begin with '_' or '.'{inside}"
        )
    folder = folder_at(store, prefix)
    entries = [_renamed(entry, dataset.name, name) for entry in dataset.manifest.shards]
    pairs = list(zip(dataset.manifest.shards, entries, strict=True))
    there = await load_manifest(folder, name, path=at)
    lacking = {entry.path for entry in _missing(entries, there, at)}
    if there is None and (home := local_folder(folder_at(store, at))) is not None and alone:
        await in_thread(_refuse_folder, home.folder, join(join(store.root, at), dataset.name))
    await _heal(dataset, folder, at, [pair for pair in pairs if pair[1].path not in lacking], one, parallelism)
    carried = await in_thread(carried_from, [dataset.manifest])
    known = await in_thread(conversions_of, dataset.manifest, dataset.name)
    if there is not None and not lacking and await in_thread(_knows, there, carried):
        return
    header = whole_job_header(
        folder,
        name,
        stems=tuple(sorted({stem for entry in entries for path in entry.objects if (stem := _stem(name, path))})),
        schema=dataset.manifest.schema,
        metadata=known.metadata,
    )
    async with open_job(folder, header, path=at, mode="append") as job:
        missing = _missing(entries, job.before, at)
        lacking = {entry.path for entry in missing}

        async def shard(pair: tuple[ShardEntry, ShardEntry]) -> None:
            for item in _items(dataset.prefix, *pair):
                await one(item, job.staging_folder)

        job.fates.asked = True
        await concurrently(shard, [pair for pair in pairs if pair[1].path in lacking], tasks=parallelism)
        await job.commit(await in_thread(_committed, missing, name, job.manifest.clock), carried=carried)


def _committed(entries: list[ShardEntry], name: str, clock: CommitClock) -> list[ShardEntry]:
    """Return the copied shards' entries with new commit times, in the original order of commits. Blocks."""
    origins = {entry.path: origins_of(entry, name) for entry in entries}
    turns = sorted((each.since, entry.path, at) for entry in entries for at, each in enumerate(origins[entry.path]))
    for _, path, at in turns:
        origins[path][at] = origins[path][at]._replace(since=clock.now())
    committed = {path: max(each.since for each in some) for path, some in origins.items()}
    return [
        with_origins(replace(entry, committed=committed[entry.path]), origins[entry.path], name) for entry in entries
    ]


def _knows(there: Manifest, carried: Mapping[str, Any]) -> bool:
    """Return whether, for every source, a data set's progress and releases are no older than those in ``carried``."""
    history = there.shards.history
    return not (newer(history.progress, carried["progress"]) or newer(history.releases, carried["releases"]))


async def _heal(
    dataset: SelectedDataset,
    folder: Storage,
    at: str,
    pairs: list[tuple[ShardEntry, ShardEntry]],
    one: Callable[..., Any],
    parallelism: int,
) -> None:
    """Restore objects that are missing at the target although its manifest lists them.

    Raises:
        ConflictError: the data set was replaced during the copy; the restored objects have been deleted again.
    """
    put_back: list[ShardEntry] = []

    async def shard(pair: tuple[ShardEntry, ShardEntry]) -> None:
        copied = [await one(replace(item, listed=True), folder) for item in _items(dataset.prefix, *pair)]
        if any(copied):
            put_back.append(pair[1])

    await concurrently(shard, pairs, tasks=parallelism)
    if not put_back:
        return
    # A job that replaces the data set first commits, and then deletes the old shards. Shards that were restored after
    # that deletion are in no manifest, so this process must delete them.
    name = at.rpartition("/")[2]
    now = await load_manifest(folder, name, path=at)
    gone = [entry for entry in put_back if now is None or not now.shards.names(entry.path)]
    if gone:
        await delete_replaced(folder, name, {entry.path for entry in gone})
        raise ConflictError(f"{at}: the target data set was replaced during the copy; copy it again")


def _items(prefix: str, old: ShardEntry, entry: ShardEntry) -> list[Item]:
    """Return the objects of a shard, in the order in which they are published."""
    pairs = ((old.index, entry.index), (old.keys, entry.keys))
    sidecars = [(from_, to) for from_, to in pairs if from_ and to]
    return [
        *(Item(prefix + from_.path, to.path, from_.crc32c, from_.bytes) for from_, to in sidecars),
        Item(prefix + old.path, entry.path, old.crc32c, old.bytes),
    ]


def _refuse_folder(folder: str, inside: str) -> None:
    """Reject a new data set named like an existing folder: the caller probably meant a data set inside it. Blocks.

    Raises:
        ObjectExistsError: there is a folder with this name.
    """
    if os.path.isdir(folder):
        raise ObjectExistsError(
            f"{folder} is a folder, but the target must be a data set (folder and name); copy to {inside}"
        )


def _stem(name: str, path: str) -> str | None:
    """Return the stem of a shard's name, from the path of the shard or of its index or keys."""
    return stem_of(name, path.rpartition("/")[2].removesuffix(".index").removesuffix(".keys"))


def _missing(entries: list[ShardEntry], there: Manifest | None, at: str) -> list[ShardEntry]:
    """Return the entries missing from the data set at the target.

    Raises:
        ObjectExistsError: the target is a different data set.
    """
    have = {_identity(entry) for entry in there.shards} if there else set()
    if have - {_identity(entry) for entry in entries}:
        raise ObjectExistsError(f"{at}: another data set already has this name; choose another name")
    return [entry for entry in entries if _identity(entry) not in have]


def _renamed(entry: ShardEntry, old: str, new: str) -> ShardEntry:
    """Return the entry with all its paths changed to the data set's new name."""

    def rename(path: str) -> str:
        folder, slash, name = path.rpartition("/")
        return folder + slash + new + name[len(old) :] if name.startswith(old + "-") else path

    def renamed(sidecar: Sidecar | None) -> Sidecar | None:
        return None if sidecar is None else replace(sidecar, path=rename(sidecar.path))

    return replace(entry, path=rename(entry.path), index=renamed(entry.index), keys=renamed(entry.keys))


def _identity(entry: ShardEntry) -> tuple[str, int, int, int | None]:
    return entry.path, entry.records, entry.bytes, entry.crc32c
