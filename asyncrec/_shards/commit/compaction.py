"""`compact_manifest` merges a data set's segments into a checkpoint, and deletes segments that were covered long ago.

First, the checkpoint's data is written under a name that no other process uses. Then a small object with the
checkpoint's number is created exclusively. If the number is already taken, the compaction deletes its data. Checkpoints
therefore form a chain: each covers everything that the earlier ones cover, and the newest contains everything that was
deleted. The age of a checkpoint is measured by the store's clock, relative to another checkpoint.
docs/design/checkpoints.md describes the effects of races and crashes. `covered_objects` deletes the covered objects.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import timedelta

import anyio

from asyncrec._arguments import check_age
from asyncrec._concurrency.deadline import CLEAN_UP_SECONDS
from asyncrec._concurrency.tasks import in_thread
from asyncrec._path_log import PathLog
from asyncrec._shards.commit.covered_objects import delete_covered, delete_stale_runs
from asyncrec._shards.commit.exclusive import create
from asyncrec._shards.commit.key_runs import RunMaker
from asyncrec._shards.manifest.checkpoint import VERSION, encode_checkpoint
from asyncrec._shards.manifest.history import History
from asyncrec._shards.manifest.listed import CoveredLogs, ListedManifest, list_manifest
from asyncrec._shards.manifest.loading import (
    LEAST_GRACE,
    MOST_POINTER_BYTES,
    load_covered,
    load_listed,
    pointed_checkpoint,
    read_checkpoint,
)
from asyncrec._shards.manifest.manifest import Manifest
from asyncrec._shards.manifest.names import checkpoint_key, checkpoint_pointer_key, latest_key, new_writer_id
from asyncrec._shards.manifest.segment import format_time
from asyncrec._shards.manifest.snapshot import merged
from asyncrec.errors import (
    ArgumentValueError,
    ConflictError,
    IntegrityError,
    ObjectExistsError,
    ObjectNotFoundError,
    StorageError,
    UnsettledError,
)
from asyncrec.storage._base import Storage
from asyncrec.storage._checksums import check_sent
from asyncrec.storage._chunk_writer import ChunkWriter
from asyncrec.storage._url import join

_log = logging.getLogger("asyncrec.shards")
_path_log = PathLog("asyncrec.shards")

# A reader reads a segment within seconds of listing it. A reader that was suspended for an hour starts over.
GRACE_SECONDS = 3600.0
_ATTEMPTS = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Compaction:
    """The result of one call of `compact_manifest`.

    Attributes:
        manifest: the snapshot that this call has read.
        checkpoint: the path of the newest checkpoint in the data set's folder, or `None` if the data set has no
            checkpoint.
        covered: the number of segments that were in no checkpoint before this call merged them.
        written: whether this call has made a checkpoint; false if there was nothing new, or if another process was
            faster.
        deleted: the segments, checkpoints, runs of keys and turns of sources that this call deleted.
        latest: the path of the object with a fixed name that names the checkpoint, if such an object was requested.
    """

    manifest: Manifest
    checkpoint: str | None
    covered: int
    written: bool
    deleted: tuple[str, ...]
    latest: str | None


async def compact_manifest(
    folder: Storage,
    name: str,
    *,
    path: str,
    grace: float = GRACE_SECONDS,
    latest: bool = False,
    least: int = 0,
    most_deleted: int | None = None,
    keys: bool = True,
) -> Compaction:
    """Merge the segments that no checkpoint covers into a new one, and delete those covered ``grace`` seconds ago.

    Args:
        path: the path of the data set, for error messages.
        grace: the grace period in seconds, at least 60.
        latest: whether to write an object with a fixed name that names the newest checkpoint, for stores that cannot
            list.
        least: do nothing if fewer segments than this are not yet in a checkpoint.
        most_deleted: the maximum number of segments to delete. The next call deletes the rest.
        keys: whether to make runs of keys. If false, only the existing runs whose shards all still exist are kept.

    A call that is cancelled or fails may still have made a checkpoint, which is then valid.

    Raises:
        ObjectNotFoundError: the data set has no manifest.
        ManifestError: the manifest cannot be read.
        StorageError: the store failed.
    """
    check_grace(grace)
    loaded = await load_listed(folder, name)
    if loaded is None or loaded.history.is_empty:
        raise ObjectNotFoundError(f"{path}: the data set has no manifest; pass its path as folder and name")
    listed, base, history = loaded
    new = await loaded.count_uncovered()
    manifest = await merged(path, history)
    deleted: list[str] = []
    written = False
    due = new >= least and (bool(new) or await in_thread(_may_delete, base, listed, grace))
    if due and (made := await _write(folder, name, history, manifest, keys=keys)) is not None:
        written = True
        deleted = await delete_covered(folder, name, made, timedelta(seconds=grace), most=most_deleted)
    if due:
        listed = await list_manifest(folder, name)
    if written and listed.runs and listed.removal > manifest.removals:  # a shard removed since may make a run stale
        deleted += await clean_runs(folder, name, path=path)
        listed = await list_manifest(folder, name)
    checkpoint = None
    if listed.newest:
        maker = await pointed_checkpoint(folder, name, listed, listed.newest)
        checkpoint = checkpoint_key(name, listed.newest, maker)
        if latest:  # another call may have made this checkpoint, and may have read more than this call
            pointer = await folder.get(checkpoint_pointer_key(name, listed.newest), max_bytes=MOST_POINTER_BYTES)
            await folder.put(latest_key(name), pointer)
    return Compaction(
        manifest=manifest,
        checkpoint=checkpoint,
        covered=new if written else 0,
        written=written,
        deleted=tuple(deleted),
        latest=latest_key(name) if latest and checkpoint is not None else None,
    )


def check_grace(grace: float) -> None:
    """Raise a ValueError if the grace is too short, or longer than a century."""
    check_age(grace, "grace")
    if not grace >= LEAST_GRACE:
        raise ArgumentValueError(
            f"grace={grace}: must be at least {LEAST_GRACE:.0f} seconds, so that a reader that has just listed a "
            "segment can still read it"
        )


async def clean_runs(folder: Storage, name: str, *, path: str) -> list[str]:
    """Ensure that no run has keys of shards that were removed before this call. Return the deleted runs.

    Deleting the existing runs is not enough. Suppose process D removes a shard while a compaction C has the shard's
    keys in memory, and C writes them to a run after D has listed the runs. C therefore lists the manifest again after
    making its checkpoint, and if the log of removals has a new place, C also calls this function. Either D sees C's
    run, or C sees D's place.

    Raises:
        ConflictError: other processes keep removing shards.
        ManifestError, StorageError: as for `compact_manifest`.
    """
    for _ in range(_ATTEMPTS):
        loaded = await load_listed(folder, name)
        if loaded is None or not loaded.listed.runs:
            return []
        base, history = (each.commits["removal"].max(initial=0) for each in (loaded.base, loaded.history))
        if base == history:
            return await delete_stale_runs(folder, name, loaded.base)
        await compact_manifest(folder, name, path=path, keys=False)  # the next compaction makes new runs
    raise ConflictError(f"{path}: other processes keep removing shards; call this again")


async def compact_unasked(
    folder: Storage, name: str, *, path: str, least: int, most_deleted: int, behind: int | None = None
) -> Compaction | None:
    """Call `compact_manifest` if at least ``least`` segments are not in a checkpoint; otherwise return `None`.

    The check lists the manifest and reads the first lines of the newest checkpoint. If ``behind`` is passed and is not
    the number of the newest checkpoint, the listing is enough, because another process has just compacted the manifest.

    Raises:
        ManifestError: the manifest cannot be read.
        StorageError: the store failed, or does not allow deletions. In the second case, the checkpoint was made.
    """
    listed = await list_manifest(folder, name)
    if len(listed.segments) < least or behind not in (None, listed.newest):
        return None
    covered = CoveredLogs()
    if listed.newest:
        maker = await pointed_checkpoint(folder, name, listed, listed.newest)
        covered = await load_covered(folder, checkpoint_key(name, listed.newest, maker))
    if await in_thread(listed.count_uncovered, covered) < least:
        return None
    return await compact_manifest(folder, name, path=path, grace=GRACE_SECONDS, least=least, most_deleted=most_deleted)


def _may_delete(base: History, listed: ListedManifest, grace: float) -> bool:
    """Return whether any segments have been covered for ``grace`` seconds, according to this machine's clock."""
    if not base.checkpoint or time.time() - listed.pointers[base.checkpoint].modified.timestamp() < grace:
        return False
    return any(map(base.covered.may_go, listed.segments))


