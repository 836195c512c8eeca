"""``asyncrec dedupe SOURCE TARGET``."""

from __future__ import annotations

from functools import partial
from typing import Annotated

import typer

from asyncrec.cli._options import (
    Debug,
    Json,
    MaxRecordBytes,
    NewTarget,
    Source,
    SourceOptions,
    TargetOptions,
    feature_option,
)
from asyncrec.cli._values import opened
from asyncrec.cli._written import Compression, ShardBytes, write
from asyncrec.errors import UsageError


def known_by(by_key: bool, by: str | None) -> str | None:
    """Return the criterion by which records are compared, or `None` if neither option is passed."""
    if by_key and by is not None:
        raise UsageError("--by-key and --by cannot be combined")
    return "key" if by_key else None if by is None else f"feature:{by}"


def command(
    source: Source,
    target: NewTarget,
    by_key: Annotated[bool, typer.Option("--by-key", help="Treat records with the same key as duplicates.")] = False,
    by: Annotated[
        str | None, feature_option("Treat records with the same value of this feature as duplicates.")
    ] = None,
    keep: Annotated[
        str,
        typer.Option(
            metavar="first|last|newest-by=FEATURE",
            help="Which duplicate to keep; first and last refer to commit order.",
        ),
    ] = "first",
    compression: Compression = "keep",
    max_shard_bytes: ShardBytes = None,
    temporary_folder: Annotated[
        str | None,
        typer.Option(
            metavar="FOLDER",
            help="A folder for temporary files (40 to 73 bytes per record), used only for millions of records.",
        ),
    ] = None,
    max_record_bytes: MaxRecordBytes = None,
    storage_option: SourceOptions = None,
    target_storage_option: TargetOptions = None,
    json: Json = False,
    debug: Debug = False,
) -> int:
    """Write records to a new data set, keeping only one of each group of duplicates.

    Records are duplicates if their bytes are equal; --by-key compares their keys instead, and --by a feature. The
    source is read two or three times and not changed. If the command fails, nothing is written.

    \b
    Example:
      asyncrec dedupe demo-data/pages unique/pages --by url
    """
    from asyncrec import tools

    what = known_by(by_key, by) or "content"
    given = opened(source, storage_option, max_record_bytes)
    return write(
        "reading",
        partial(tools.dedupe, source, by=what, keep=keep, temporary_folder=temporary_folder, **given),
        target,
        compression=compression,
        max_shard_bytes=max_shard_bytes,
        storage_option=target_storage_option,
        json=json,
    )
