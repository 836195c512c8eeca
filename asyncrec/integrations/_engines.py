"""Code shared by the Ray and Spark integrations, which divides parts among tasks and writes shards in tasks."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from itertools import groupby
from typing import Any

from asyncrec._shards.manifest.segment import ShardEntry
from asyncrec._shards.writing import joint_job
from asyncrec._shards.writing.joint_job import JobShare
from asyncrec.blocking._owner import Handle, as_call, as_context
from asyncrec.example._schema import Schema
from asyncrec.integrations.arrow import Part, _column_types, schema_of
from asyncrec.integrations.arrow._column_types import ColumnTypes
from asyncrec.integrations.arrow._to_records import null_columns, records_from
from asyncrec.integrations.arrow._writing import pieces
from asyncrec.storage._url import redact

PART_BYTES = 128 << 20  # the size of a task's part; the same as Ray's block size and Spark's split size
_GZIP_FACTOR = 4  # the approximate compression ratio of web pages, to estimate the number of tasks


def seen_from_tasks(path: str | os.PathLike[str]) -> str:
    """Return the path as an absolute path or URL, because tasks run in a different working folder."""
    where = os.fspath(path)
    return where if "://" in where else os.path.abspath(where)


def read_size(part: Part) -> int:
    """Return the approximate size in bytes of a part's records after decompression."""
    return part.bytes * (1 if part.compression == "" else _GZIP_FACTOR)


def groups(parts: tuple[Part, ...], most: int) -> list[tuple[Part, ...]]:
    """Return at most ``most`` groups of neighbouring parts, of about equal size in bytes."""
    total = sum(map(read_size, parts)) or 1
    before = 0
    numbered = []
    for part in parts:
        numbered.append((min(most - 1, before * most // total), part))
        before += read_size(part) or 1
    return [tuple(part for _, part in group) for _, group in groupby(numbered, key=lambda each: each[0])]


class _Share(Handle[joint_job.ShareWriter]):
    def write(self, records: list[bytes]) -> None:
        self._owner.call(self._value.write, records)

    @property
    def entries(self) -> list[ShardEntry]:
        return self._value.entries


_open_share = as_context(joint_job.open_share, _Share)


class DriverJob(Handle[joint_job.JointJob]):
    """A joint job in the driver process, with methods that need no async."""

    @property
    def share(self) -> JobShare:
        return self._value.share

    @property
    def committed(self) -> tuple[ShardEntry, ...] | None:
        return self._value.committed

    def commit(self, entries: list[ShardEntry], records: int) -> None:
        async def commit() -> None:
            await self._value.commit(entries, records=records)

        self._owner.call_inside(commit)


open_driver_job = as_context(joint_job.open_joint_job, DriverJob)


_agreed_types, check_types = as_call(_column_types.agreed_types), as_call(_column_types.check_types)


def agree_on_types(
    path: str | os.PathLike[str],
    schema: Schema | None,
    metadata: Mapping[str, Any],
    *,
    mode: str,
    storage_options: dict[str, Any] | None = None,
) -> ColumnTypes:
    """Return the column types to use when writing to a data set. The driver must call `check_types` before it commits.

    Args:
        path: the path of the data set.
        schema: the schema of the records; by default, the schema of each batch.
        metadata: the metadata for the manifest, with the Arrow schema of the batches if it is known.
        mode: ``"append"``, ``"new"`` or ``"replace"``.
        storage_options: options for the backend.
    """
    types = ColumnTypes(redact(os.fspath(path)), schema, metadata, mode=mode)
    return _agreed_types(path, types, storage_options=storage_options)


def write_share(
    share: JobShare,
    batches: Iterable[Any],
    types: ColumnTypes,
    *,
    part: int,
    narrow: bool,
    limits: Mapping[str, Any],
    storage_options: dict[str, Any] | None,
) -> list[ShardEntry]:
    """Write a task's rows as shards and return their entries. The driver must commit them to the data set.

    Args:
        share: what the job's tasks need to know about the job.
        batches: the rows, as Tables or RecordBatches.
        types: the types of the columns, and the schema of the records; by default, the schema of each batch.
        part: the number of the task, which determines the order of the shards in the data set.
        narrow: whether to round float64 to float32.
        limits: ``max_shard_bytes`` and ``max_shard_records``.
        storage_options: options for the backend.
    """
    with _open_share(share, part=part, storage_options=storage_options, **limits) as opened:
        for given in batches:
            batch = types.cast(given)
            told = types.schema or schema_of(batch.schema, nulls=null_columns(batch))
            for first, piece in pieces(batch):
                opened.write(records_from(piece, told, narrow=narrow, first=first))
    return opened.entries
