"""The options of ``filter``, ``sample``, ``merge`` and ``dedupe``, and the function that writes their targets."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Annotated, Any

import typer

from asyncrec.cli import _options as options
from asyncrec.cli._output import human_bytes, plural, print_json, say
from asyncrec.cli._progress import Bar
from asyncrec.cli._standard import STANDARD, standard_output
from asyncrec.cli._standard_streams import complain
from asyncrec.cli._values import opened_target, parse_compression, parse_size

if TYPE_CHECKING:
    from asyncrec.tools import WriteReport

Compression = Annotated[
    options.KeptCompression,
    typer.Option(help="Compression of the new shards; keep uses that of the source.", case_sensitive=False),
]
ShardBytes = Annotated[
    str | None,
    typer.Option(
        "--max-shard-bytes", metavar="SIZE", help="Maximum size of a shard, such as 64M or 1GiB. Default: 256MiB."
    ),
]


def write(
    doing: str,
    tool: Callable[..., Awaitable[WriteReport]],
    target: str,
    *,
    compression: str,
    max_shard_bytes: str | None,
    storage_option: list[str] | None,
    json: bool,
) -> int:
    """Run a tool that creates a new target, and print its report (to stderr if the records go to stdout).

    Args:
        doing: the label of the progress bar.
        tool: a function with the parameters ``target`` and ``progress``, and one for each option below.
        storage_option: the options of the target's backend.

    Raises:
        UsageError: the target is stdout, and stdout is a terminal.
    """
    arguments: dict[str, Any] = {
        "compression": parse_compression(compression),
        "max_shard_bytes": parse_size(max_shard_bytes),
        **opened_target(target, storage_option),
        # If the target is a file name, the tool writes a single file.
        "target": "stdout.tfrecord" if standard_output(target) else target,
    }
    with Bar(doing) as bar:
        report = options.run_async(lambda: tool(progress=bar, **arguments))
    if target == STANDARD:
        complain(f"{plural(report.records, 'record')} of {report.read:,}, {human_bytes(report.bytes)}")
    elif json:
        print_json(report.to_json())
    else:
        shards = plural(len(report.shards), "shard")
        read = plural(report.read, "record")
        say(f"{report.target}: {report.records:,} of {read} in {shards}, {human_bytes(report.bytes)}")
    return 0
