"""Read and end writers' logs. A log's segments are numbered from 1, and its last segment ends it.

Suppose writer A is suspended for an hour in the middle of a commit. Process B considers A dead, and wants to delete A's
uncommitted objects. If B only checked that A had not committed, A could resume after the check, and its commit would
name a deleted shard. The log's next number therefore decides: A creates it exclusively for its commit, B creates it for
a tombstone, and exactly one of them succeeds. B deletes objects only if it has succeeded, because then A can commit
nothing more: its next number is taken.

B must know the next number. Segments that a checkpoint covers may be deleted, but the last segment of a log never is,
so a listing shows it. But B's listing may be an hour old: A may have continued since then, and the number that B
creates may already have been used, covered and deleted. B therefore lists the log again after creating its tombstone,
which counts only if no segment follows it.
"""

from __future__ import annotations

import time

from asyncrec._concurrency.tasks import in_thread
from asyncrec._shards.commit.exclusive import create
from asyncrec._shards.journal.home import home_of
from asyncrec._shards.manifest.names import manifest_prefix, segment_key, segment_of
from asyncrec._shards.manifest.segment import MAX_SEGMENT_BYTES, Segment, format_time, parse_segment
from asyncrec.errors import ConflictError, ManifestError, ObjectExistsError, ObjectNotFoundError
from asyncrec.storage._base import Storage
from asyncrec.storage._url import join

# The maximum number of attempts: enough to end even the fastest writer between two of its commits.
_ATTEMPTS = 100


async def load_last(folder: Storage, name: str, writer: str) -> tuple[int, Segment | None]:
    """Load the last segment of a log. Return its number and the segment, or 0 and `None` if the log has no segment.

    Raises:
        ManifestError: the segment cannot be read.
    """
    for _ in range(_ATTEMPTS):
        number = await _last_listed(folder, name, writer)
        last = await _load(folder, name, writer, number) if number else None
        if number and last is None:
            continue  # the listing is stale: a checkpoint covers the segment, so a later segment exists
        # A listing may be stale, but a read is not.
        while not (last is not None and last.closed) and (more := await _load(folder, name, writer, number + 1)):
            number, last = number + 1, more
        return number, last
    raise ManifestError(f"{folder.root}/{segment_key(name, writer, number)}: the store lists it but cannot find it")


async def load_closing(folder: Storage, name: str, writer: str) -> Segment | None:
    """Load the segment that ended the job; return `None` if the job has not ended.

    Raises:
        ManifestError: the segment cannot be read.
    """
    _, last = await load_last(folder, name, writer)
    return last if last is not None and last.closed else None


async def entomb(folder: Storage, name: str, writer: str, *, by: str) -> Segment:
    """End a job with a tombstone, unless it has already ended. Return the segment that ended it.

    Raises:
        ConflictError: the job commits so fast that it could not be ended.
        StorageError: it is unknown whether the job has ended.
    """
    for _ in range(_ATTEMPTS):
        number, last = await load_last(folder, name, writer)
        if last is not None and last.closed:
            return last
        # Without this, a power failure could undo the writer's commits but keep the tombstone that follows them.
        await in_thread(home_of(folder).sync, name)
        tombstone = Segment(
            writer=writer, time=format_time(time.time()), closed=True, abandoned=True, extra={"abandoned_by": by}
        )
        try:
            # Not shielded: after a cancellation, the next call finds the outcome. Each clean-up has its own time limit.
            await create(folder, segment_key(name, writer, number + 1), tombstone.encode(), shield=False)
        except ObjectExistsError:
            continue
        if await _last_listed(folder, name, writer) <= number + 1:
            return tombstone
    raise ConflictError(f"{join(folder.root, name)}: the writer {writer} is committing too fast to be ended; stop it")


def abandoned_error(folder: Storage, name: str, closing: Segment) -> ConflictError:
    """Return the error for a job that finds its own log ended by a tombstone."""
    by = closing.extra.get("abandoned_by")
    return ConflictError(
        f"{join(folder.root, name)}: the writer {closing.writer} was abandoned at "
        f"{closing.time}{f' by {by}' if isinstance(by, str) else ''}, so it can no longer commit anything; write "
        "the remaining records with a new writer",
        ended=True,
    )


async def _last_listed(folder: Storage, name: str, writer: str) -> int:
    prefix = manifest_prefix(name)
    found = [segment_of(info.key[len(prefix) :]) async for info in folder.list_objects(f"{prefix}{writer}-")]
    return max((each[1] for each in found if each is not None and each[0] == writer), default=0)


async def _load(folder: Storage, name: str, writer: str, number: int) -> Segment | None:
    key = segment_key(name, writer, number)
    try:
        content = await folder.get(key, max_bytes=MAX_SEGMENT_BYTES)
    except ObjectNotFoundError:
        return None
    return await in_thread(lambda: parse_segment(content, name=key))
