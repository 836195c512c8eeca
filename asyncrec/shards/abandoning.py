"""Giving up a job: its tombstone first, then what it made.

Behind the tombstone nothing of the job can be committed any more, so that its objects are nobody's: they may be
deleted. Of a rolling writer each shard that is in no commit is fenced first, by a tombstone under the name of the
segment that would have committed it; what it had committed stays.
"""

from __future__ import annotations

import logging
import time

from asyncrec.errors import ObjectExistsError
from asyncrec.shards.closing import entomb, load_closing
from asyncrec.shards.exclusive import create
from asyncrec.shards.life import this_host
from asyncrec.shards.naming import index_key, keys_key, segment_key, sequence_of, stem_of
from asyncrec.shards.note import Note
from asyncrec.shards.segment import Segment, format_time
from asyncrec.shards.snapshot import load_segments
from asyncrec.storage.base import Storage

__all__ = ["abandon", "delete_unlisted"]

_log = logging.getLogger("asyncrec.shards")


async def abandon(folder: Storage, note: Note, *, plain: bool, keep: bool = False) -> bool:
    """Give up a job, and delete what it made and did not commit; False where it had ended well, and nothing was done.

    Args:
        plain: fixed shards without a maker in their names are its own, by its claim.
        keep: what it made stays, for a copy that goes on with it.

    Cancelled, or after an error, the next call goes on.

    Raises:
        StorageError, ManifestError.
    """
    closing = await entomb(folder, note.name, note.writer, by=this_host())
    if not closing.abandoned:
        return False
    if not keep:
        await delete_unlisted(folder, note, plain=plain)
    _log.info("%s/%s: the writer %s was given up", folder.root, note.name, note.writer)
    return True


async def delete_unlisted(folder: Storage, note: Note, *, plain: bool) -> None:
    """Delete the objects of a job that has ended and that no commit names."""
    name = note.name
    segments = await load_segments(folder, name)
    listed = {key for segment in segments for entry in segment.add for key in entry.objects}
    closing = await load_closing(folder, name, note.writer)
    fenced = closing is not None and not closing.abandoned  # closed well, it commits nothing more
    stems = {note.writer, *note.stems}
    if plain and note.num_shards is not None:
        stems.add(f"of-{note.num_shards:05d}")

    def is_own(shard: str) -> bool:
        stem = stem_of(name, shard)
        return stem is not None and (stem in stems or stem.partition(".")[0] == note.writer)

    shards = [info.key async for info in folder.list_objects(f"{name}-") if is_own(info.key)]
    for shard in shards:
        if shard in listed:
            continue
        rolling = note.kind == "rolling" and shard.startswith(f"{name}-{note.writer}-")
        if rolling and not fenced and not await _fence(folder, note, sequence_of(shard)):
            listed.add(shard)
            for beside in (index_key(shard), keys_key(shard)):
                listed.add(beside)
            continue
        await folder.delete(shard)
    for prefix, suffix in (("_index/", ".index"), ("_keys/", ".keys")):
        async for info in folder.list_objects(f"{prefix}{name}-"):
            shard = info.key[len(prefix) : -len(suffix)]
            if info.key.endswith(suffix) and info.key not in listed and is_own(shard):
                await folder.delete(info.key)


async def _fence(folder: Storage, note: Note, sequence: int) -> bool:
    """Take a rolling shard's segment, so that nobody commits it; False where it is committed."""
    segment = Segment(writer=note.writer, time=format_time(time.time()), extra={"abandoned_by": this_host()})
    key = segment_key(note.name, note.writer, sequence)
    try:
        await create(folder, key, segment.encode())
    except ObjectExistsError:
        segments = await load_segments(folder, note.name)
        own = [each for each in segments if each.writer == note.writer]
        return not any(entry.path.endswith(f"-{sequence:06d}.tfrecord") for each in own for entry in each.add)
    return True
