"""`forget_source` forgets the position up to which a source was stored, so that its positions may start again.

*The problem.* A topic is deleted, and created again under its old name. Position 0 is now a new message, but the data
set counts it as stored. *The naive way* is to delete the source's position from the commits. But commits are never
changed, and a live writer states its position in the next one.

*The solution:* this call becomes an owner like any other (`asyncrec._shards.ownership.sources`). It ends the last
owner, wins the next turn, and states the position -1 in the only segment of its log, which ends the log. It makes no
other object, and so needs no mark. If it dies after its turn, the next owner finds neither a mark nor an end, and ends
it with a tombstone.
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

    Call this if a topic was deleted and created again under its old name, so that its positions start again with 0. The
    stored records stay. If a writer on a store has the source, its log is ended, and it goes on with its other sources.
    The position that was stored is returned.

    Args:
        path: the data set's folder and name.
        source: the name that writers pass as ``source=``.

    Raises:
        TypeError, ValueError: ``source`` is not a valid name of a source.
        ObjectNotFoundError: the data set does not exist, or has no position of the source.
        ConflictError: a writer that has the source cannot be ended from here; the message gives the reason. Or a writer
            took the source at the same moment.
        ManifestError: the manifest cannot be read.
        StorageError: it is unknown whether the source was forgotten; call it again.
    """
    check_source(source)
    async with dataset_at(path, storage=storage, storage_options=storage_options) as (folder, name):
        return await _forget(folder, name, source, path=redact(fspath(path)))


async def _forget(folder: Storage, name: str, source: str, *, path: str) -> int:
    known = await load_listed(folder, name)
    if known is None or known.history.progress.get(source, NOTHING)[1] < 0:
        raise ObjectNotFoundError(f"{path}: nothing of the source {source!r} is stored, so there is nothing to forget")
    writer = new_writer_id()
    taken = await take_turn(folder, name, writer, source, known=known)
    assert taken.known is not None, "something of the source is stored"
    clock = CommitClock(await merged(path, taken.known.history))
    end = Segment(writer=writer, time=clock.now(), closed=True, progress={source: (taken.turn, -1)})
    try:
        await create(folder, segment_key(name, writer, 1), end.encode(), shield=False)
    except ObjectExistsError as error:
        raise ConflictError(
            f"{path}: another process took the source {source!r} in the same moment; stop the writers that use the "
            "source, and call this again"
        ) from error
    return taken.position
