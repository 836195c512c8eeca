"""``asyncrec schema PATH``."""

from __future__ import annotations

from typing import Annotated

import typer

from asyncrec.cli._info import show_schema
from asyncrec.cli._options import Debug, Input, Json, MaxRecordBytes, StorageOptions, run_async
from asyncrec.cli._output import print_json, say
from asyncrec.cli._values import opened


def command(
    path: Input,
    infer: Annotated[
        bool, typer.Option("--infer", help="Infer the schema from the records, even if one is stored.")
    ] = False,
    limit: Annotated[
        int | None, typer.Option("-n", "--limit", min=1, help="Number of records to infer from. Default: all.")
    ] = None,
    max_record_bytes: MaxRecordBytes = None,
    storage_option: StorageOptions = None,
    json: Json = False,
    debug: Debug = False,
) -> int:
    """Show the features of records: the schema in the manifest, or an inferred schema that fits every record.

    asyncrec.Schema.from_json reads the output of --json.

    \b
    Example:
      asyncrec schema demo-data/pages
    """
    from asyncrec import tools

    options = opened(path, storage_option, max_record_bytes)
    report = run_async(lambda: tools.schema(path, infer=infer, limit=limit, **options))
    if json:
        print_json(report.schema)
        return 0
    show_schema(report.schema)
    say()
    if report.records is None:
        say("from the manifest")
    else:
        say(f"inferred from {report.records:,} records")
    return 0
