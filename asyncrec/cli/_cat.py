"""``asyncrec cat PATH``."""

from __future__ import annotations

from typing import Annotated

import typer

from asyncrec.cli._options import Debug, Input, Json, StorageOptions
from asyncrec.cli._show_records import Features, Format, RecordView, Wheres, show_record, show_records
from asyncrec.errors import UsageError


def command(
    path: Input,
    format: Format = "auto",
    feature: Features = None,
    where: Wheres = None,
    record: Annotated[int | None, typer.Option(help="This one, counted from 0; from the end when negative.")] = None,
    key: Annotated[str | None, typer.Option(help="The one that was written with this key.")] = None,
    limit: Annotated[int | None, typer.Option("-n", "--limit", min=0, help="At most so many.")] = None,
    storage_option: StorageOptions = None,
    json: Json = False,
    debug: Debug = False,
) -> int:
    """Records: decoded, as JSON lines (--json), hex, text or raw; all, or by number, key or value.

    Raw records follow each other without a separator, so --record with it gives one payload as it is; with --feature,
    raw is the bytes of that feature, such as a page. A terminal never
    gets them, nor any control character of what is in a record.

    \b
    Example:
      asyncrec cat demo-data/pages --where 'label in 3,4' --feature url --limit 5 --json
    """
    if (record is not None or key is not None) and (where or limit is not None or None not in (record, key)):
        raise UsageError("--record and --key each mean one record: no other condition goes with them")
    view = RecordView("json" if json else format, feature, whole=True)
    if record is not None or key is not None:
        show_record(path, view, record=record, key=key, storage_option=storage_option)
    else:
        show_records(path, view, wheres=where, limit=limit, storage_option=storage_option)
    return 0
