"""``asyncrec from-csv FILE TARGET``; and what it shares with ``from-folder``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from asyncrec.cli._options import Debug, Json, SourceOptions, TargetOptions, parse_options, parse_size, run_async
from asyncrec.cli._output import print_json, say, table
from asyncrec.cli._progress import Bar
from asyncrec.errors import UsageError

if TYPE_CHECKING:
    from asyncrec.tools._splits import SplitsReport

__all__ = ["Compression", "Ratios", "Seed", "ShardBytes", "SplitsTarget", "parse_ratios", "show"]

SplitsTarget = Annotated[
    str, typer.Argument(metavar="TARGET", help="A folder; the data sets train, eval and test are made in it.")
]
Ratios = Annotated[
    str, typer.Option(metavar="A[,B[,C]]", help="0.8 is train and eval; three are train, eval and test.")
]
Seed = Annotated[int, typer.Option(help="Of the order, and of who goes where.")]
ShardBytes = Annotated[str | None, typer.Option("--max-shard-bytes", metavar="SIZE", help="Of a shard, as 64M.")]
Compression = Annotated[str, typer.Option(metavar="none|gzip|zlib", help="Of the shards.")]


def command(
    source: Annotated[str, typer.Argument(metavar="FILE", help="A CSV file whose first row names the columns.")],
    target: SplitsTarget,
    label: Annotated[
        str | None, typer.Option(metavar="COLUMN", help="Its values become numbers, their names are kept.")
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

    Columns of whole numbers become int64 features, of numbers float32, all others text. The names of the classes are in
    the manifests, under "labels". What is there of these names is replaced.
    """
    from asyncrec import tools

    options, target_options = parse_options(storage_option), parse_options(target_storage_option)
    size, shares = parse_size(max_shard_bytes), parse_ratios(ratios)
    with Bar("writing", of_bytes=False) as bar:
        report = run_async(
            lambda: tools.from_csv(
                source,
                target,
                label=label,
                files=file or (),
                ratios=shares,
                seed=seed,
                max_shard_bytes=size,
                compression="" if compression.lower() == "none" else compression.upper(),
                encoding=encoding,
                progress=bar,
                storage_options=options,
                target_storage_options=target_options,
            )
        )
    show(report, json)
    return 0


def parse_ratios(text: str) -> list[float] | float:
    try:
        shares = [float(part) for part in text.split(",")]
    except ValueError:
        raise UsageError(f"--ratios {text!r}: write 0.8, or 0.7,0.2,0.1") from None
    return shares[0] if len(shares) == 1 else shares


def show(report: SplitsReport, json: bool) -> None:
    if json:
        print_json(report.to_json())
        return
    table(["data set", "records"], ((f"{report.target.rstrip('/')}/{name}", n) for name, n in report.records.items()))
    say()
    say(f"features: {', '.join(report.features)}")
    if report.labels:
        shown = ", ".join(f"{number} {name}" for number, name in enumerate(report.labels[:20]))
        say(f"labels: {shown}{', ...' if len(report.labels) > 20 else ''}")
