"""``asyncrec merge SOURCE... TARGET``."""

from __future__ import annotations

from functools import partial
from typing import Annotated

from asyncrec.cli._options import Debug, Json, MaxRecordBytes, SourceOptions, TargetOptions, path_argument
from asyncrec.cli._values import opened
from asyncrec.cli._written import Compression, ShardBytes, write
from asyncrec.errors import UsageError


def command(
    sources: Annotated[
        list[str],
        path_argument(
            "SOURCE... TARGET",
            "Files, folders, patterns or data sets, followed by the target: a new data set, a file NAME.tfrecord, "
            "or - for standard output.",
        ),
    ],
    compression: Compression = "keep",
    max_shard_bytes: ShardBytes = None,
    max_record_bytes: MaxRecordBytes = None,
    storage_option: SourceOptions = None,
    target_storage_option: TargetOptions = None,
    json: Json = False,
    debug: Debug = False,
) -> int:
    """Concatenate the records of several data sets into a new one.

    Keys and metadata are kept. A record that is in two sources is written twice; 'asyncrec dedupe' removes duplicates.
    The sources must have the same schema, or none. They are not changed. If the command fails, nothing is written.

    \b
    Example:
      asyncrec merge demo-data/pages demo-data/pages merged/pages
    """
    from asyncrec import tools

    *given, target = sources
    if not given:
        raise UsageError("no source was passed; usage: asyncrec merge SOURCE... TARGET")
    return write(
        "merging",
        partial(tools.merge, given, **opened("", storage_option, max_record_bytes)),
        target,
        compression=compression,
        max_shard_bytes=max_shard_bytes,
        storage_option=target_storage_option,
        json=json,
    )
