"""The options of ``from-csv`` and ``from-folder``, and the printing of their reports."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from asyncrec.cli import _options as options
from asyncrec.cli._output import print_json, say, table
from asyncrec.cli._values import parse_compression, parse_size
from asyncrec.errors import UsageError

if TYPE_CHECKING:
    from asyncrec.tools._splits import SplitsReport

SplitsTarget = Annotated[
    str, typer.Argument(metavar="TARGET", help="The folder for the data sets train, eval and test.")
]
Ratios = Annotated[
    str,
    typer.Option(
        metavar="A[,B[,C]]",
        help=(
            "Ratios of the splits: 0.8 for train and eval, or three numbers for train, eval and test (0.8,0,0.2 for "
            "train and test)."
        ),
    ),
]
Seed = Annotated[int, typer.Option(help="Seed for the order and the split.")]
ShardBytes = Annotated[
    str | None, typer.Option("--max-shard-bytes", metavar="SIZE", help="Maximum size of a shard, such as 64M.")
]
Compression = Annotated[options.Compression, typer.Option(help="Compression of the shards.", case_sensitive=False)]


def split_arguments(ratios: str, seed: int, max_shard_bytes: str | None, compression: str) -> dict[str, Any]:
    """Parse the options into arguments for the tool."""
    return {
        "ratios": _parse_ratios(ratios),
        "seed": seed,
        "max_shard_bytes": parse_size(max_shard_bytes),
        "compression": parse_compression(compression),
    }


def show(report: SplitsReport, json: bool) -> None:
    if json:
        print_json(report.to_json())
        return
    table(["data set", "records"], ((f"{report.target.rstrip('/')}/{name}", n) for name, n in report.records.items()))
    say()
    say(f"features: {', '.join(f'{name} ({report.types[name]})' for name in report.features)}")
    if report.labels:
        labels = ", ".join(f"{number} {name or repr(name)}" for number, name in enumerate(report.labels[:20]))
        say(f"labels: {labels}{', ...' if len(report.labels) > 20 else ''}")
    for note in report.notes:
        say(note)


def _parse_ratios(text: str) -> list[float] | float:
    try:
        shares = [float(part) for part in text.split(",")]
    except ValueError:
        raise UsageError(f"--ratios {text!r}: write 0.8, or 0.7,0.2,0.1") from None
    return shares[0] if len(shares) == 1 else shares
