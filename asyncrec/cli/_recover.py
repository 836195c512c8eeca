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
            metavar="PATH", help="A data set, a folder (recovers every data set in it), or the folder of a spool."
        ),
    ],
    to: Annotated[
        str | None, typer.Option(metavar="PATH", help="For a spool: the data set that its records belong to.")
    ] = None,
    abandon: Annotated[
        list[str] | None,
        typer.Option(
            metavar="ID", help="Give up this job, and delete the uncommitted objects that it left. Can be repeated."
        ),
    ] = None,
    dead: Annotated[
        list[str] | None,
        typer.Option(
            metavar="ID",
            help=(
                "Declare this job dead, for example because its machine is gone: commit what it had published and "
                "flushed, and end it. Can be repeated."
            ),
        ),
    ] = None,
    storage_option: StorageOptions = None,
    json: Json = False,
    debug: Debug = False,
) -> int:
    """Commit the records that dead writers left behind: in a spool, or as unfinished shards of a local data set.

    A job that publishes everything or nothing is abandoned, unless a flush had acknowledged its records. A job on
    another machine may still be running, so it is only listed. Use --dead to declare it dead and commit what it had
    published, or --abandon to delete that. You can run recover at any time, also while others write, and more than
    once. The exit code is 1 if a journal was damaged.

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
            say(f"{name}: damaged; the records before the damage are committed. 'asyncrec repair' may save more")
        for name in found.discarded:
            say(f"{name}: discarded, because its writer publishes all shards or none and had acknowledged nothing")
        for job in found.abandoned:
            say(
                f"job {job} was given up: the uncommitted objects that it left here were deleted, but not a spool "
                "on another machine"
            )
        for job in found.lost:
            say(f"job {job} died without a spool here: the records that it had not flushed or uploaded are lost")
        for job in found.in_use:
            say(f"job {job} is still running, or another process is ending it, so it was left unchanged")
        for unfinished in found.unfinished:
            say(_explained(unfinished))
        for target in found.targets:
            say(f"published in {redact(target)}")
        done = (
            f"recovered {plural(found.records, 'record')}"
            if found.records
            else "nothing to recover: dead writers left no records"
        )
        say(f"{done}; shards: {len(found.shards):,}; torn bytes cut: {found.cut_bytes:,}")
    return DAMAGE if found.damaged else FINE


def _explained(job: UnfinishedJob) -> str:
    where = f"process {job.pid} on {job.host}, started {job.age:,.0f} s ago"
    what = (
        f"job {job.id} ({job.kind}; {where}) has not ended. This machine cannot tell whether it is still "
        "running, so it was left unchanged"
    )
    if job.spool:
        return (
            f"{what}. Its records are in a spool on that machine; run 'asyncrec recover SPOOL --to ...' there. "
            f"If that machine is gone, --dead {job.id} commits what the job had published"
        )
    return (
        f"{what}. If it is dead, --dead {job.id} commits what it had published and flushed, and --abandon {job.id} "
        "deletes that"
    )
