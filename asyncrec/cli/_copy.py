"""``asyncrec copy SOURCE TARGET``."""

from __future__ import annotations

from typing import Annotated

import typer

from asyncrec.cli._options import Debug, Json, Source, SourceOptions, Target, TargetOptions, run_async
from asyncrec.cli._output import human_bytes, print_json, say
from asyncrec.cli._progress import Bar
from asyncrec.cli._values import stores


def command(
    source: Source,
    target: Target,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace other files of the same names.")] = False,
    parallelism: Annotated[int, typer.Option(min=1, help="Objects at once.")] = 4,
    storage_option: SourceOptions = None,
    target_storage_option: TargetOptions = None,
    json: Json = False,
    debug: Debug = False,
) -> int:
    """Copy files and data sets between stores, held against their checksums on the way.

    A data set becomes the data set TARGET (folder and name), with indexes, keys, schema and metadata. Interrupted, it
    is taken up by copying again: what is there already and is the same stays. A data set that grew is brought up to
    date in the same way, and one that lost a shard gets it back.

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
        kept = f"; {len(report.kept):,} were there already" if report.kept else ""
        say(f"{len(report.copied):,} objects copied, {human_bytes(report.bytes)}{kept}; to {report.target}")
        if report.kept_by_size:
            say(
                f"of {len(report.kept_by_size):,} that were there the size is right, and what they hold was not "
                f"compared: 'asyncrec verify {report.target}' does; delete what it calls damaged, and copy again"
            )
    return 0
