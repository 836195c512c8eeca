"""``asyncrec doctor [PATH]``."""

from __future__ import annotations

from typing import Annotated

import typer

from asyncrec.cli._exits import FINE, STORAGE
from asyncrec.cli._options import Debug, Json, StorageOptions, run_async
from asyncrec.cli._output import pairs, print_json, say, table
from asyncrec.cli._values import parse_options


def command(
    path: Annotated[
        str | None, typer.Argument(metavar="PATH", help="A folder, or the URL of a bucket or a prefix in one.")
    ] = None,
    storage_option: StorageOptions = None,
    json: Json = False,
    debug: Debug = False,
) -> int:
    """Whether a store does what asyncrec needs of it, with the rights at hand: plugins, rights, conditional writes,
    checksums, latency.

    Without PATH it says what is installed. Objects of up to 8 MiB are written below PATH and deleted again. Exit code 3
    when something that is needed fails. A store that keeps two writers of a small object apart, but not of a large one,
    is told of and is no failure.

    \b
    Example:
      asyncrec doctor demo-data
    """
    from asyncrec import tools

    options = parse_options(storage_option)
    report = run_async(lambda: tools.doctor(path, storage_options=options))
    if json:
        print_json(report.to_json())
    else:
        pairs(report.installed)
        if path is None:
            return FINE
        say()
        table(
            ["check", "", "detail"],
            ((each.name, {True: "ok", False: "FAILED", None: "-"}[each.ok], each.detail) for each in report.checks),
        )
    return FINE if report.ok else STORAGE
