"""``asyncrec reshard SOURCE TARGET``."""

from __future__ import annotations

from typing import Annotated, Literal

import typer

from asyncrec.cli._exits import DAMAGE, FINE
from asyncrec.cli._options import (
    Debug,
    Jobs,
    Json,
    KeptCompression,
    MaxRecordBytes,
    Source,
    SourceOptions,
    Target,
    TargetOptions,
    feature_option,
    run_async,
)
from asyncrec.cli._output import human_bytes, plural, print_json, say
from asyncrec.cli._progress import Bar
from asyncrec.cli._values import parse_compression, parse_size, stores

_MOST_SHOWN = 20


def command(
    source: Source,
    target: Target,
    num_shards: Annotated[int | None, typer.Option("-n", "--num-shards", min=1, help="Number of shards.")] = None,
    max_shard_bytes: Annotated[
        str | None, typer.Option(metavar="SIZE", help="Maximum size of a shard, such as 64M or 1GiB.")
    ] = None,
    max_shard_records: Annotated[int | None, typer.Option(min=1, help="Maximum number of records in a shard.")] = None,
    compression: Annotated[
        KeptCompression,
        typer.Option(help="Compression of the new shards; keep uses that of the source.", case_sensitive=False),
    ] = "keep",
    shuffle: Annotated[bool, typer.Option("--shuffle", help="Shuffle the records.")] = False,
    seed: Annotated[int, typer.Option(help="Seed for --shuffle.")] = 0,
    group_by: Annotated[
        str | None, feature_option("Place records with equal values of this feature next to each other.")
    ] = None,
    on_corrupt: Annotated[
        Literal["raise", "skip"],
        typer.Option(help="skip omits damaged records, reports them, and sets the exit code to 1."),
    ] = "raise",
    temporary_folder: Annotated[
        str | None,
        typer.Option(
            metavar="FOLDER", help="A folder for temporary files while sorting; it needs space for all records."
        ),
    ] = None,
    jobs: Jobs = None,
    max_record_bytes: MaxRecordBytes = None,
    storage_option: SourceOptions = None,
    target_storage_option: TargetOptions = None,
    json: Json = False,
    debug: Debug = False,
) -> int:
    """Rewrite a data set with different shards, compression or order.

    Keys, schema and metadata are kept. If the command fails, nothing is written. By default, shards are at most 256
    MiB. '--on-corrupt skip' keeps the intact records of a damaged data set.

    \b
    Example:
      asyncrec reshard demo-data/pages new/pages --num-shards 4 --shuffle --seed 7
    """
    from asyncrec import tools

    opening = stores(source, storage_option, target, target_storage_option, max_record_bytes)
    size = parse_size(max_shard_bytes)
    with Bar("resharding") as bar:
        report = run_async(
            lambda: tools.reshard(
                source,
                target,
                num_shards=num_shards,
                max_shard_bytes=size,
                max_shard_records=max_shard_records,
                compression=parse_compression(compression),
                shuffle=shuffle,
                seed=seed,
                group_by=group_by,
                on_corrupt=on_corrupt,
                temporary_folder=temporary_folder,
                jobs=jobs,
                progress=bar,
                **opening,
            )
        )
    if json:
        print_json(report.to_json())
    else:
        for loss in report.losses[:_MOST_SHOWN]:
            lost = "" if loss.records is None else f"{plural(loss.records, 'record')} lost, "
            keys = f"; {plural(loss.without_key, 'record')} kept without a key" if loss.without_key else ""
            say(f"{loss.path}: damaged: {lost}{human_bytes(loss.bytes)}{keys}")
        if len(report.losses) > _MOST_SHOWN:
            say(f"... and {len(report.losses) - _MOST_SHOWN:,} more (--json lists all)")
        records, shards = plural(report.records, "record"), plural(len(report.shards), "shard")
        say(f"{report.target}: {records} in {shards}, {human_bytes(report.bytes)}")
    return DAMAGE if report.losses else FINE
