"""``asyncrec compact PATH``."""

from __future__ import annotations

from typing import Annotated

import typer

from asyncrec.cli._options import Debug, Json, Path, StorageOptions, run_async
from asyncrec.cli._output import plural, print_json, say
from asyncrec.cli._values import parse_duration, parse_options


def command(
    path: Path,
    grace: Annotated[
        str,
        typer.Option(
            metavar="TIME", help="Delete segments that were merged at least this long ago, such as 15m, 12h or 1d."
        ),
    ] = "1h",
    latest: Annotated[
        bool,
        typer.Option("--latest", help="Also write ~latest.json, which names the checkpoint, and keep that checkpoint."),
    ] = False,
    storage_option: StorageOptions = None,
    json: Json = False,
    debug: Debug = False,
) -> int:
    """Merge the manifest of the data set PATH into a checkpoint, so that it opens in a few requests. The shards do not
    change.

    You can run it at any time, also while other processes write, read or compact; readers see the same data set before
    and after. A later run deletes the segments of single commits, once they have been merged for --grace. Run it from
    time to time during a crawl with many processes, and once at the end.

    \b
    Example:
      asyncrec compact demo-data/pages
    """
    from asyncrec import tools

    options = parse_options(storage_option)
    seconds = parse_duration(grace)
    report = run_async(lambda: tools.compact(path, grace=seconds, latest=latest, storage_options=options))
    if json:
        print_json(report.to_json())
        return 0
    if report.written:
        deleted = plural(len(report.deleted), "older object")
        say(f"merged {plural(report.merged, 'segment')} into {report.checkpoint}")
        say(f"{plural(report.shards, 'shard')}, {plural(report.records, 'record')}; {deleted} deleted")
    elif report.checkpoint is None:
        say(f"{report.path}: another process is creating the first checkpoint; try again later")
    else:
        say(f"nothing to merge: {report.checkpoint} covers all {report.shards:,} shards, or was created just now")
    if report.latest is not None:
        say(f"{report.latest} names it")
    return 0
