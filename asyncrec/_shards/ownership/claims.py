"""Win the name of a data set for a job, after ending the dead jobs that had the name before (`end_job`).

If an earlier job ran on this machine, its lock shows whether it is alive. If it is dead and has not promised to keep
any records, it is abandoned immediately. A job on another machine cannot be proven dead. In a shared folder, it counts
as dead once it has been silent for long enough; in a store, a person has to decide.
"""

from __future__ import annotations

from contextlib import AsyncExitStack

from asyncrec._shards.commit.closing import entomb, load_closing
from asyncrec._shards.journal.home import home_of
from asyncrec._shards.journal.job_names import JobNames
from asyncrec._shards.journal.remedies import age_of, command_for, recover_command
from asyncrec._shards.manifest.names import claim_key
from asyncrec._shards.ownership.census import FoundJob, find_job, find_jobs
from asyncrec._shards.ownership.end_job import end_job
from asyncrec._shards.ownership.marks import Claim, find_claims
from asyncrec._shards.ownership.verdict import Verdict
from asyncrec.errors import ConflictError
from asyncrec.storage._base import Storage
from asyncrec.storage._url import join


async def settle_claims(
    folder: Storage, name: str, *, by: str, take_over: bool, after: AsyncExitStack
) -> tuple[int, bool, list[Claim]]:
    """Prevent the jobs that claimed the data set's name before this job from creating more objects under it.

    Args:
        by: the id of this job.
        take_over: whether a person declares those jobs dead whose state is unknown here.
        after: a stack whose callbacks delete the claims of the ended jobs. It is unwound once this job's claim exists
            or its opening has failed. Until then, these claims keep other jobs from starting with number 1 again.

    Returns:
        The highest claim number, whether fixed shards may use their plain names (if they are free), and all claims
        found.

    Raises:
        ConflictError: another job has the name; the message names the job and says what to do.
    """
    plain, number = True, 0
    met = await find_claims(folder, name)
    for claim in met:
        number = claim.number
        if claim.writer and await _is_settled(folder, name, claim.writer, by=by, take_over=take_over, after=after):
            after.push_async_callback(folder.delete, claim_key(name, claim.number))
        else:
            # The job may publish its shards for as long as it lives, so the names that it used are never used again.
            plain = plain and not claim.plain
    return number, plain, met


async def _is_settled(
    folder: Storage, name: str, writer: str, *, by: str, take_over: bool, after: AsyncExitStack
) -> bool:
    """Prevent an earlier job from creating objects. Return whether its names are free and its claim can be deleted.

    Raises:
        ConflictError: the job is or may be alive.
    """
    job = await find_job(folder, name, writer)
    if job is not None and not job.marked:
        await _give_way(folder, job, take_over=take_over, after=after)
        return True
    if await load_closing(folder, name, writer) is not None:
        return False
    if job is not None:
        await _give_way(folder, job, take_over=take_over, after=after)
        return False
    # The job ended and left its claim behind, or its mark was deleted. The tombstone prevents it from committing.
    await entomb(folder, name, writer, by=by)
    return home_of(folder).folder is not None


async def settle_dead(folder: Storage, name: str, writer: str, *, take_over: bool = False) -> bool:
    """End the job with this id if it is dead and has not promised any records. Return false if it does not exist.

    ``take_over`` means that a person declares the job dead if its state is unknown here.

    Raises:
        ConflictError: the job is alive, its state is unknown, or it has promised records.
    """
    job = await find_job(folder, name, writer)
    if job is None:
        return False
    await _give_way(folder, job, take_over=take_over)
    return True


async def _give_way(folder: Storage, job: FoundJob, *, take_over: bool, after: AsyncExitStack | None = None) -> None:
    answer = await end_job(folder, job, Verdict(dead=take_over), after=after)
    if answer not in ("alive", "unknown", "promised"):
        return
    header, path = job.header, join(folder.root, job.header.name)
    who = (
        f"{path}: the writer {header.writer} (process {header.pid} on {header.host}, started "
        f"{age_of(header):,.0f} s ago) has not finished writing this data set: "
    )
    if answer == "alive":
        raise ConflictError(f"{who}it is still running; wait until it ends, or stop it")
    if answer == "unknown":
        abandon = recover_command(path, abandon=header.writer)
        raise ConflictError(f"{who}this machine cannot tell whether it is running").with_remedy(
            "if it is dead, pass take_over=True to take over the name",
            command=f"if it is dead, run {abandon} to take over the name",
        )
    if job.marked and header.spool:
        spool = command_for(header, "SPOOL")
        raise ConflictError(
            f"{who}it died, and its records are in a spool on that machine; recover the spool there ({spool})"
        )
    raise ConflictError(
        f"{path}: the writer {header.writer} died after a flush may have acknowledged its records. To keep them, "
        f"run {recover_command(path)}; to discard them, add --abandon {header.writer}"
    )


async def refuse_makers(folder: Storage, names: JobNames) -> None:
    """Raise an error if another job may be creating objects under the names that a copy takes over from the original.

    Raises:
        ConflictError: a job whose id is in one of these names has not ended.
    """
    path = join(folder.root, names.name)
    for job in await find_jobs(folder, names.name):
        other = job.header.writer
        if other in names.stems and other != names.writer:
            raise ConflictError(
                f"{path}: the copy would use file names of the writer {other}, which has not ended; if that writer "
                f"is dead, run {recover_command(path)}"
            )
