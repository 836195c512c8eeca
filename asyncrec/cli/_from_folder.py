"""``asyncrec from-folder FOLDER TARGET``."""

from __future__ import annotations

from typing import Annotated

import typer

from asyncrec.cli._options import Debug, Json, SourceOptions, TargetOptions, run_async
from asyncrec.cli._progress import Bar
from asyncrec.cli._splits import Compression, Ratios, Seed, ShardBytes, SplitsTarget, show, split_arguments
from asyncrec.cli._values import stores


def command(
    source: Annotated[str, typer.Argument(metavar="FOLDER", help="A folder with a subfolder of files for each label.")],
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
    """Create train, eval and test data sets from images or other files, in folders named after their labels.

    Each record has the features data (the contents of the file), label (a number; the names are in the manifests, under
    "labels") and path. Every label is split in the same ratios. Existing data sets with these names are replaced.

    \b
    Example:
      mkdir -p photos/cat photos/dog
      touch photos/cat/1 photos/cat/2 photos/dog/1 photos/dog/2
      asyncrec from-folder photos labelled --ratios 0.5
    """
    from asyncrec import tools

    arguments = split_arguments(ratios, seed, max_shard_bytes, compression)
    opening = stores(source, storage_option, target, target_storage_option)
    with Bar("writing", of_bytes=False) as bar:
        report = run_async(lambda: tools.from_folder(source, target, progress=bar, **arguments, **opening))
    show(report, json)
    return 0
