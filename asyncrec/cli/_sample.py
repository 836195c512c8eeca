"""``asyncrec sample SOURCE [TARGET]``."""

from __future__ import annotations

from functools import partial
from typing import Annotated, Any

import typer

from asyncrec.cli._completion import complete_path
from asyncrec.cli._options import Debug, Json, MaxRecordBytes, Source, SourceOptions, TargetOptions, run_async
from asyncrec.cli._show_records import Features, Format, RecordView, show_all
from asyncrec.cli._values import opened
from asyncrec.cli._written import Compression, ShardBytes, write
from asyncrec.errors import UsageError


def command(
    source: Source,
    target: Annotated[
        str | None,
        typer.Argument(
            metavar="TARGET",
            help=(
                "A new data set, a file NAME.tfrecord, or - for standard output; without TARGET, the records are shown."
            ),
            autocompletion=complete_path,
        ),
    ] = None,
    limit: Annotated[int | None, typer.Option("-n", "--limit", min=0, help="Number of records. Default: 10.")] = None,
    fraction: Annotated[
        float | None, typer.Option(min=0, max=1, help="Fraction of all records, such as 0.01, instead of a number.")
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed for the selection; a different seed selects different records.")] = 0,
    format: Format = "auto",
    feature: Features = None,
    compression: Compression = "keep",
    max_shard_bytes: ShardBytes = None,
    max_record_bytes: MaxRecordBytes = None,
    storage_option: SourceOptions = None,
    target_storage_option: TargetOptions = None,
    json: Json = False,
    debug: Debug = False,
) -> int:
    """Show records selected uniformly at random, or write them to a new data set.

    The same seed selects the same records. They keep their order and keys. The source is not changed.

    \b
    Example:
      asyncrec sample demo-data/pages -n 3 --seed 7
    """
    from asyncrec import tools

    if limit is not None and fraction is not None:
        raise UsageError("--limit and --fraction cannot be combined")
    count = 10 if limit is None and fraction is None else limit
    given = opened(source, storage_option, max_record_bytes)
    if target is None:
        _show(source, count, fraction, seed, RecordView("json" if json else format, feature, whole=False), given)
        return 0
    return write(
        "sampling",
        partial(tools.sample, source, records=count, fraction=fraction, seed=seed, **given),
        target,
        compression=compression,
        max_shard_bytes=max_shard_bytes,
        storage_option=target_storage_option,
        json=json,
    )


def _show(
    source: str, count: int | None, fraction: float | None, seed: int, view: RecordView, opening: dict[str, Any]
) -> None:
    from asyncrec import tools

    view.printer()  # reject invalid options before any file is opened

    async def run() -> None:
        async with tools.open_sample(source, records=count, fraction=fraction, seed=seed, **opening) as stream:
            printer = view.printer(source, stream.selection.schema)
            async for records in stream:
                show_all(printer, records)
            printer.end(source)

    run_async(run)
