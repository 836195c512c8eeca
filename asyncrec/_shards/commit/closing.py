"""Each job ends with one small object: its closing segment, or the tombstone of whoever gave it up.

Both have the same name, and are created exclusively. So exactly one of committing and abandoning wins, and only behind
a tombstone may a job's objects be deleted by another.
"""

from __future__ import annotations

import time

from asyncrec._concurrency.tasks import in_thread
from asyncrec._shards.commit.exclusive import create
from asyncrec._shards.manifest.loading import load_history, newest_checkpoint
from asyncrec._shards.manifest.names import closing_segment_key, segment_key
from asyncrec._shards.manifest.segment import MAX_SEGMENT_BYTES, Segment, format_time, parse_segment
from asyncrec.errors import ConflictError, ObjectExistsError, ObjectNotFoundError
from asyncrec.storage._base import Storage
from asyncrec.storage._url import join


async def load_closing(folder: Storage, name: str, writer: str) -> Segment | None:
    """Load what ended the job; returns `None` where it has not ended.

    Raises:
        ManifestError: it cannot be read.
    """
    key = closing_segment_key(name, writer)
    try:
        content = await folder.get(key, max_bytes=MAX_SEGMENT_BYTES)
    except ObjectNotFoundError:
        return None
    return await in_thread(lambda: parse_segment(content, name=key))


async def entomb(folder: Storage, name: str, writer: str, *, by: str) -> Segment:
    """End a job for somebody who gives it up. Returns what ended it: this tombstone, or what was there first.

    Raises:
        StorageError: whether it has ended is not known.
    """
    if (found := await load_closing(folder, name, writer)) is not None:
        return found
    tombstone = Segment(
        writer=writer, time=format_time(time.time()), closed=True, abandoned=True, extra={"abandoned_by": by}
    )
    try:
        # Not shielded: a cancelled one is settled by the next call, and whoever cleans up has a limit of its own.
        await create(folder, closing_segment_key(name, writer), tombstone.encode(), shield=False)
    except ObjectExistsError:
        found = await load_closing(folder, name, writer)
        if found is None:  # created and gone: nobody does that
            raise
        return found
    return tombstone


async def fence(folder: Storage, name: str, writer: str, sequence: int, *, by: str, since: int = 0) -> bool:
    """Take the name of a rolling shard's segment, so that nobody can commit the shard; False where it is committed.

    ``since`` is the checkpoint in which the shard was not: one that is newer may have it, and its segment be gone.
    """
    segment = Segment(writer=writer, time=format_time(time.time()), abandoned=True, extra={"abandoned_by": by})
    key = segment_key(name, writer, sequence)
    try:
        await create(folder, key, segment.encode(), shield=False)  # as above
    except ObjectExistsError:
        pass
    else:
        if await newest_checkpoint(folder, name) <= since:
            return True
    own = await in_thread((await load_history(folder, name)).added_by, writer)
    return not any(entry.path.endswith(f"-{sequence:06d}.tfrecord") for entry in own)


def abandoned_error(folder: Storage, name: str, closing: Segment) -> ConflictError:
    """Make the error for a job that finds its own tombstone."""
    by = closing.extra.get("abandoned_by")
    return ConflictError(
        f"{join(folder.root, name)}: the writer {closing.writer} was abandoned at "
        f"{closing.time}{f' by {by}' if isinstance(by, str) else ''}, so it can no longer commit anything; write "
        "the remaining records with a new writer"
    )
