"""`forget_source` resets the position up to which a source was stored, so that its positions may restart.

Suppose that a topic is deleted and created again under its old name. Position 0 is now a new message, but the data set
considers it stored. The position cannot be deleted from the commits, because commits are never changed, and a live
writer would record its position again in its next commit.

Therefore, this call becomes the owner of the source as a writer would (`asyncrec._shards.ownership.sources`). It ends
the last owner's log, wins the next turn, and records the position -1 in the only segment of its own log, which also
ends that log. It creates no other object, so it needs no mark. If the process dies after winning the turn, the next
owner finds neither a mark nor the end of the log, and ends the log with a tombstone.
"""

from __future__ import annotations

from os import PathLike, fspath
from typing import Any

from asyncrec._shards.commit.exclusive import create
from asyncrec._shards.commit.shard import CommitClock
from asyncrec._shards.manifest.loading import load_listed
from asyncrec._shards.manifest.names import new_writer_id, segment_key
from asyncrec._shards.manifest.segment import Segment
from asyncrec._shards.manifest.snapshot import dataset_at, merged
from asyncrec._shards.ownership.sources import NOTHING, check_source, take_turn
from asyncrec.errors import ConflictError, ObjectExistsError, ObjectNotFoundError
from asyncrec.storage._base import Storage
from asyncrec.storage._url import redact


async def forget_source(
    path: str | PathLike[str],
    source: str,
    *,
    storage: Storage | None = None,
    storage_options: dict[str, Any] | None = None,
) -> int:
    """Forget the position of a source, so that the next writer accepts its records from the first position.

    Call this function if a topic was deleted and created again under its old name, so its positions restart at 0. The
    stored records are kept. If a writer on a store owns the source, the writer's log is ended, and the writer continues
    with its other sources. Return the position that was stored.

    Args:
        path: the data set's folder and name.
        source: the name that writers pass as ``source=``.

    Raises:
        TypeError, ValueError: ``source`` is not a valid name of a source.
        ObjectNotFoundError: the data set does not exist, or has no position of the source.
        ConflictError: the log of the writer that owns the source cannot be ended by this process, for the reason in the
            message; or another process won the turn at the same time.
        ManifestError: the manifest cannot be read.
        StorageError: it is unknown whether the source was forgotten. Call the function again.
    """
    check_source(source)
    async with dataset_at(path, storage=storage, storage_options=storage_options) as (folder, name):
        return await _forget(folder, name, source, path=redact(fspath(path)))


async def _forget(folder: Storage, name: str, source: str, *, path: str) -> int:
    known = await load_listed(folder, name)
    if known is None or known.history.progress.get(source, NOTHING)[1] < 0:
        raise ObjectNotFoundError(f"{path}: no record of the source {source!r} is stored; there is nothing to forget")
    writer = new_writer_id()
    taken = await take_turn(folder, name, writer, source, known=known)
    assert taken.known is not None, "the data set has a manifest"
    clock = CommitClock(await merged(path, taken.known.history))
    end = Segment(writer=writer, time=clock.now(), closed=True, progress={source: (taken.turn, -1)})
    try:
        await create(folder, segment_key(name, writer, 1), end.encode(), shield=False)
    except ObjectExistsError as error:
        raise ConflictError(
            f"{path}: another process took the source {source!r} at the same moment; stop the writers that use the "
            "source, and call this again"
        ) from error
    return taken.position
