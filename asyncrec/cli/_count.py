"""``asyncrec count PATH``."""

from __future__ import annotations

import json as json_format
import re
from typing import Annotated, Any

import typer

from asyncrec.cli._options import Debug, Input, Jobs, Json, MaxRecordBytes, StorageOptions, feature_option, run_async
from asyncrec.cli._output import clean, print_json, say, table
from asyncrec.cli._progress import Bar
from asyncrec.cli._show_records import Wheres, conditions
from asyncrec.cli._values import opened

_NUMBER = re.compile(r"-?[\d,.]+(e[+-]?\d+)?")


def command(
    path: Input,
    shards: Annotated[bool, typer.Option("--shards", help="Also show the count of each shard.")] = False,
    by: Annotated[
        str | None, feature_option("Also count by the values of this feature, at most 10,000 distinct ones.")
    ] = None,
    where: Wheres = None,
    jobs: Jobs = None,
    max_record_bytes: MaxRecordBytes = None,
    storage_option: StorageOptions = None,
    json: Json = False,
    debug: Debug = False,
) -> int:
    """Count records, using the manifest, valid indexes, or the length of every record.

    With --by or --where, all records are read.

    \b
    Example:
      asyncrec count demo-data/pages
    """
    from asyncrec import tools

    chosen = conditions(where)
    options = opened(path, storage_option, max_record_bytes)
    with Bar("counting") as bar:
        report = run_async(lambda: tools.count(path, by=by, where=chosen, jobs=jobs, progress=bar, **options))
    if json:
        print_json(report.to_json())
    elif shards or report.by is not None:
        if shards:
            table(["shard", "records"], report.shards)
        if report.by is not None:
            table([by or "", "records"], [(_cell(value), n) for value, n in report.by])
        say(f"{report.records} in total")
    else:
        say(str(report.records))
    return 0


def _cell(value: Any) -> int | str:
    """Return a cell of the table, which is different for each value. Text is quoted only if it could be misread."""
    if value is None:
        return "(absent)"
    return value if isinstance(value, int) or _is_clear(value) else json_format.dumps(value, ensure_ascii=False)


def _is_clear(value: Any) -> bool:
    """Return whether a value is a text that cannot be mistaken for another value or another text."""
    return (
        isinstance(value, str)
        and value not in ("", "(absent)")
        and value == value.strip() == clean(value, line=True)
        and value[0] not in '"[{'
        and "\\" not in value
        and not _NUMBER.fullmatch(value)
    )
