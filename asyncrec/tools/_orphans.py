"""Find the orphans of a data set for `verify`, and adopt or delete them.

The name of an object contains the id of its job, except for plain fixed shards, whose job is found by its claim. The
job's mark exists until the job has ended (`_shards.ownership.marks`). The objects of an unfinished job belong to that
job, or to `asyncrec.recover`. The objects of an ended job may be deleted. If a user has removed the mark, only the age
of the object counts: a complete rolling shard may be adopted, and objects may be deleted after a tombstone is written.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

from asyncrec._concurrency.map import for_each
from asyncrec._concurrency.tasks import in_thread
from asyncrec._framing.compression import CompressionOptions
from asyncrec._shards.commit.covered_objects import unnamed_runs
from asyncrec._shards.commit.manifest_writer import ManifestWriter
from asyncrec._shards.journal.job_names import JobNames
from asyncrec._shards.manifest.listed import list_manifest
from asyncrec._shards.manifest.loading import load_history
from asyncrec._shards.manifest.names import claim_key, index_key, keys_key, maker_of, manifest_prefix, stem_of
from asyncrec._shards.manifest.segment import ShardEntry
from asyncrec._shards.manifest.shard_list import ShardList
from asyncrec._shards.manifest.snapshot import merged
from asyncrec._shards.ownership.census import find_jobs
from asyncrec._shards.ownership.clearing import is_another_data_set
from asyncrec._shards.ownership.end_job import end_unmarked
from asyncrec._shards.ownership.marks import find_claims
from asyncrec._shards.ownership.removals import removed_at, times_of_removals
from asyncrec._shards.ownership.unlisted import entry_of_unlisted, load_positions
from asyncrec.storage._base import ObjectInfo, Storage
from asyncrec.storage._listing import closing_listing
from asyncrec.tools._checks import ShardReport
from asyncrec.tools._report_json import json_of
from asyncrec.tools._selection import SelectedDataset

# A shard is committed long before it is this many seconds old, unless it is a fixed shard.
MIN_AGE = 3600.0
# The number of objects to look up in one call in a worker thread. Each look-up takes about 30 microseconds.
_LOOKED_AT_ONCE = 1000
# The number of shards to read at once when adopting shards.
_READ_AT_ONCE = 4

_SUFFIX = re.compile(r"\.(index|keys|progress)\Z")

_Found = tuple[ObjectInfo, str, str]  # the object, its kind, and the name of its shard


@dataclass(frozen=True, slots=True, kw_only=True)
class Orphan:
    """An object that is in no manifest.

    Attributes:
        path: the display path.
        key: the key in the data set's folder.
        kind: ``"shard"``; ``"index"`` or ``"keys"`` if there is no such shard; ``"positions"`` for the positions of a
            shard; or ``"run"`` for a run of keys that no checkpoint names.
        refused: why the object must not be adopted; `None` for a shard that may be adopted if it is complete.
        owner: the id of the object's job if that job has not ended; such an object is left to `asyncrec.recover`.
        recent: whether the object is younger than the minimum age.
    """

    path: str
    key: str
    kind: str
    size: int
    modified: datetime
    refused: str | None
    owner: str | None
    recent: bool

    @property
    def is_free(self) -> bool:
        """Whether the object belongs to no unfinished job, and is old enough."""
        return self.owner is None and not self.recent

    def to_json(self) -> dict[str, Any]:
        return json_of(self, "path kind bytes modified refused owner recent", bytes=self.size)


_KINDS = (
    ("", "", "shard"),
    ("_index/", ".index", "index"),
    ("_keys/", ".keys", "keys"),
    ("_progress/", ".progress", "positions"),
)


async def find_orphans(dataset: SelectedDataset, base: str, *, min_age: float = MIN_AGE) -> list[Orphan]:
    """Return the objects in the data set's folder that are named like objects of the data set but are in no manifest.

    Objects replaced less than ``min_age`` seconds ago are not orphans, because `compact` keeps them for active readers.
    """
    return [
        *await _without_replaced(dataset, await find_unlisted(dataset, base, min_age=min_age), min_age),
        *await _find_runs(dataset, base, min_age=min_age),
    ]


async def _without_replaced(dataset: SelectedDataset, orphans: list[Orphan], min_age: float) -> list[Orphan]:
    history = dataset.manifest.shards.history
    if not any(await in_thread(lambda: [history.rows_naming(orphan.key) for orphan in orphans])):
        return orphans
    times = await times_of_removals(dataset.folder, dataset.name, history)
    last = datetime.now(UTC).timestamp() - min_age
    return await in_thread(lambda: [each for each in orphans if removed_at(history, each.key, times) <= last])


async def _find_runs(dataset: SelectedDataset, base: str, *, min_age: float) -> list[Orphan]:
    """Return the runs of keys that no checkpoint names. A checkpoint that names a recent run may be published soon."""
    prefix = manifest_prefix(dataset.name)
    named = {run.name for run in dataset.manifest.shards.runs}
    there = [info.key[len(prefix) :] async for info in dataset.folder.list_objects(prefix + "~keys-")]
    if named.issuperset(there):  # the usual case, in which the manifest need not be listed again
        return []
    listed = await list_manifest(dataset.folder, dataset.name)
    youngest = datetime.now(UTC) - timedelta(seconds=min_age)
    return [
        Orphan(
            path=base + dataset.prefix + prefix + name,
            key=prefix + name,
            kind="run",
            size=listed.runs[name].size,
            modified=listed.runs[name].modified,
            refused="no checkpoint refers to this file",
            owner=None,
            recent=listed.runs[name].modified > youngest,
        )
        for name in await unnamed_runs(dataset.folder, dataset.name, listed)
    ]


async def find_unlisted(dataset: SelectedDataset, base: str, *, min_age: float) -> list[Orphan]:
    """Return the shards, indexes, keys and positions that are in no manifest."""
    folder, name = dataset.folder, dataset.name
    listed = dataset.manifest.shards
    shards: set[str] = set()
    found: list[_Found] = []

    def look(infos: list[ObjectInfo], prefix: str, suffix: str, kind: str) -> None:
        for info in infos:
            shard = info.key[len(prefix) : len(info.key) - len(suffix)]
            if not info.key.endswith(suffix) or maker_of(name, shard) is None or listed.names(info.key):
                continue
            if kind == "shard":
                shards.add(shard)
            elif kind != "positions" and (shard in shards or listed.names(shard)):
                continue  # this sidecar is handled with its shard
            found.append((info, kind, shard))

    for prefix, suffix, kind in _KINDS:
        waiting: list[ObjectInfo] = []
        async with closing_listing(folder.list_objects(f"{prefix}{name}-")) as listing:
            async for info in listing:
                waiting.append(info)
                if len(waiting) == _LOOKED_AT_ONCE:
                    await in_thread(look, waiting, prefix, suffix, kind)
                    waiting = []
        await in_thread(look, waiting, prefix, suffix, kind)
    if not found:
        return []
    # The order matters. If a job has no mark by now, the history has all its commits, even those after the manifest was
    # read and the folder listed.
    owners = await _owners(folder, name)
    history = await load_history(folder, name)
    found = await in_thread(_unlisted, found, (await merged(name, history)).shards)
    known = set(history.writers)
    ended = history.ended
    youngest = datetime.now(UTC) - timedelta(seconds=min_age)
    orphans = []
    others: dict[str, bool] = {}
    for info, kind, shard in found:
        maker, rolling = maker_of(name, shard) or (None, False)
        writer = None if maker is None else maker.partition(".")[0] if maker not in known else maker
        owner = owners.get(stem_of(name, shard) or "")
        if maker is not None and not rolling:
            if maker not in others:
                others[maker] = await is_another_data_set(folder, f"{name}-{maker}")
            if others[maker] or (owner is None and writer not in known):
                continue  # a plain fixed shard of another data set, whose longer name begins with this name
        if kind != "shard":
            refused: str | None = "its shard is missing"
            if history.lists(shard):
                refused = "its shard is committed"
            elif shard in shards:
                refused = "it belongs to an orphaned shard"
        elif history.lists(shard) or history.removes(shard):
            refused = "the data set replaced it"
        elif not rolling:
            refused = "it belongs to shards that are published together or not at all"
        else:
            refused = "its writer ended without committing it" if writer in ended else None
        orphans.append(
            Orphan(
                path=base + dataset.prefix + info.key,
                key=info.key,
                kind=kind,
                size=info.size,
                modified=info.modified,
                refused=f"its writer {owner} has not ended; use 'asyncrec recover', with --dead if its machine is gone"
                if owner is not None
                else refused,
                owner=owner,
                recent=info.modified > youngest,
            )
        )
    return orphans


async def commit_unlisted(dataset: SelectedDataset, orphans: Sequence[tuple[Orphan, ShardReport]]) -> None:
    """Commit complete rolling shards to the data set on behalf of their writers.

    Raises:
        ConflictError: the writer of a shard has committed another shard in the meantime, or was abandoned.
        StorageError: the manifest could not be written.
    """
    folder, name = dataset.folder, dataset.name
    by_maker: dict[str, list[tuple[Orphan, ShardReport]]] = {}
    for each in orphans:
        maker, _ = maker_of(name, each[0].key) or (None, False)
        assert maker is not None, "only shards of rolling writers can be adopted"
        by_maker.setdefault(maker, []).append(each)
    for maker, some in by_maker.items():
        manifest = ManifestWriter(folder, name, maker, after=dataset.manifest, last=None)
        entry_of = partial(_entry_of, folder, JobNames(name, maker, None), manifest)
        entries = await for_each(entry_of, some, tasks=_READ_AT_ONCE)
        await for_each(manifest.commit, entries)  # a single segment lists all shards that are ready


async def _entry_of(
    folder: Storage, names: JobNames, manifest: ManifestWriter, found: tuple[Orphan, ShardReport]
) -> ShardEntry:
    orphan, report = found
    compression = CompressionOptions(type=report.compression)  # type: ignore[arg-type]  # one of three
    now = manifest.clock.now()
    entry = await entry_of_unlisted(folder, names, orphan.key, compression=compression, now=now)
    if positions := await load_positions(folder, names, entry):
        manifest.progress.note(entry.path, positions)
    return entry


async def remove(dataset: SelectedDataset, orphans: Iterable[Orphan]) -> list[Orphan]:
    """Delete the orphans that belong to no job, with the index and the keys of each shard. Return the deleted orphans.

    First, the writers of the objects are ended, so that they cannot commit anything more. Their earlier commits remain.

    The claims of ended jobs are also deleted, except claims on plain names, because an abandoned job may still
    be alive and publish a shard with such a name.
    """
    folder, name = dataset.folder, dataset.name
    free = [orphan for orphan in orphans if orphan.is_free and orphan.kind != "run"]
    runs = [orphan for orphan in orphans if orphan.is_free and orphan.kind == "run"]
    shards = {orphan.key: _SUFFIX.sub("", orphan.key.rpartition("/")[2]) for orphan in free}
    makers = {shard: maker_of(name, shard) or (None, False) for shard in shards.values()}
    await end_unmarked(folder, name, {maker for maker, _ in makers.values() if maker is not None})
    history = await load_history(folder, name)
    listed = (await merged(name, history)).shards
    adopted = await in_thread(lambda: set(filter(listed.names, makers)))
    removed = []
    if runs:
        unnamed = await unnamed_runs(folder, name, await list_manifest(folder, name))
        for orphan in runs:
            if orphan.key.rpartition("/")[2] in unnamed:
                await folder.delete(orphan.key)
                removed.append(orphan)
    for orphan in free:
        if shards[orphan.key] in adopted and orphan.kind != "positions":
            continue
        if orphan.kind == "shard":
            await folder.delete(index_key(orphan.key))
            await folder.delete(keys_key(orphan.key))
        await folder.delete(orphan.key)
        removed.append(orphan)
    for claim in await find_claims(folder, name):
        if claim.writer in history.ended and not claim.plain:
            await folder.delete(claim_key(name, claim.number))
    return removed


def _unlisted(found: list[_Found], listed: ShardList) -> list[_Found]:
    """Return the objects in ``found`` that the current manifest does not list. Blocks."""
    return [
        each
        for each in found
        if not listed.names(each[0].key) and (each[1] == "positions" or not listed.names(each[2]))
    ]


async def _owners(folder: Storage, name: str) -> dict[str, str]:
    """Return the id of each job that has not ended, by the stems of its shards' names."""
    headers = [job.header for job in await find_jobs(folder, name)]
    owners = {stem: header.writer for header in headers for stem in (*header.stems, header.writer)}
    plain = {claim.writer for claim in await find_claims(folder, name) if claim.plain}
    for header in headers:
        if header.num_shards is not None and (header.writer in plain or not header.since):
            owners[f"of-{header.num_shards:05d}"] = header.writer
    return owners
