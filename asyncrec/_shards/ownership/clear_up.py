"""What is left of a job that has ended is taken away.

`clear_up`: what it made in the store, and its mark last. `remove_leftovers`: what it has begun on a disk, its
unfinished files, and in a spool its whole shards; this blocks.
"""

from __future__ import annotations

from contextlib import suppress

from asyncrec._concurrency.tasks import surely_in_thread
from asyncrec._shards.commit.closing import load_closing
from asyncrec._shards.journal.header import JobHeader
from asyncrec._shards.journal.job_files import TAKEN, leftovers_of, sidecars_left_of
from asyncrec._shards.journal.journal import Journal
from asyncrec._shards.manifest.names import claim_key, index_key, keys_key, with_maker
from asyncrec._shards.ownership.abandonment import delete_replaced, delete_unlisted
from asyncrec._shards.ownership.liveness import claim_life
from asyncrec._shards.ownership.marks import find_claims, remove_mark
from asyncrec.errors import StorageError
from asyncrec.storage._base import Storage
from asyncrec.storage._local.opening import own_file
from asyncrec.storage._local.storage import mapped_errors


async def clear_up(target: Storage, header: JobHeader, *, plain: bool) -> None:
    """Take away what is left of a job that has ended: what it replaced, what no commit names, its claims and mark."""
    closing = await load_closing(target, header.name, header.writer)
    if closing is None:
        return
    await delete_replaced(target, header.name, closing.remove)
    await delete_unlisted(target, header, plain=plain)
    local = not header.life  # else somebody else may use the plain names while a request of its own is on its way
    for claim in await find_claims(target, header.name):
        if claim.writer == header.writer and (local or not closing.abandoned):
            await target.delete(claim_key(header.name, claim.number))
    await remove_mark(target, header.name, header.writer)
    if header.life:
        with suppress(StorageError):  # a process that gave the job up holds it, and ends it
            _, life = await claim_life(header)
            if life is not None:
                await surely_in_thread(life.end)


def remove_leftovers(journal: Journal) -> list[str]:
    """Remove what is left of all shards of a job; returns their names."""
    shards = leftovers_of(journal.folder, journal.header)
    for shard in shards:
        remove_leftovers_of(journal, shard)
    # Those that no shard led to: a copy's have the ids of others in their names; and a disk that failed, or a power
    # cut, may have left an index whose shard is gone.
    for path in sidecars_left_of(journal.folder, journal.header):
        with mapped_errors("deleting", path), suppress(FileNotFoundError):
            journal.folder.disk.system.unlink(path)
    return shards


def remove_leftovers_of(journal: Journal, shard: str) -> None:
    """Remove what is left of one shard, which is in the manifest or never will be.

    The shard goes last: by it, the others are found.
    """
    header, folder = journal.header, journal.folder
    begun = [folder.owned_by(f"{header.writer}{end}") for end in ("", TAKEN)]
    sidecar_name = with_maker(header.name, shard, header.writer)
    for key in (index_key(sidecar_name), keys_key(sidecar_name), shard):
        paths = [each.partial_of(key) for each in begun] + ([begun[0].begun_of(key)] if key != shard else [])
        if header.spool:
            paths.append(folder.path_of(key))
        for path in paths:
            with mapped_errors("deleting", str(path)), suppress(FileNotFoundError):
                if own_file(str(path)):
                    folder.disk.system.unlink(path)
