"""``asyncrec recover PATH``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from asyncrec.cli._exits import DAMAGE, FINE
from asyncrec.cli._options import Debug, Json, StorageOptions, run_async
from asyncrec.cli._output import human_bytes, plural, print_json, say
from asyncrec.cli._values import parse_options

if TYPE_CHECKING:
    from asyncrec._shards.recovery.report import UnfinishedJob


def command(
    path: Annotated[
        str,
        typer.Argument(
            metavar="PATH", help="A data set, a folder (to recover every data set in it), or the folder of a spool."
        ),
    ],
    to: Annotated[
        str | None, typer.Option(metavar="PATH", help="For a spool, the data set to which its records belong.")
    ] = None,
    abandon: Annotated[
        list[str] | None,
        typer.Option(
            metavar="ID", help="Abandon this job, and delete the uncommitted objects that it left. Can be repeated."
        ),
    ] = None,
    dead: Annotated[
        list[str] | None,
        typer.Option(
            metavar="ID",
            help=(
                "Declare this job dead, for example because its machine is gone: commit its published and flushed "
                "records (all or none, for an all-or-nothing job), and end it. Can be repeated."
            ),
        ),
    ] = None,
    storage_option: StorageOptions = None,
    json: Json = False,
    debug: Debug = False,
) -> int:
    """Commit the records that dead writers left behind, in a spool or as unfinished shards of a local data set.

    An all-or-nothing job is abandoned, unless all its fixed shards are complete or a flush acknowledged its records. A
    job on another machine may still be running, so it is only listed. Use --dead to declare it dead and commit its
    published and flushed records, or --abandon to delete them. You can run recover repeatedly and at any time, even
    while other processes write. The exit code is 1 if a journal was damaged.

    \b
    Example:
      asyncrec recover demo-data/pages
    """
    from asyncrec import tools
    from asyncrec.storage._url import redact

    options = parse_options(storage_option)
    report = run_async(
        lambda: tools.recover(path, to=to, abandon=abandon or (), dead=dead or (), storage_options=options)
    )
    found = report.recovery
    if json:
        print_json(report.to_json())
    else:
        for shard in found.shards:
            say(f"{shard.path}: {plural(shard.records, 'record')}, {human_bytes(shard.bytes)}")
        for name in found.damaged:
            say(f"{name}: damaged; the records before the damage are committed. 'asyncrec repair' may recover more")
        why = (
            "its job was abandoned"
            if abandon
            else "its writer publishes all shards or none, and acknowledged no record"
        )
        for name in found.discarded:
            say(f"{name}: discarded, because {why}")
        for job in found.abandoned:
            say(
                f"job {job} was abandoned: the uncommitted objects that it left here were deleted, but not a spool on "
                "another machine"
            )
        for job in found.lost:
            say(f"job {job} died without a spool here, so the records that it had not flushed or uploaded are lost")
        for job in found.in_use:
            say(f"job {job} is still running, or another process is ending it, so it was left unchanged")
        for unfinished in found.unfinished:
            say(_explained(unfinished))
        for target in found.targets:
            say(f"published to {redact(target)}")
        done = (
            f"recovered {plural(found.records, 'record')} in {plural(len(found.shards), 'shard')}"
            if found.records
            else "nothing to recover: dead writers left no records"
        )
        say(f"{done}; removed {plural(found.cut_bytes, 'torn byte')}")
    return DAMAGE if found.damaged else FINE


def _explained(job: UnfinishedJob) -> str:
    where = f"process {job.pid} on {job.host}, started {job.age:,.0f} s ago"
    what = (
        f"job {job.id} ({job.kind}; {where}) has not ended. This machine cannot tell whether it is still "
        "running, so it was left unchanged"
    )
    dead, abandon = f"--dead {job.id}", f"--abandon {job.id}"
    if job.spool:
        remedy = (
            f"{dead} commits the records that the job published"
            if job.kind == "rolling"
            else f"{abandon} deletes the shards that the job published"
        )
        return (
            f"{what}. Its records are in a spool on that machine; run 'asyncrec recover SPOOL --to ...' there. "
            f"If that machine is gone, {remedy}"
        )
    if job.kind == "rolling":
        return f"{what}. If it is dead, {dead} commits its published and flushed records, and {abandon} deletes them"
    return f"{what}. If it is dead, {dead} commits all of its shards or none, and {abandon} deletes them"
