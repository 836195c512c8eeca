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
        str | None, typer.Argument(metavar="PATH", help="A folder, or the URL of a bucket or of a prefix in a bucket.")
    ] = None,
    storage_option: StorageOptions = None,
    json: Json = False,
    debug: Debug = False,
) -> int:
    """Test whether a store meets the requirements of asyncrec with your credentials: plugins, permissions, conditional
    writes, checksums, latency.

    Without PATH, show the installed versions. Objects of up to 8 MiB are written below PATH and then deleted. The exit
    code is 3 if a required check fails. A lack of exclusive creation for large objects is reported, but is not a
    failure.

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
