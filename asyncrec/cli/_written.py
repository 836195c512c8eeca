"""``filter``, ``sample``, ``merge`` and ``dedupe`` share this: their options, and what they say of what they wrote."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from asyncrec.cli import _options as options
from asyncrec.cli._output import human_bytes, plural, print_json, say
from asyncrec.cli._standard import STANDARD, standard_output
from asyncrec.cli._standard_streams import complain
from asyncrec.cli._values import opened_target, parse_compression, parse_size

if TYPE_CHECKING:
    from asyncrec.tools import WriteReport

Compression = Annotated[
    options.KeptCompression,
    typer.Option(help="Of what is written; unless given that of the source.", case_sensitive=False),
]
ShardBytes = Annotated[
    str | None, typer.Option("--max-shard-bytes", metavar="SIZE", help="Of a shard, as 64M or 1GiB; 256MiB.")
]


def target_arguments(
    target: str, compression: str, max_shard_bytes: str | None, for_target: list[str] | None
) -> dict[str, Any]:
    """The arguments of a tool that say where and how it writes.

    Raises:
        UsageError: the target is standard output, and a terminal reads it.
    """
    arguments: dict[str, Any] = {
        "compression": parse_compression(compression),
        "max_shard_bytes": parse_size(max_shard_bytes),
        **opened_target(target, for_target),
    }
    # The tool is told that it is a single file by what it is called.
    return arguments | {"target": "stdout.tfrecord" if standard_output(target) else target}


def show(report: WriteReport, target: str, json: bool) -> None:
    """Say what was written: on stderr where it went to stdout."""
    if target == STANDARD:
        complain(f"{plural(report.records, 'record')} of {report.read:,}, {human_bytes(report.bytes)}")
        return
    if json:
        print_json(report.to_json())
        return
    shards = plural(len(report.shards), "shard")
    say(
        f"{report.target}: {report.records:,} of {plural(report.read, 'record')} in {shards}, "
        f"{human_bytes(report.bytes)}"
    )
