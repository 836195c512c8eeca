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
    limit: Annotated[int, typer.Option("-n", "--limit", min=0, help="So many records.")] = 10,
    follow: Annotated[
        bool, typer.Option("-f", "--follow", help="Show what is committed from now on, too, until Ctrl-C.")
    ] = False,
    interval: Annotated[str, typer.Option(metavar="TIME", help="Between two looks, as 1s or 5m.")] = "1s",
    format: LongFormat = "auto",
    feature: Features = None,
    where: Wheres = None,
    storage_option: StorageOptions = None,
    json: Json = False,
    debug: Debug = False,
) -> int:
    """The last records, decoded; with -f also those that writers commit from now on.

    Records are seen when they are committed: the writer's max_shard_seconds and flush_seconds say when that is.

    \b
    Example:
      asyncrec tail demo-data/pages -n 2
    """
    from asyncrec import tools

    view = RecordView("json" if json else format, feature, whole=False)
    seconds = parse_duration(interval)
    chosen = conditions(where)
    view.printer()  # what it would refuse is said before anything is opened

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
