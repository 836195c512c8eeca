"""`write_asyncrec` writes shards in tasks. The driver then makes one commit with the shards of one attempt per task."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import pyarrow as pa
from ray.data.block import BlockAccessor
from ray.data.datasource import Datasink

from asyncrec._arguments import Size
from asyncrec._framing.compression import Compression
from asyncrec._shards.manifest.segment import ShardEntry
from asyncrec.example._schema import Schema
from asyncrec.integrations._engines import DriverJob, agree_on_types, check_types, open_driver_job, write_share
from asyncrec.integrations.arrow._column_types import ColumnTypes
from asyncrec.integrations.arrow._writing import schemas_of

__all__ = ["AsyncrecDatasink", "DriverJob", "WriteReport", "write_asyncrec"]


@dataclass(frozen=True, kw_only=True)
class WriteReport:
    """The result of `write_asyncrec`.

    Attributes:
        rows, bytes: the number of rows that this job added to the data set, and the stored size of its shards.
        shards: the entries of these shards in the manifest.
        repeated: whether an earlier run with the same ``job_id`` committed the shards, so that this run added nothing.
    """

    rows: int
    bytes: int
    shards: tuple[ShardEntry, ...]
    repeated: bool


def write_asyncrec(
    dataset: Any,
    path: str | os.PathLike[str],
    *,
    schema: Schema | Any = None,
    mode: Literal["append", "new", "replace"] = "append",
    job_id: str | None = None,
    take_over: bool = False,
    max_shard_bytes: Size | None = None,
    max_shard_records: int | None = None,
    min_rows_per_write: int | None = None,
    compression: Compression = "",
    index: bool = True,
    narrow: bool = True,
    metadata: Mapping[str, Any] | None = None,
    storage_options: dict[str, Any] | None = None,
    **options: Any,
) -> WriteReport:
    """Write each row of a ``ray.data.Dataset`` exactly once, or raise an error and commit no rows.

    If the error says that it is unknown whether the commit took effect, run the write again with the same ``job_id``.
    It writes the rows only if they have not been committed.

    Args:
        dataset: the rows; its columns become features as in `asyncrec.integrations.arrow.schema_of`.
        path: a folder and the data set's name in it, accessible by this path on every node.
        schema: the schema of the records, or a ``pyarrow.Schema``; by default, the schema of ``dataset``. A column that
            holds single values and nulls must be a VarLen, and rows that are Python objects need a schema.
        mode: ``"append"`` adds the rows to the data set; ``"new"`` raises an error if the data set exists;
            ``"replace"`` makes the rows the whole data set.
        job_id: a name for this work. If an earlier run with this id has committed, this run adds nothing.
        take_over: declare that an earlier run with this id, on another machine, is dead.
        max_shard_bytes, max_shard_records: the limits at which a shard is full; 256 MiB if neither is passed.
        min_rows_per_write: the minimum number of rows that Ray passes to each task, so that shards are not too small.
        compression, index: as for `asyncrec.open_sharded_writer`.
        narrow: whether to round float64 to float32. If false, a value that would change raises an error.
        metadata: a mapping to store in the manifest.
        storage_options: options for the backend, which every task uses.
        options: the options of ``ray.data.Dataset.write_datasink``: ``concurrency``, ``ray_remote_args``.

    Raises:
        SchemaError: a column holds times, and the data set stores another kind of times in it, or plain integers.
        ConflictError: a run with this id is alive, or another job has replaced the data set in the meantime.
        ObjectExistsError: the data set exists, with ``mode="new"``.
        StorageError, DatasetError: the commit failed.
        ray.exceptions.RayTaskError: a task failed. The error contains the SchemaError or StorageError of the task.
    """
    told = schema if schema is not None else _schema_of(dataset)
    records: Schema | None = None
    kept = dict(metadata or {})
    if told is not None:
        records, kept = schemas_of(told, kept)
    types = agree_on_types(path, records, kept, mode=mode, storage_options=storage_options)
    with open_driver_job(
        path,
        job_id=job_id,
        mode=mode,
        take_over=take_over,
        schema=None if records is None else records.to_json(),
        metadata=types.metadata,
        compression=compression,
        index=index,
        storage_options=storage_options,
    ) as job:
        repeated = job.committed is not None
        if not repeated:
            sink = AsyncrecDatasink(
                job,
                types,
                narrow=narrow,
                max_shard_bytes=max_shard_bytes,
                max_shard_records=max_shard_records,
                min_rows_per_write=min_rows_per_write,
                storage_options=storage_options,
            )
            dataset.write_datasink(sink, **options)
            if job.committed is None:  # Ray did not call the sink, because there are no rows
                job.commit([], 0)
        shards = job.committed or ()
    return WriteReport(
        rows=sum(shard.records for shard in shards),
        bytes=sum(shard.bytes for shard in shards),
        shards=shards,
        repeated=repeated,
    )


class AsyncrecDatasink(Datasink):  # type: ignore[misc]  # as above
    """The sink of `write_asyncrec` for one job. Tasks write shards, and `on_write_complete` commits them."""

    def __init__(
        self,
        job: DriverJob,
        types: ColumnTypes,
        *,
        narrow: bool = True,
        max_shard_bytes: Size | None = None,
        max_shard_records: int | None = None,
        min_rows_per_write: int | None = None,
        storage_options: dict[str, Any] | None = None,
    ) -> None:
        self._job: DriverJob | None = job
        self._share = job.share
        self._types = types
        self._narrow = narrow
        self._limits: dict[str, Any] = {"max_shard_bytes": max_shard_bytes, "max_shard_records": max_shard_records}
        self._min_rows = min_rows_per_write
        self._storage_options = storage_options

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_job": None}  # only the driver has the job

    def get_name(self) -> str:
        return "Asyncrec"

    @property
    def min_rows_per_write(self) -> int | None:
        return self._min_rows

    def on_write_start(self, schema: Any = None) -> None:
        """Do nothing, because the job began before Ray's tasks."""

    def write(self, blocks: Iterable[Any], ctx: Any) -> list[ShardEntry]:
        """Write a task's rows as shards. Ray calls this in the task."""
        return write_share(
            self._share,
            (BlockAccessor.for_block(block).to_arrow() for block in blocks),
            self._types,
            part=int(ctx.task_idx),
            narrow=self._narrow,
            limits=self._limits,
            storage_options=self._storage_options,
        )

    def on_write_complete(self, write_result: Any) -> None:
        """Commit the shards. Ray calls this in the driver."""
        assert self._job is not None, "Ray calls this in the driver"
        check_types(self._share.path, self._types, storage_options=self._storage_options)
        entries = [entry for returned in write_result.write_returns for entry in returned]
        self._job.commit(entries, int(write_result.num_rows))

    def on_write_failed(self, error: Exception) -> None:
        """Do nothing, because the driver ends the job and knows whether the commit may have taken effect."""


def _schema_of(dataset: Any) -> Any:
    """Return the Arrow schema of a dataset's rows, or `None` if unknown. This may run the dataset's first task."""
    found = dataset.schema()
    if found is None:
        return None
    if isinstance(found.base_schema, pa.Schema):
        return found.base_schema
    first = dataset.take_batch(1, batch_format="pyarrow")
    return first.schema
