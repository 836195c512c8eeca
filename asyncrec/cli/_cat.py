"""``asyncrec cat PATH``; and what it shares with ``head``."""

from __future__ import annotations

from typing import Annotated

import typer

from asyncrec.cli._options import Debug, Json, Path, StorageOptions, parse_options, run_async
from asyncrec.cli._records import FORMATS, printer
from asyncrec.errors import UsageError

__all__ = ["Features", "Format", "Wheres", "show"]

Format = Annotated[
    str, typer.Option("-f", "--format", metavar="|".join(FORMATS), help="auto shows Examples by feature.")
]
Features = Annotated[list[str] | None, typer.Option("--feature", metavar="NAME", help="Only this; may be repeated.")]
Wheres = Annotated[
    list[str] | None,
    typer.Option("--where", metavar="NAME=VALUE", help="Only such records, also NAME!=VALUE; all of several hold."),
]


def command(
    path: Path,
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

    Raw records follow each other without a separator, so --record with it gives one payload as it is. A terminal never
    gets them, nor any control character of what is in a record.
    """
    if (record is not None or key is not None) and (where or limit is not None or None not in (record, key)):
        raise UsageError("--record and --key each mean one record: no other condition goes with them")
    show(
        path,
        limit=limit,
        format="json" if json else format,
        features=feature,
        wheres=where,
        storage_option=storage_option,
        record=record,
        key=key,
        whole=True,
    )
    return 0


def show(
    path: str,
    *,
    limit: int | None,
    format: str,
    features: list[str] | None,
    wheres: list[str] | None,
    storage_option: list[str] | None,
    whole: bool,
    record: int | None = None,
    key: str | None = None,
) -> None:
    from asyncrec.tools._json_values import lists_of
    from asyncrec.tools._records import Where, get_record, open_records

    options = parse_options(storage_option)
    conditions = [Where.parse(text) for text in wheres or ()]
    only = frozenset(features) if features else None
    printer(format, lists=(), only=only, whole=whole)  # what it would refuse is told before anything is opened

    async def run() -> None:
        if record is not None or key is not None:
            found = await get_record(path, record=record, key=key, storage_options=options)
            printer(format, lists=(), only=only, whole=whole)(found)
            return
        left = limit
        async with open_records(path, where=conditions, storage_options=options) as stream:
            show = printer(format, lists=lists_of(stream.selection.schema), only=only, whole=whole)
            if left == 0:
                return
            async for records in stream:
                for found in records[:left]:
                    show(found)
                if left is not None:
                    left -= len(records)
                    if left <= 0:
                        return

    run_async(run)
