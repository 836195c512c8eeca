"""One job wins the name of a data set, after seeing to the jobs that had it before.

The job that had the name is asked: by a lock where it is on this machine, and a dead one that promised nothing is given
up on the spot. Elsewhere no job can be proven dead, so that a person has to say so.
"""

from __future__ import annotations

from contextlib import AsyncExitStack
from functools import partial

from asyncrec._concurrency.tasks import in_thread, surely_in_thread
from asyncrec._shards.commit.closing import entomb, load_closing
from asyncrec._shards.journal.header import JobHeader, recover_command
from asyncrec._shards.journal.journal import Journal, find_job_headers, has_header
from asyncrec._shards.manifest.loading import load_history
from asyncrec._shards.manifest.names import claim_key
from asyncrec._shards.ownership.abandonment import abandon
from asyncrec._shards.ownership.clear_up import clear_up, remove_leftovers
from asyncrec._shards.ownership.liveness import claim_journal, claim_life
from asyncrec._shards.ownership.marks import Claim, find_claims, find_jobs, load_mark, remove_mark, uses_plain_names
from asyncrec._shards.ownership.unlisted import published_by
from asyncrec.errors import ConflictError
from asyncrec.storage._base import Storage
from asyncrec.storage._local.storage import LocalStorage, local_folder
from asyncrec.storage._url import join


async def settle_claims(
    folder: Storage, local: LocalStorage | None, header: JobHeader, *, take_over: bool, after: AsyncExitStack
) -> tuple[int, bool, list[Claim]]:
    """See that whoever claimed the data set's name before this job makes nothing more of it.

    Args:
        after: takes away the claims of those who make nothing more: once this job's own is there, or its opening has
            failed. Until then they keep whoever comes meanwhile from beginning with the first number again.

    Returns:
        The highest number of a claim, whether the plain names of fixed shards may be used (if they are free), and all
        claims that were met.

    Raises:
        ConflictError: another job has the name; the message says which, and what can be done.
    """
    plain, number = True, 0
    met = await find_claims(folder, header.name)
    for claim in met:
        number = claim.number
        if await _settle(folder, local, header, claim, take_over=take_over, after=after):
            after.push_async_callback(folder.delete, claim_key(header.name, claim.number))
        else:
            # It may publish what it had begun for as long as it lives: names that it used are never used again.
            plain = plain and not claim.plain
    return number, plain, met


async def _settle(
    folder: Storage,
    local: LocalStorage | None,
    header: JobHeader,
    claim: Claim,
    *,
    take_over: bool,
    after: AsyncExitStack,
) -> bool:
    """See that an earlier job makes nothing more. Returns whether its names are free again, so that its claim can go.

    Raises:
        ConflictError: it lives, or may live.
    """
    if not claim.writer:
        return False
    display_path = join(folder.root, header.name)
    if local is not None:
        headers = {found.writer: path for path, found in await in_thread(find_job_headers, local, header.name)}
        if claim.writer not in headers and await in_thread(has_header, local, header.name, claim.writer):
            raise ConflictError(f"{display_path}: the writer {claim.writer} is another user's, and may be making it")
        if claim.writer in headers:
            path = headers[claim.writer]
            return await _settle_local(folder, local, path, claim.plain, display_path, after, take_over=take_over)
    if await load_closing(folder, header.name, claim.writer) is not None:
        return False
    mark = await load_mark(folder, header.name, claim.writer)
    if mark is None:
        # It ended, and left its claim; or its mark was taken away, and it can commit nothing behind this.
        await entomb(folder, header.name, claim.writer, by=header.writer)
        return local is not None
    await _settle_remote(folder, mark, plain=claim.plain, take_over=take_over, display_path=display_path)
    return False


async def _settle_remote(folder: Storage, mark: JobHeader, *, plain: bool, take_over: bool, display_path: str) -> None:
    state, life = await claim_life(mark)
    if state == "alive":
        raise _in_use(display_path, mark, "which lives")
    ended = False
    try:
        if state == "unknown" and not take_over:
            raise _unknown(display_path, mark)
        if mark.spool and not take_over:
            raise _in_use(
                display_path,
                mark,
                f"which is dead, and has a spool there: recover that spool ({mark.recover_command('SPOOL')})",
            )
        if await abandon(folder, mark, plain=plain):
            await remove_mark(folder, mark.name, mark.writer)
        else:  # it had ended well, and did not come to clear up
            await clear_up(folder, mark, plain=plain)
        ended = True
    finally:
        if life is not None:
            await surely_in_thread(partial(life.end, keep=not ended))


