"""``asyncrec tail PATH``."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from asyncrec.cli._options import Debug, Input, Json, StorageOptions, run_async
from asyncrec.cli._show_records import Features, LongFormat, RecordView, Wheres, conditions, show_all
from asyncrec.cli._values import opened, parse_duration


def command(
    path: Input,
    limit: Annotated[int, typer.Option("-n", "--limit", min=0, help="Number of records to show.")] = 10,
    follow: Annotated[
        bool, typer.Option("-f", "--follow", help="Also show new records as they are committed, until Ctrl-C.")
    ] = False,
    interval: Annotated[
        str, typer.Option(metavar="TIME", help="How often to check for new records, such as 1s or 5m.")
    ] = "1s",
    format: LongFormat = "auto",
    feature: Features = None,
    where: Wheres = None,
    storage_option: StorageOptions = None,
    json: Json = False,
    debug: Debug = False,
) -> int:
    """Show the last records, decoded. With -f, also show new records as they are committed.

    When records are committed depends on the writer's max_shard_seconds and flush_seconds.

    \b
    Example:
      asyncrec tail demo-data/pages -n 2
    """
    from asyncrec import tools

    view = RecordView("json" if json else format, feature, whole=False)
    seconds = parse_duration(interval)
    chosen = conditions(where)
    view.printer()  # reject invalid options before any file is opened

    async def run() -> None:
        async with tools.open_tail(
            path, records=limit, where=chosen, follow=follow, interval=seconds, **opened(path, storage_option)
        ) as stream:
            printer = view.printer(path, stream.selection.schema)
            async for records in stream:
                show_all(printer, records)
                sys.stdout.flush()
            printer.end(path)

    run_async(run)
    return 0
