"""``asyncrec copy SOURCE TARGET``."""

from __future__ import annotations

from typing import Annotated

import typer

from asyncrec.cli._options import Debug, Json, Source, SourceOptions, Target, TargetOptions, run_async
from asyncrec.cli._output import human_bytes, plural, print_json, say
from asyncrec.cli._progress import Bar
from asyncrec.cli._values import stores


def command(
    source: Source,
    target: Target,
    overwrite: Annotated[
        bool,
        typer.Option(
            "--overwrite", help="Overwrite files in the target that have the same name but different contents."
        ),
    ] = False,
    parallelism: Annotated[int, typer.Option(min=1, help="Number of objects to copy at once.")] = 4,
    storage_option: SourceOptions = None,
    target_storage_option: TargetOptions = None,
    json: Json = False,
    debug: Debug = False,
) -> int:
    """Copy files and data sets between stores, verifying their checksums.

    A data set is copied to the data set TARGET (folder and name), with indexes, keys, schema and metadata. If a copy is
    interrupted, run it again: identical objects in the target are kept. A later run also updates the copy after the
    data set has grown, and restores lost shards.

    \b
    Example:
      asyncrec copy demo-data/pages copied/pages
    """
    from asyncrec import tools

    opening = stores(source, storage_option, target, target_storage_option)
    with Bar("copying") as bar:
        report = run_async(
            lambda: tools.copy(source, target, overwrite=overwrite, parallelism=parallelism, progress=bar, **opening)
        )
    if json:
        print_json(report.to_json())
    else:
        kept = f"; {len(report.kept):,} already existed" if report.kept else ""
        say(f"{plural(len(report.copied), 'object')} copied to {report.target}, {human_bytes(report.bytes)}{kept}")
        if report.kept_by_size:
            say(
                f"{len(report.kept_by_size):,} existing objects have the right size, but their contents were not "
                f"compared. To check them, run 'asyncrec verify {report.target}'; delete those that are damaged "
                "and copy again"
            )
    return 0
