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
        str | None, typer.Option(metavar="COLUMN", help="Its values become numbers, their names are kept.")
    ] = None,
    key: Annotated[
        str | None, typer.Option(metavar="COLUMN", help="Its values are the keys of the records; it is text.")
    ] = None,
    file: Annotated[
        list[str] | None,
        typer.Option(metavar="COLUMN", help="It holds paths; the bytes of the files are stored. May be repeated."),
    ] = None,
    ratios: Ratios = "0.8",
    seed: Seed = 0,
    max_shard_bytes: ShardBytes = None,
    compression: Compression = "none",
    encoding: Annotated[str, typer.Option(help="Of the CSV file.")] = "utf-8",
    storage_option: SourceOptions = None,
    target_storage_option: TargetOptions = None,
    json: Json = False,
    debug: Debug = False,
) -> int:
    """Rows of a CSV file become the data sets train, eval and test, each with its share of every label.

    Columns of whole numbers become int64 features, of numbers float32, all others text (bytes). An empty cell is text,
    and so is its column: where it seems a slip, its line is named. The names of the classes are in the manifests, under
    "labels". What is there of these names is replaced.

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
