"""``asyncrec from-folder FOLDER TARGET``."""

from __future__ import annotations

from typing import Annotated

import typer

from asyncrec.cli._from_csv import Compression, Ratios, Seed, ShardBytes, SplitsTarget, parse_ratios, show
from asyncrec.cli._options import Debug, Json, SourceOptions, TargetOptions, parse_options, parse_size, run_async
from asyncrec.cli._progress import Bar


def command(
    source: Annotated[str, typer.Argument(metavar="FOLDER", help="It holds a folder of files for each label.")],
    target: SplitsTarget,
    ratios: Ratios = "0.8",
    seed: Seed = 0,
    max_shard_bytes: ShardBytes = None,
    compression: Compression = "none",
    storage_option: SourceOptions = None,
    target_storage_option: TargetOptions = None,
    json: Json = False,
    debug: Debug = False,
) -> int:
    """Images or other files, in folders named by their label, become the data sets train, eval and test.

    A record holds data (the file's bytes), label (a number; the names are in the manifests, under "labels") and path.
    Each data set gets its share of every label. What is there of these names is replaced.
    """
    from asyncrec import tools

    options, target_options = parse_options(storage_option), parse_options(target_storage_option)
    size, shares = parse_size(max_shard_bytes), parse_ratios(ratios)
    with Bar("writing", of_bytes=False) as bar:
        report = run_async(
            lambda: tools.from_folder(
                source,
                target,
                ratios=shares,
                seed=seed,
                max_shard_bytes=size,
                compression="" if compression.lower() == "none" else compression.upper(),
                progress=bar,
                storage_options=options,
                target_storage_options=target_options,
            )
        )
    show(report, json)
    return 0
