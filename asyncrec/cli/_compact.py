"""``asyncrec compact PATH``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from asyncrec.cli._options import Debug, Jobs, Json, KeptCompression, Path, StorageOptions, feature_option, run_async
from asyncrec.cli._output import human_bytes, plural, print_json, say
from asyncrec.cli._progress import Bar
from asyncrec.cli._show_records import Newest
from asyncrec.cli._values import parse_compression, parse_duration, parse_options, parse_size

if TYPE_CHECKING:
    from asyncrec.tools import CompactReport


def command(
    path: Path,
    max_shard_bytes: Annotated[
        str | None,
        typer.Option(metavar="SIZE", help="Maximum size of a joined shard, such as 64M or 1GiB. Default: 256MiB."),
    ] = None,
    compression: Annotated[
        KeptCompression,
        typer.Option(
            help="Compression of all shards; those that differ are rewritten. keep recompresses none.",
            case_sensitive=False,
        ),
    ] = "keep",
    drop_duplicates: Annotated[
        bool,
        typer.Option(
            "--drop-duplicates",
            help=("Drop a record if another one with the same key was committed earlier or, with --newest, is newer."),
        ),
    ] = False,
    newest: Newest = None,
    sort_by: Annotated[
        str | None,
        feature_option(
            "Sort the records of each joined shard by this feature; requires --drop-duplicates.", metavar="NAME"
        ),
    ] = None,
    manifest: Annotated[
        bool, typer.Option("--manifest", help="Merge only the manifest; do not join or delete shards.")
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would be joined, but change nothing.")] = False,
    grace: Annotated[
        str,
        typer.Option(
            metavar="TIME",
            help="Delete shards and segments that were replaced at least this long ago, such as 15m, 12h or 1d.",
        ),
    ] = "1h",
    latest: Annotated[
        bool,
        typer.Option("--latest", help="Also write ~latest.json, which names the checkpoint, and keep the checkpoint."),
    ] = False,
    jobs: Jobs = None,
    storage_option: StorageOptions = None,
    json: Json = False,
    debug: Debug = False,
) -> int:
    """Join small shards of the data set PATH, and merge its manifest into a checkpoint, so that it opens with few
    requests.

    You can run it at any time, even while other processes write, read or compact; concurrent runs share the work.
    Records keep their keys and, without --sort-by, their order. By default, shards that are large enough are not
    rewritten. Old shards are kept for --grace, for readers that have the data set open; a later run deletes them. If a
    run is killed, the next run continues its work.

    \b
    Example:
      asyncrec compact demo-data/pages
    """
    from asyncrec import tools

    options = parse_options(storage_option)
    seconds, size = parse_duration(grace), parse_size(max_shard_bytes)
    with Bar("joining") as bar:
        report = run_async(
            lambda: tools.compact(
                path,
                max_shard_bytes=size,
                compression=parse_compression(compression),
                drop_duplicates=drop_duplicates,
                newest=newest,
                sort_by=sort_by,
                manifest_only=manifest,
                dry_run=dry_run,
                grace=seconds,
                latest=latest,
                jobs=jobs,
                progress=bar,
                storage_options=options,
            )
        )
    if json:
        print_json(report.to_json())
    else:
        _show(report, grace)
    return 0


def _show(report: CompactReport, grace: str) -> None:
    joined, new, commits = (
        plural(count, word)
        for count, word in ((report.joined, "shard"), (report.into, "shard"), (report.commits, "commit"))
    )
    dropped = f", without {plural(report.duplicates, 'duplicate')}" if report.duplicates else ""
    if report.dry_run:
        say(f"{joined} of {human_bytes(report.bytes)} would become {new}{dropped}, in {commits}; nothing was changed")
        return
    if report.joined:
        say(f"{joined} became {new} of {human_bytes(report.rewritten)}{dropped}, in {commits}")
        say(f"old shards are kept for {grace}, for readers that have the data set open; a later run deletes them")
    if report.left:
        say(f"left {plural(report.left, 'piece')} of the work to concurrent runs")
    if report.removed:
        say(f"deleted {plural(len(report.removed), 'object')} of shards that were replaced earlier")
    if report.written:
        deleted = plural(len(report.deleted), "older object")
        say(f"merged {plural(report.merged, 'segment')} into {report.checkpoint}")
        say(f"{plural(report.shards, 'shard')}, {plural(report.records, 'record')}; {deleted} deleted")
    elif report.checkpoint is None:
        say(f"{report.path}: another process is creating the first checkpoint; try again later")
    else:
        say(f"nothing to merge: {report.checkpoint} covers all {report.shards:,} shards, or was created just now")
    if report.latest is not None:
        say(f"{report.latest} names this checkpoint")
