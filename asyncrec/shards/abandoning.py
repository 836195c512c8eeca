"""Giving up a job: its tombstone first, then what it made.

Behind the tombstone nothing of the job can be committed any more, so that its objects are nobody's: they may be
deleted. Of a rolling writer each shard that is in no commit is fenced first, by a tombstone under the name of the
segment that would have committed it; what it had committed stays.
"""

from __future__ import annotations

import logging
import time
from datetime import UTC, datetime

from asyncrec.errors import ObjectExistsError
from asyncrec.shards.closing import entomb, load_closing
from asyncrec.shards.exclusive import create
from asyncrec.shards.journal import find_notes
from asyncrec.shards.life import this_host
from asyncrec.shards.naming import (
    index_key,
    jobs_prefix,
    keys_key,
    manifest_prefix,
    segment_key,
    sequence_of,
    stem_of,
)
from asyncrec.shards.note import Note
from asyncrec.shards.segment import Segment, format_time
from asyncrec.shards.snapshot import load_segments
from asyncrec.storage.base import ObjectInfo, Storage
from asyncrec.storage.local import local_folder
from asyncrec.tasks import in_thread

__all__ = ["abandon", "delete_unlisted", "is_another_data_set"]

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
    own = await _own_stems(folder, note, plain=plain)

    async def is_own(info: ObjectInfo, shard: str) -> bool:
        stem = stem_of(name, shard)
        if stem is None or info.key in listed:
            return False
        if stem.partition(".")[0] != note.writer and stem in note.stems:
            # Under names that a copy found: what is older than the copy was there before.
            return stem in own and note.age >= (datetime.now(UTC) - info.modified).total_seconds()
        return stem in own or stem.partition(".")[0] in own

    async for info in folder.list_objects(f"{name}-"):
        if not await is_own(info, info.key):
            continue
        rolling = note.kind == "rolling" and info.key.startswith(f"{name}-{note.writer}-")
        if rolling and not fenced and not await _fence(folder, note, sequence_of(info.key)):
            listed.update((info.key, index_key(info.key), keys_key(info.key)))
            continue
        await folder.delete(info.key)
    for prefix, suffix in (("_index/", ".index"), ("_keys/", ".keys")):
        async for info in folder.list_objects(f"{prefix}{name}-"):
            if info.key.endswith(suffix) and await is_own(info, info.key[len(prefix) : -len(suffix)]):
                await folder.delete(info.key)


async def is_another_data_set(folder: Storage, name: str) -> bool:
    """Whether somebody has made, or is making, a data set of this name.

    ``train-v2-00000-of-00002.tfrecord`` is a shard of ``train`` by the writer ``v2``, or a plain one of ``train-v2``.
    """
    for prefix in (manifest_prefix(name), jobs_prefix(name)):
        if [info.key async for info in folder.list_objects(prefix)]:
            return True
    home = local_folder(folder)
    return home is not None and any(note.name == name for _, note in await in_thread(find_notes, home))


async def _own_stems(folder: Storage, note: Note, *, plain: bool) -> set[str]:
    """What stands in the names of what the job makes, but for what may be another data set's."""
    own = set()
    for stem in (note.writer, *note.stems):
        fixed = note.num_shards is not None or stem in note.stems
        if not (fixed and await is_another_data_set(folder, f"{note.name}-{stem}")):
            own.add(stem)
    if plain and note.num_shards is not None:
        own.add(f"of-{note.num_shards:05d}")
    return own


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