async def _write(folder: Storage, name: str, history: History, manifest: Manifest, *, keys: bool) -> History | None:
    """Write a checkpoint with its runs of keys, and take its number.

    Return `None` if another process has already taken the number.
    """
    number = history.checkpoint + 1
    key = checkpoint_key(name, number, new_writer_id())
    runs = RunMaker(folder, name, number, manifest.shards)
    won = asked = False
    try:
        history = replace(history, runs=await (runs.make() if keys else runs.clean()))
        await _write_checkpoint(
            folder, key, encode_checkpoint(history, name=name, number=number, time=format_time(time.time()))
        )
        # Deleted objects survive only in the checkpoint, so read it back before any process relies on it.
        try:
            there = await read_checkpoint(folder, key)
        except ObjectNotFoundError as error:
            raise ObjectExistsError(
                f"{folder.root}/{key}: another process was faster and deleted this object"
            ) from error
        if (there.identity, there.covered, len(there.shards), there.runs) != (
            history.identity,
            history.covered,
            len(history.shards),
            history.runs,
        ):
            raise IntegrityError(
                f"{folder.root}/{key}: the object in the store differs from the data written; run the command again"
            )
        asked = True
        # Not shielded: after a cancellation, the checkpoint either counts, or the next compaction deletes it.
        await create(folder, checkpoint_pointer_key(name, number), _pointer(key, manifest), shield=False)
        won = True
    except ObjectExistsError:
        _path_log.info(join(folder.root, name), "another process has just created checkpoint %d", number)
    except UnsettledError:
        won = True  # may have succeeded: keep the data for the next compaction to read or delete
        raise
    except BaseException as error:
        if isinstance(error, Exception) or not asked:  # else cancelled, but may still succeed
            with anyio.move_on_after(CLEAN_UP_SECONDS, shield=True):
                with suppress(StorageError):
                    await folder.delete(key)
                await runs.delete()
        raise
    if not won:
        await folder.delete(key)
        await runs.delete()
    return history if won else None


async def _write_checkpoint(folder: Storage, key: str, pieces: Iterator[bytes]) -> None:
    async with folder.open_sink(key) as sink:  # no other process uses this name
        chunks = ChunkWriter(sink)
        while piece := await in_thread(next, pieces, b""):
            await chunks.write([piece])
        await chunks.finish()
    check_sent(
        f"{folder.root}/{key}",
        sink.published,
        size=chunks.size,
        crc32c=chunks.crc32c,
        then="it does not become a checkpoint",
    )


def _pointer(key: str, manifest: Manifest) -> bytes:
    """Return the content of a pointer to a checkpoint."""
    pointer = {
        "version": VERSION,
        "checkpoint": key.rpartition("/")[2],
        "id": manifest.id,
        "shards": len(manifest.shards),
        "records": manifest.records,
    }
    return json.dumps(pointer).encode() + b"\n"
