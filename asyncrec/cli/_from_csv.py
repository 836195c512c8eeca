"""``asyncrec from-csv FILE TARGET``."""

from __future__ import annotations

from typing import Annotated

import typer

from asyncrec.cli._options import Debug, Json, SourceOptions, TargetOptions, run_async
from asyncrec.cli._progress import Bar
from asyncrec.cli._splits import Compression, Ratios, Seed, ShardBytes, SplitsTarget, show, split_arguments
from asyncrec.cli._values import stores


def command(
    source: Annotated[str, typer.Argument(metavar="FILE", help="A CSV file whose first row names the columns.")],
    target: SplitsTarget,
    label: Annotated[
        str | None,
        typer.Option(metavar="COLUMN", help="The column of labels, stored as numbers; the manifests list their names."),
    ] = None,
    key: Annotated[str | None, typer.Option(metavar="COLUMN", help="The column of keys (text).")] = None,
    file: Annotated[
        list[str] | None,
        typer.Option(
            metavar="COLUMN", help="A column of paths; the contents of these files are stored. Can be repeated."
        ),
    ] = None,
    ratios: Ratios = "0.8",
    seed: Seed = 0,
    max_shard_bytes: ShardBytes = None,
    compression: Compression = "none",
    encoding: Annotated[str, typer.Option(help="Encoding of the CSV file.")] = "utf-8",
    storage_option: SourceOptions = None,
    target_storage_option: TargetOptions = None,
    json: Json = False,
    debug: Debug = False,
) -> int:
    """Create train, eval and test data sets from the rows of a CSV file, splitting every label in the same ratios.

    A column of whole numbers becomes an int64 feature, a column of other numbers float32, and any other column text. In
    a column of numbers, an empty cell is a missing value; a cell that makes such a column text is reported with its
    line number. The names of the labels are in the manifests, under "labels". Existing data sets with these names are
    replaced.

    \b
    Example:
      printf 'n,kind\\n1,a\\n2,b\\n3,a\\n4,b\\n' > table.csv
      asyncrec from-csv table.csv tables --label kind --ratios 0.5
    """
    from asyncrec import tools

    arguments = split_arguments(ratios, seed, max_shard_bytes, compression)
    opening = stores(source, storage_option, target, target_storage_option)
    with Bar("writing", of_bytes=False) as bar:
        report = run_async(
            lambda: tools.from_csv(
                source,
                target,
                label=label,
                key=key,
                files=file or (),
                encoding=encoding,
                progress=bar,
                **arguments,
                **opening,
            )
        )
    show(report, json)
    return 0
