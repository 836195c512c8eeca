"""``asyncrec head PATH``."""

from __future__ import annotations

from typing import Annotated

import typer

from asyncrec.cli._options import Debug, Input, Json, StorageOptions
from asyncrec.cli._show_records import Features, Format, RecordView, Wheres, show_records


def command(
    path: Input,
    limit: Annotated[int, typer.Option("-n", "--limit", min=0, help="Number of records to show.")] = 10,
    format: Format = "auto",
    feature: Features = None,
    where: Wheres = None,
    storage_option: StorageOptions = None,
    json: Json = False,
    debug: Debug = False,
) -> int:
    """Show the first records, decoded: Examples by feature, other records as text or hex.

    \b
    Example:
      asyncrec head demo-data/pages -n 2
    """
    view = RecordView("json" if json else format, feature, whole=False)
    show_records(path, view, wheres=where, limit=limit, storage_option=storage_option)
    return 0
