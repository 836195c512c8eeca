"""Delete covered objects: segments, older checkpoints, and runs of keys that no checkpoint names.

An object is deleted only if the newest checkpoint covers it. Segments, checkpoints and turns of sources are kept for
the grace period, and the last turn of each source is kept forever. Runs with keys of removed shards are deleted
immediately, because no trace of a deleted record's key may remain.
"""

from __future__ import annotations

import logging
from collections.abc import Collection
from contextlib import suppress
from datetime import datetime, timedelta

from asyncrec._concurrency.map import for_each
from asyncrec._concurrency.tasks import in_thread
from asyncrec._path_log import PathLog
from asyncrec._shards.manifest.history import History
from asyncrec._shards.manifest.key_run import run_number
from asyncrec._shards.manifest.listed import CoveredLogs, ListedManifest, list_manifest
from asyncrec._shards.manifest.loading import load_covered, load_runs, pointed_checkpoint, read_pointer
from asyncrec._shards.manifest.names import checkpoint_key, checkpoint_pointer_key, latest_key, manifest_prefix
from asyncrec.errors import ManifestError, ObjectNotFoundError
from asyncrec.storage._base import Storage
from asyncrec.storage._url import join

_log = logging.getLogger("asyncrec.shards")
_path_log = PathLog("asyncrec.shards")


async def delete_stale_runs(folder: Storage, name: str, newest: History) -> list[str]:
    """Delete the runs of keys that the newest checkpoint, read as ``newest``, does not name. Return the deleted runs.

    Older checkpoints may name these runs, but can be opened without them. Runs that were made for a later checkpoint
    are kept.
    """
    listed = await list_manifest(folder, name)
    named = {run.name for run in newest.runs}
    stale = [each for each in listed.runs if each not in named and (run_number(each) or 0) <= newest.checkpoint]
    keys = [manifest_prefix(name) + each for each in stale]
    await for_each(folder.delete, keys)
    return keys


async def delete_covered(
    folder: Storage, name: str, merged: History, grace: timedelta, *, most: int | None = None
) -> list[str]:
    """Delete the objects that were covered at least ``grace`` before the checkpoint of ``merged`` was made.

    Delete at most ``most`` small objects, and only objects that this checkpoint also covers. Return the deleted
    objects.
    """
    number = merged.checkpoint + 1
    listed = await list_manifest(folder, name)
    if number not in listed.pointers:  # the listing is stale
        return []
    last = listed.pointers[number].modified - grace
    keys: list[str] = []
    old = [each for each, info in listed.pointers.items() if each < number and info.modified <= last]
    with suppress(ObjectNotFoundError):  # another process is deleting the same objects
        if old:
            maker = await pointed_checkpoint(folder, name, listed, max(old))
            covered = await load_covered(folder, checkpoint_key(name, max(old), maker))
            keys += await in_thread(_may_go, manifest_prefix(name), listed, covered, merged.covered)
        keys = [*keys, *(manifest_prefix(name) + each for each in listed.old_turns(last))][:most]
        await for_each(folder.delete, keys)
        checkpoints = await _delete_checkpoints(folder, name, listed, last)
        keys += checkpoints
        unnamed = await unnamed_runs(folder, name, listed, made=merged, gone=checkpoints)
        # The next checkpoint may still name runs that were made for it. If a process failed to get its number, no
        # checkpoint names its runs.
        runs = [manifest_prefix(name) + each for each in unnamed if (run_number(each) or 0) <= listed.newest]
        await for_each(folder.delete, runs)
        keys += runs
    return keys


async def unnamed_runs(
    folder: Storage, name: str, listed: ListedManifest, *, made: History | None = None, gone: Collection[str] = ()
) -> list[str]:
    """Return the listed runs of keys that no checkpoint names.

    Args:
        made: the history from which the newest checkpoint was made, including the runs that this checkpoint names.
        gone: listed checkpoints that have been deleted since the listing.

    Raises:
        ObjectNotFoundError: another process has deleted a listed checkpoint.
    """
    if not listed.runs:
        return []
    named = set() if made is None else {run.name for run in made.runs}
    for number, makers in listed.checkpoints.items():
        for maker in makers if made is None or number != made.checkpoint + 1 else ():
            if (key := checkpoint_key(name, number, maker)) not in gone:
                try:
                    named.update(run.name for run in await load_runs(folder, key))
                except ManifestError as error:
                    path = join(folder.root, name)
                    _path_log.warning(path, "%s; this checkpoint may use any run of keys, so no run is deleted", error)
                    return []
    return [each for each in listed.runs if each not in named]


def _may_go(prefix: str, listed: ListedManifest, long: CoveredLogs, now: CoveredLogs) -> list[str]:
    return [prefix + each for each in listed.segments if each in long and now.may_go(each)]


async def _delete_checkpoints(folder: Storage, name: str, listed: ListedManifest, last: datetime) -> list[str]:
    try:
        pinned = await read_pointer(folder, latest_key(name))
    except ObjectNotFoundError:
        pinned = None
    except ManifestError as error:
        _log.warning(
            "%s/%s; it may name any checkpoint, so no checkpoint is deleted until `asyncrec compact --latest` "
            "writes it again",
            folder.root,
            error,
            extra={"path": join(folder.root, name)},
        )
        return []
    keys = []
    for number in sorted({*listed.pointers, *listed.checkpoints}):
        if number > listed.newest:
            break  # the process that made this checkpoint may still get its number
        makers = listed.checkpoints.get(number, {})
        winner = (
            await pointed_checkpoint(folder, name, listed, number) if number in listed.pointers and makers else None
        )
        successor = min((each for each in listed.pointers if each > number), default=None)
        over = successor is not None and listed.pointers[successor].modified <= last
        stays = winner is not None and (not over or pinned == (number, winner))
        keys += [checkpoint_key(name, number, each) for each in makers if each != winner or not stays]
        if number in listed.pointers and over and not stays:
            keys.append(checkpoint_pointer_key(name, number))
    for key in keys:
        await folder.delete(key)
    return keys
