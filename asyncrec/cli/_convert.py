"""``asyncrec convert SOURCE TARGET``."""

from __future__ import annotations

from typing import Annotated

import typer

from asyncrec.cli._exits import DAMAGE, FINE
from asyncrec.cli._options import (
    Compression,
    Debug,
    Jobs,
    Json,
    MaxRecordBytes,
    Source,
    SourceOptions,
    TargetOptions,
    path_argument,
    run_async,
)
from asyncrec.cli._output import plural, print_json, say
from asyncrec.cli._progress import Bar
from asyncrec.cli._standard import standard_output
from asyncrec.cli._standard_streams import complain
from asyncrec.cli._values import opened, opened_target, parse_compression, parse_size

_MOST_SHOWN = 20


def command(
    source: Source,
    target: Annotated[
        str, path_argument("TARGET", "A data set (folder and name), a file, a folder, or - for standard output.")
    ],
    source_format: Annotated[
        str | None,
        typer.Option(
            "--from", metavar="jsonl|parquet|warc|...", help="Format of the source, if its suffix does not indicate it."
        ),
    ] = None,
    target_format: Annotated[
        str | None,
        typer.Option(
            "--to",
            metavar="jsonl|csv|parquet|warc|...",
            help="Format of the target, if its suffix does not indicate it.",
        ),
    ] = None,
    max_shard_bytes: Annotated[
        str | None, typer.Option(metavar="SIZE", help="Maximum size of a shard, such as 64M or 1GiB.")
    ] = None,
    compression: Annotated[
        Compression, typer.Option(help="Compression of the new shards.", case_sensitive=False)
    ] = "none",
    jobs: Jobs = None,
    max_record_bytes: MaxRecordBytes = None,
    storage_option: SourceOptions = None,
    target_storage_option: TargetOptions = None,
    json: Json = False,
    debug: Debug = False,
) -> int:
    """Convert other formats to records, or records to another format: JSON lines, CSV (target only) or the format of a
    plugin.

    Invalid parts of a source are skipped and reported, and the exit code is 1. If a conversion is interrupted, run it
    again: it skips source files that are already converted. If one of them has changed, it stops with an error and
    writes nothing. Parquet and WARC require asyncrec-formats.

    \b
    Example:
      asyncrec convert demo-data/pages pages.csv
    """
    from asyncrec import tools

    opening = {**opened(source, storage_option, max_record_bytes), **opened_target(target, target_storage_option)}
    size = parse_size(max_shard_bytes)
    to_stdout = standard_output(target)
    with Bar("converting") as bar:
        report = run_async(
            lambda: tools.convert(
                source,
                "stdout.tfrecord" if to_stdout and target_format in (None, "tfrecord") else target,
                source_format=source_format,
                target_format=target_format,
                max_shard_bytes=size,
                compression=parse_compression(compression),
                jobs=jobs,
                progress=bar,
                **opening,
            )
        )
    if to_stdout:
        for bad in report.bad[:_MOST_SHOWN]:
            complain(f"{bad.path}: {bad.where}: skipped: {bad.reason}")
    elif json:
        print_json(report.to_json())
    else:
        for bad in report.bad[:_MOST_SHOWN]:
            say(f"{bad.path}: {bad.where}: skipped: {bad.reason}")
        if report.bad_count > _MOST_SHOWN:
            say(f"... and {report.bad_count - _MOST_SHOWN:,} more skipped (--json lists the first 1,000)")
        for file, count in report.bad_before.items():
            say(
                f"{file}: {count:,} invalid parts were skipped when this file was first converted; they are not in "
                "the data set"
            )
        before = f", {len(report.done_before):,} already converted" if report.done_before else ""
        passed = f", {report.passed:,} of other types skipped" if report.passed else ""
        records, files = plural(report.records, "record"), plural(len(report.files), "file")
        say(f"{report.target}: {records} from {files}{before}{passed}")
    return DAMAGE if report.bad_count or report.bad_before else FINE
