"""`write_asyncrec`: tasks make shards, and the driver commits those of one attempt of each task, in one step."""

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
from asyncrec.integrations._engines import DriverJob, open_driver_job, write_share
from asyncrec.integrations.arrow._writing import schemas_of

__all__ = ["AsyncrecDatasink", "DriverJob", "WriteReport", "write_asyncrec"]


@dataclass(frozen=True, kw_only=True)
class WriteReport:
    """The result of `write_asyncrec`.

    Attributes:
        rows, bytes: what this job added to the data set; the bytes are those of the shards, as stored.
        shards: the shards, as in the manifest.
        repeated: whether an earlier run with the same ``job_id`` had committed them, and this run has added nothing.
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
    """Write the rows of a ``ray.data.Dataset``: each exactly once if this returns, no row if it raises.

    There is one exception: an error which says that it is unknown whether the commit took effect. Then run the write
    again with the same ``job_id``. It finds out, and writes only if the rows are not there.

    Args:
        dataset: the rows; its columns become features as in `asyncrec.integrations.arrow.schema_of`.
        path: a folder and the data set's name in it, which every node reaches by this path.
        schema: the schema of the records, or a ``pyarrow.Schema``; that of ``dataset`` by default. A column of single
            values that contains nulls must be a VarLen, and rows that are Python objects need a schema.
        mode: ``"append"``; ``"new"`` raises an error if there is a data set; ``"replace"`` makes this the whole data
            set.
        job_id: a name for this work, so that a second run adds nothing to what the first has committed.
        take_over: declare that an earlier run of this id, on another machine, is dead.
        max_shard_bytes, max_shard_records: when a shard is full; 256 MiB unless either is given.
        min_rows_per_write: Ray gives each task, and so each shard, at least this many rows.
        compression, index: as for `asyncrec.open_sharded_writer`.
        narrow: round float64 to float32; with ``False`` a value that would change is refused.
        metadata: stored in the manifest.
        storage_options: options for the backend, in every task.
        options: the options of ``ray.data.Dataset.write_datasink``: ``concurrency``, ``ray_remote_args``.

    Raises:
        ConflictError: a run of this id is alive; or another job has replaced the data set meanwhile.
        ObjectExistsError: with ``mode="new"``, there is a data set.
        StorageError, DatasetError: from the commit.
        ray.exceptions.RayTaskError: from a task, with the SchemaError or StorageError that it raised.
    """
    told = schema if schema is not None else _schema_of(dataset)
    records: Schema | None = None
    kept = dict(metadata or {})
    if told is not None:
        records, kept = schemas_of(told, kept)
    with open_driver_job(
        path,
        job_id=job_id,
        mode=mode,
        take_over=take_over,
        schema=None if records is None else records.to_json(),
        metadata=kept,
        compression=compression,
        index=index,
        storage_options=storage_options,
    ) as job:
        repeated = job.committed is not None
        if not repeated:
            sink = AsyncrecDatasink(
                job,
                records,
                narrow=narrow,
                max_shard_bytes=max_shard_bytes,
                max_shard_records=max_shard_records,
                min_rows_per_write=min_rows_per_write,
                storage_options=storage_options,
            )
            dataset.write_datasink(sink, **options)
            if job.committed is None:  # Ray ends well without having called it if there is nothing to be written
                job.commit([], 0)
        shards = job.committed or ()
    return WriteReport(
        rows=sum(shard.records for shard in shards),
        bytes=sum(shard.bytes for shard in shards),
        shards=shards,
        repeated=repeated,
    )


class AsyncrecDatasink(Datasink):  # type: ignore[misc]  # as above
    """The sink of `write_asyncrec`, for one job: tasks make shards, and `on_write_complete` commits them."""

    def __init__(
        self,
        job: DriverJob,
        schema: Schema | None,
        *,
        narrow: bool = True,
        max_shard_bytes: Size | None = None,
        max_shard_records: int | None = None,
        min_rows_per_write: int | None = None,
        storage_options: dict[str, Any] | None = None,
    ) -> None:
        self._job: DriverJob | None = job
        self._share = job.share
        self._schema = schema
        self._narrow = narrow
        self._limits: dict[str, Any] = {"max_shard_bytes": max_shard_bytes, "max_shard_records": max_shard_records}
        self._min_rows = min_rows_per_write
        self._storage_options = storage_options

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_job": None}  # the driver's alone

    def get_name(self) -> str:
        return "Asyncrec"

    @property
    def min_rows_per_write(self) -> int | None:
        return self._min_rows

    def on_write_start(self, schema: Any = None) -> None:
        """Do nothing: the job began before Ray's tasks."""

    def write(self, blocks: Iterable[Any], ctx: Any) -> list[ShardEntry]:
        """Write the shards of a task's rows, in the task."""
        return write_share(
            self._share,
            (BlockAccessor.for_block(block).to_arrow() for block in blocks),
            self._schema,
            part=int(ctx.task_idx),
            narrow=self._narrow,
            limits=self._limits,
            storage_options=self._storage_options,
        )

    def on_write_complete(self, write_result: Any) -> None:
        """Commit the shards, in the driver."""
        assert self._job is not None, "Ray calls this in the driver"
        entries = [entry for returned in write_result.write_returns for entry in returned]
        self._job.commit(entries, int(write_result.num_rows))

    def on_write_failed(self, error: Exception) -> None:
        """Do nothing: the driver ends the job, and knows whether its commit may have landed."""


def _schema_of(dataset: Any) -> Any:
    """Return the Arrow schema of a dataset's rows, or `None`. It may run the first of its tasks."""
    found = dataset.schema()
    if found is None:
        return None
    if isinstance(found.base_schema, pa.Schema):
        return found.base_schema
    first = dataset.take_batch(1, batch_format="pyarrow")
    return first.schema
