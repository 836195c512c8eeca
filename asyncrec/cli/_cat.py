"""``asyncrec cat PATH``."""

from __future__ import annotations

from typing import Annotated

import typer

from asyncrec.cli._options import Debug, Input, Json, StorageOptions
from asyncrec.cli._show_records import Features, Format, Newest, RecordView, Wheres, show_record, show_records
from asyncrec.errors import UsageError


def command(
    path: Input,
    format: Format = "auto",
    feature: Features = None,
    where: Wheres = None,
    record: Annotated[
        int | None,
        typer.Option(help="Print only the record with this number, counted from 0, or from the end if negative."),
    ] = None,
    key: Annotated[str | None, typer.Option(help="Print only the record with this key.")] = None,
    newest: Newest = None,
    all_versions: Annotated[
        bool,
        typer.Option(
            "--all-versions",
            help="With --key, print all records with the key, in commit order or, with --newest, by that feature.",
        ),
    ] = False,
    limit: Annotated[int | None, typer.Option("-n", "--limit", min=0, help="Print at most this many records.")] = None,
    resolve: Annotated[
        bool, typer.Option("--resolve", help="Print each revisit with the body that it refers to.")
    ] = False,
    storage_option: StorageOptions = None,
    json: Json = False,
    debug: Debug = False,
) -> int:
    """Print all records, or those selected by number, key or value: decoded or as JSON lines (--json), hex, text or raw
    bytes.

    Raw records are printed without a separator; use --record or --key to print a single one. With --feature, raw prints
    the bytes of that feature, such as the content of a page. Raw output to a terminal is refused; all other formats
    escape control characters.

    If several records have the key, --key prints the one committed first or, with --newest date, the newest by that
    feature.

    \b
    Example:
      asyncrec cat demo-data/pages --where 'label in 3,4' --feature url --limit 5 --json
    """
    if (record is not None or key is not None) and (where or limit is not None or None not in (record, key)):
        raise UsageError(
            "--record and --key each select one record; they cannot be combined with each other, --where or --limit"
        )
    if key is None and (newest is not None or all_versions):
        raise UsageError("--newest and --all-versions need --key, because only records with one key have versions")
    view = RecordView("json" if json else format, feature, whole=True)
    if record is not None or key is not None:
        show_record(
            path,
            view,
            record=record,
            key=key,
            newest=newest,
            all_versions=all_versions,
            storage_option=storage_option,
            resolve=resolve,
        )
    else:
        show_records(path, view, wheres=where, limit=limit, storage_option=storage_option, resolve=resolve)
    return 0
