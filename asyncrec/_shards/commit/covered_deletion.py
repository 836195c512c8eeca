"""`delete_covered` deletes segments that were merged long enough ago, and checkpoints that are nobody's any more.

Nothing goes that decides something by its name: see `CoveredNames.may_go`. Of the checkpoints of one number all but the
one that has it can never be read; the one that has it goes when it has had a successor for long enough. How long that
is, the store says: times of two of its objects are compared, and no clock of ours.
"""

from __future__ import annotations

import logging
from contextlib import suppress
from datetime import datetime, timedelta

from asyncrec._concurrency.map import for_each
from asyncrec._concurrency.tasks import in_thread
from asyncrec._shards.manifest.covered import CoveredNames
from asyncrec._shards.manifest.history import History
from asyncrec._shards.manifest.loading import (
    ListedManifest,
    list_manifest,
    load_covered,
    pointed_checkpoint,
    read_pointer,
)
from asyncrec._shards.manifest.names import checkpoint_key, checkpoint_pointer_key, latest_key, manifest_prefix
from asyncrec.errors import ManifestError, ObjectNotFoundError
from asyncrec.storage._base import Storage
from asyncrec.storage._url import join

_log = logging.getLogger("asyncrec.shards")


async def delete_covered(folder: Storage, name: str, merged: History, grace: timedelta) -> list[str]:
    """Delete what was covered ``grace`` before a checkpoint was made of ``merged``. Returns what was deleted.

    Nothing goes that this checkpoint does not cover itself.
    """
    number = merged.checkpoint + 1
    listed = await list_manifest(folder, name)
    if number not in listed.pointers:  # a list that is late
        return []
    last = listed.pointers[number].modified - grace
    keys: list[str] = []
    old = [each for each, info in listed.pointers.items() if each < number and info.modified <= last]
    with suppress(ObjectNotFoundError):  # another one deletes the same
        if old:
            maker = await pointed_checkpoint(folder, name, listed, max(old))
            covered = await load_covered(folder, checkpoint_key(name, max(old), maker))
            keys += await in_thread(_may_go, manifest_prefix(name), listed, covered, merged.covered)
        await for_each(folder.delete, keys)
        keys += await _delete_checkpoints(folder, name, listed, last)
    return keys


def _may_go(prefix: str, listed: ListedManifest, long: CoveredNames, now: CoveredNames) -> list[str]:
    return [prefix + each for each in listed.segments if long.may_go(each) and now.may_go(each)]


async def _delete_checkpoints(folder: Storage, name: str, listed: ListedManifest, last: datetime) -> list[str]:
    try:
        pinned = await read_pointer(folder, latest_key(name))
    except ObjectNotFoundError:
        pinned = None
    except ManifestError as error:
        _log.warning(
            "%s/%s; any checkpoint may be the one, so none is deleted until `asyncrec compact --manifest --latest` "
            "writes it again",
            folder.root,
            error,
            extra={"path": join(folder.root, name)},
        )
        return []
    keys = []
    for number in sorted({*listed.pointers, *listed.columns}):
        if number > listed.newest:
            break  # who made it may win yet
        makers = listed.columns.get(number, {})
        winner = (
            await pointed_checkpoint(folder, name, listed, number) if number in listed.pointers and makers else None
        )
        successor = min((each for each in listed.pointers if each > number), default=None)
        over = successor is not None and listed.pointers[successor].modified <= last
        stays = winner is not None and (not over or pinned == (number, winner))
        keys += [checkpoint_key(name, number, each) for each in makers if each != winner or not stays]
        if number in listed.pointers and over and not stays:
            keys.append(checkpoint_pointer_key(name, number))
    for key in keys:  # in this order: a pointer without a checkpoint is found again, and not the other way round
        await folder.delete(key)
    return keys
