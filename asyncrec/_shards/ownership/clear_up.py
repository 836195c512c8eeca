"""`clear_up` takes away what is left of a job that has ended: what it made in the store, and its mark last."""

from __future__ import annotations

from contextlib import suppress

from asyncrec._concurrency.tasks import surely_in_thread
from asyncrec._shards.commit.closing import load_closing
from asyncrec._shards.journal.header import JobHeader
from asyncrec._shards.manifest.names import claim_key
from asyncrec._shards.ownership.abandonment import delete_replaced, delete_unlisted
from asyncrec._shards.ownership.liveness import claim_life
from asyncrec._shards.ownership.marks import find_claims, remove_mark
from asyncrec.errors import StorageError
from asyncrec.storage._base import Storage


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
