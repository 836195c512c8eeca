"""``asyncrec merge SOURCE... TARGET``."""

from __future__ import annotations

from typing import Annotated

import typer

from asyncrec.cli._completion import complete_path
from asyncrec.cli._options import Debug, Json, MaxRecordBytes, SourceOptions, TargetOptions, run_async
from asyncrec.cli._progress import Bar
from asyncrec.cli._values import opened
from asyncrec.cli._written import Compression, ShardBytes, show, target_arguments
from asyncrec.errors import UsageError


def command(
    sources: Annotated[
        list[str],
        typer.Argument(
            metavar="SOURCE... TARGET",
            help="Files, folders, patterns or data sets; and last the new data set, a file NAME.tfrecord, or - for "
            "standard output.",
            autocompletion=complete_path,
        ),
    ],
    compression: Compression = "keep",
    max_shard_bytes: ShardBytes = None,
    max_record_bytes: MaxRecordBytes = None,
    storage_option: SourceOptions = None,
    target_storage_option: TargetOptions = None,
    json: Json = False,
    debug: Debug = False,
) -> int:
    """Write the records of several data sets, one after the other, as a new one.

    Keys and metadata go along; a record that is in two of them is there twice, until 'asyncrec dedupe'. The sources
    have one schema, or none. All or nothing; no source is changed.

    \b
    Example:
      asyncrec merge demo-data/pages demo-data/pages merged/pages
    """
    from asyncrec import tools

    *given, target = sources
    if not given:
        raise UsageError("say what to merge, and last the new data set: asyncrec merge SOURCE... TARGET")
    arguments = target_arguments(target, compression, max_shard_bytes, target_storage_option)
    options = opened("", storage_option, max_record_bytes)
    with Bar("merging") as bar:
        report = run_async(lambda: tools.merge(given, progress=bar, **options, **arguments))
    show(report, target, json)
    return 0