async def _settle_local(
    folder: Storage,
    local: LocalStorage,
    path: str,
    plain: bool,
    display_path: str,
    after: AsyncExitStack,
    *,
    take_over: bool,
) -> bool:
    state, journal = await claim_journal(local, path)
    if state == "alive":
        raise ConflictError(f"{display_path}: another writer is making this data set, and lives: {path} is locked")
    if journal is None:
        return True
    try:
        if state == "unknown" and not take_over:
            raise _unknown(display_path, journal.header)
        await in_thread(journal.take)
        if await _holds_promises(folder, journal):
            raise ConflictError(
                f"{display_path}: the writer {journal.header.writer} died, and may have been told that its records "
                f"are safe: {recover_command(display_path)} keeps them, and with --abandon {journal.header.writer} "
                "discards them"
            )
        if not await abandon_local(folder, journal, plain=plain):  # it had ended well, and did not come to clear up
            await in_thread(remove_leftovers, journal)
            await clear_up(folder, journal.header, plain=plain)
    except BaseException:
        await surely_in_thread(partial(journal.end, keep=True))
        raise
    after.push_async_callback(_end_given_up, folder, journal)
    return True


async def _end_given_up(folder: Storage, journal: Journal) -> None:
    """Take away the claims of a job that was given up, and then its header."""
    ended = False
    try:
        for claim in await find_claims(folder, journal.header.name):
            if claim.writer == journal.header.writer:
                await folder.delete(claim_key(journal.header.name, claim.number))
        ended = True
    finally:
        await surely_in_thread(partial(journal.end, keep=not ended))


async def _holds_promises(folder: Storage, journal: Journal) -> bool:
    """Whether a job may have been told that records are safe which are in no commit."""
    if await in_thread(journal.holds_promises):
        return True
    if journal.header.kind != "rolling":
        return False
    # What a rolling writer flushed is no longer in its journal once the shard has its name.
    history = await load_history(folder, journal.header.name)
    published = await published_by(folder, journal.header)
    return await in_thread(lambda: not all(map(history.lists, published)))


async def refuse_makers(folder: Storage, header: JobHeader) -> None:
    """Refuse a copy, which keeps the names it finds, while another job may be making such names.

    Raises:
        ConflictError: a job of an id among them has not ended.
    """
    for other in await find_jobs(folder, header.name):
        if other.writer in header.stems and other.writer != header.writer:
            raise ConflictError(
                f"{join(folder.root, header.name)}: the writer {other.writer}, whose names the copy would have, has "
                f"not ended; {recover_command(join(folder.root, header.name))} sees to it if it is dead"
            )


async def settle_dead(folder: Storage, name: str, writer: str, *, take_over: bool = False) -> bool:
    """Give up a job of this id that is all or nothing and died on this machine; False where there is none.

    ``take_over``: one on another machine is dead, too, as a person says.

    Raises:
        ConflictError: it lives, or nobody here can tell.
    """
    display_path = join(folder.root, name)
    local = local_folder(folder)
    if local is not None:
        for path, header in await in_thread(find_job_headers, local, name):
            if header.writer == writer:
                plain = await uses_plain_names(folder, header)
                async with AsyncExitStack() as after:
                    return await _settle_local(folder, local, path, plain, display_path, after, take_over=take_over)
    mark = await load_mark(folder, name, writer)
    if mark is None:
        return False
    plain = await uses_plain_names(folder, mark)
    await _settle_remote(folder, mark, plain=plain, take_over=take_over, display_path=display_path)
    return True


async def abandon_local(folder: Storage, journal: Journal, *, plain: bool = False) -> bool:
    """Give up a job on this disk, and remove its unfinished files; False where it had ended well."""
    if not await abandon(folder, journal.header, plain=plain):
        return False
    await in_thread(remove_leftovers, journal)
    return True


def _in_use(display_path: str, mark: JobHeader, what: str) -> ConflictError:
    return ConflictError(
        f"{display_path}: the writer {mark.writer} (process {mark.pid} on {mark.host}, for {mark.age:,.0f} s) is "
        f"making this data set, {what}"
    )


def _unknown(display_path: str, mark: JobHeader) -> ConflictError:
    return _in_use(display_path, mark, "which cannot be asked from here").with_remedy(
        "when it is dead, take_over=True takes the name from it",
        command=f"when it is dead, {recover_command(display_path, abandon=mark.writer)} takes the name from it",
    )
