"""``asyncrec uploads PATH``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import typer

from asyncrec.cli._options import Debug, Json, Path, StorageOptions, run_async
from asyncrec.cli._output import print_json, say, table
from asyncrec.cli._values import parse_duration, parse_options


def command(
    path: Path,
    remove: Annotated[bool, typer.Option("--remove", help="Remove uploads older than --older-than.")] = False,
    older_than: Annotated[
        str, typer.Option(metavar="TIME", help="Minimum age for --remove, such as 90s, 15m, 12h, 1d or 2w.")
    ] = "1d",
    storage_option: StorageOptions = None,
    json: Json = False,
    debug: Debug = False,
) -> int:
    """List unfinished uploads at or below PATH: multipart uploads in S3, unfinished files on disk.

    The list includes uploads in progress, so --remove only removes uploads that started at least a day ago (see
    --older-than). It keeps anything that a job in the folder may still be writing, here or on another machine, or has
    left for 'asyncrec recover', and shows the reason.

    \b
    Example:
      asyncrec uploads demo-data
    """
    from asyncrec import tools

    options = parse_options(storage_option)
    age = parse_duration(older_than)
    report = run_async(lambda: tools.uploads(path, remove=remove, older_than=age, storage_options=options))
    if json:
        print_json(report.to_json())
    elif not report.supported:
        say(f"{report.path}: this store cannot list unfinished uploads")
    else:
        if report.found:
            rows = report.to_json()["uploads"]
            table(
                ["path", "bytes", "started", ""], ((row["path"], _size(row), row["begun"], _state(row)) for row in rows)
            )
        kept = f", {len(report.kept):,} kept" if report.kept else ""
        say(f"{len(report.found):,} unfinished, {len(report.removed):,} removed{kept}")
    return 0


def _size(row: Mapping[str, Any]) -> int | str:
    return "" if row["bytes"] is None else int(row["bytes"])


def _state(row: Mapping[str, Any]) -> str:
    if row["kept"]:
        return f"kept: {row['reason']}"
    return "removed" if row["removed"] else ""
