"""``asyncrec filter SOURCE TARGET --where CONDITION``."""

from __future__ import annotations

from functools import partial

from asyncrec.cli._options import Debug, Json, MaxRecordBytes, NewTarget, Source, SourceOptions, TargetOptions
from asyncrec.cli._show_records import Newest, Wheres, conditions
from asyncrec.cli._values import opened
from asyncrec.cli._written import Compression, ShardBytes, write
from asyncrec.errors import UsageError


def command(
    source: Source,
    target: NewTarget,
    where: Wheres = None,
    newest: Newest = None,
    compression: Compression = "keep",
    max_shard_bytes: ShardBytes = None,
    max_record_bytes: MaxRecordBytes = None,
    storage_option: SourceOptions = None,
    target_storage_option: TargetOptions = None,
    json: Json = False,
    debug: Debug = False,
) -> int:
    """Write the records that match every condition to a new data set or file.

    Numbers are compared as numbers, and text byte by byte; if a feature is a list, one matching value is enough.
    Records keep their order and keys; the data set keeps its schema and metadata. With --newest, only the newest
    version of each key is considered. The source is not changed. If the command fails, nothing is written.

    \b
    Example:
      asyncrec filter demo-data/pages chosen/pages --where 'url contains example' --where 'label<5'
    """
    from asyncrec import tools

    chosen = conditions(where)
    if not chosen and newest is None:
        raise UsageError("no condition was passed; add one, such as --where NAME=VALUE, or --newest NAME")
    given = opened(source, storage_option, max_record_bytes)
    return write(
        "filtering",
        partial(tools.filter, source, where=chosen, newest=newest, **given),
        target,
        compression=compression,
        max_shard_bytes=max_shard_bytes,
        storage_option=target_storage_option,
        json=json,
    )
