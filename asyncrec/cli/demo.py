"""``asyncrec demo``."""

from __future__ import annotations

import tempfile
from contextlib import ExitStack
from typing import Annotated

import typer

from asyncrec.cli.options import Debug, Json, run_async
from asyncrec.cli.output import human_bytes, print_json, say, table


def command(
    folder: Annotated[
        str | None, typer.Argument(metavar="[FOLDER]", help="Where it stays; a temporary folder unless given.")
    ] = None,
    records: Annotated[int, typer.Option(min=1, help="So many.")] = 20_000,
    json: Json = False,
    debug: Debug = False,
) -> int:
    """Write, verify and read a small data set, and say how long each took."""
    from asyncrec import tools

    with ExitStack() as stack:
        where = folder or stack.enter_context(tempfile.TemporaryDirectory(prefix="asyncrec-demo-"))
        report = run_async(lambda: tools.demo(where, records=records))
    if json:
        print_json(report.to_json())
        return 0
    table(
        ["step", "records", "seconds", "records/s"],
        ((step.what, step.records, step.seconds, int(step.records / max(step.seconds, 1e-9))) for step in report.steps),
    )
    say()
    if folder:
        say(f"{report.path}: {report.shards:,} shards, {human_bytes(report.bytes)}")
        say(f"look at it with: asyncrec info {report.path}; asyncrec head {report.path}")
    else:
        say(
            f"{report.shards:,} shards of {human_bytes(report.bytes)}, removed again; 'asyncrec demo FOLDER' keeps them"
        )
    return 0
