"""``asyncrec recover PATH``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from asyncrec.cli._exits import DAMAGE, FINE
from asyncrec.cli._options import Debug, Json, StorageOptions, run_async
from asyncrec.cli._output import human_bytes, print_json, say
from asyncrec.cli._values import parse_options

if TYPE_CHECKING:
    from asyncrec._shards.recovery.report import UnfinishedJob


def command(
    path: Annotated[
        str, typer.Argument(metavar="PATH", help="A data set; a folder, for each data set in it; or a spool's folder.")
    ],
    to: Annotated[
        str | None,
        typer.Option(metavar="PATH", help="For a spool: the data set that its records were written for, and go to."),
    ] = None,
    abandon: Annotated[
        list[str] | None,
        typer.Option(
            metavar="ID", help="Give this job up, and delete what it left there in no commit. May be repeated."
        ),
    ] = None,
    dead: Annotated[
        list[str] | None,
        typer.Option(
            metavar="ID",
            help="This job's machine is gone, or the job is known to be dead: commit what it had published, and end "
            "it. May be repeated.",
        ),
    ] = None,
    storage_option: StorageOptions = None,
    json: Json = False,
    debug: Debug = False,
) -> int:
    """Publish what writers left behind when they died: a spool's shards, and unfinished shards of a local data set.

    What was all or nothing and promised nothing is given up. A job on another machine cannot be asked whether it lives:
    it is named, and left alone until --dead says that it is dead, which keeps what it had published, or --abandon that
    it is to be given up, which does not. It may be run at any time, also while others write; twice does no harm. Exit
    code 1 when a journal was damaged.

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
            say(f"{shard.path}: {shard.records:,} records, {human_bytes(shard.bytes)}")
        for name in found.damaged:
            say(f"{name}: damaged: what came before is committed; 'asyncrec repair' may save more")
        for name in found.discarded:
            say(f"{name}: discarded: of a writer that publishes all or none, and had promised nothing")
        for job in found.abandoned:
            say(f"job {job} was given up: what it left here in no commit was deleted; no spool elsewhere was")
        for job in found.lost:
            say(f"job {job} died, and no spool of it is here: what it had not uploaded is lost")
        for job in found.in_use:
            say(f"job {job} is running: what is its own was left alone")
        for unfinished in found.unfinished:
            say(_explained(unfinished))
        for target in found.targets:
            say(f"published in {redact(target)}")
        done = f"recovered {found.records:,} records" if found.records else "nothing was recovered: no record was left"
        say(f"{done}; shards: {len(found.shards):,}; torn bytes cut: {found.cut_bytes:,}")
    return DAMAGE if found.damaged else FINE


def _explained(job: UnfinishedJob) -> str:
    where = f"process {job.pid} on {job.host}, begun {job.age:,.0f} s ago"
    what = f"job {job.id} ({job.kind}; {where}) has not ended, and cannot be asked from here: it was left alone"
    if job.spool:
        return (
            f"{what}; its records lie in a spool there; recover that: 'asyncrec recover SPOOL --to ...'; if that "
            f"machine is gone, --dead {job.id} commits what it had published"
        )
    return f"{what}; when it is dead, --dead {job.id} commits what it had published, --abandon {job.id} gives it up"
