"""``asyncrec index PATH``."""

from __future__ import annotations

from typing import Annotated, Literal

import typer

from asyncrec.cli._exits import FINE, USAGE
from asyncrec.cli._options import Debug, Jobs, Json, MaxRecordBytes, Path, StorageOptions, run_async
from asyncrec.cli._output import print_json, say
from asyncrec.cli._progress import Bar
from asyncrec.cli._values import opened


def command(
    path: Path,
    layout: Annotated[
        Literal["asyncrec", "tfrecord", "dali"],
        typer.Option(help="Location of the index: _index/SHARD.index, SHARD with the suffix .tfindex, or SHARD.idx."),
    ] = "asyncrec",
    force: Annotated[bool, typer.Option("--force", help="Replace existing indexes.")] = False,
    jobs: Jobs = None,
    max_record_bytes: MaxRecordBytes = None,
    storage_option: StorageOptions = None,
    json: Json = False,
    debug: Debug = False,
) -> int:
    """Create an index for every shard that lacks one: for random access, tfrecord or NVIDIA DALI.

    An index is a text file with the offset and size of each record. The exit code is 2 if a shard cannot be indexed.

    \b
    Example:
      asyncrec index demo-data/pages
    """
    from asyncrec import tools

    options = opened(path, storage_option, max_record_bytes)
    with Bar("indexing") as bar:
        report = run_async(lambda: tools.index(path, layout=layout, force=force, jobs=jobs, progress=bar, **options))
    if json:
        print_json(report.to_json())
    else:
        for index in report.made:
            say(index)
        for shard, reason in report.refused:
            say(f"{shard}: no index: {reason}")
        made, kept, refused = len(report.made), len(report.kept), len(report.refused)
        say(f"{made:,} created, {kept:,} already existed, {refused:,} could not be indexed")
    return USAGE if report.refused else FINE
