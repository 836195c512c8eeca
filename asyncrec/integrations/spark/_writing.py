"""Write shards in tasks. The driver then makes one commit, with the shards of one attempt at each task."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage

from asyncrec._shards.manifest.segment import ShardEntry
from asyncrec._shards.writing.detached_job import DetachedJob, begin_detached_job
from asyncrec._shards.writing.job import Mode
from asyncrec.blocking._owner import as_call
from asyncrec.errors import ArgumentValueError
from asyncrec.integrations._engines import agree_on_types, check_types, seen_from_tasks, write_share
from asyncrec.integrations.arrow._writing import schemas_of
from asyncrec.integrations.spark._types import arrow_of

_MODES: dict[str, Mode] = {"append": "append", "fail": "new"}

_begin, _commit, _give_up = as_call(begin_detached_job), as_call(DetachedJob.commit), as_call(DetachedJob.give_up)


@dataclass
class _Made(WriterCommitMessage):  # type: ignore[misc]  # types are checked without PySpark
    """The result of a task that has written ``rows`` rows."""

    rows: int
    entries: list[ShardEntry]


class Writer(DataSourceArrowWriter):  # type: ignore[misc]  # as above
    """The writer that Spark creates once per write, in a process that ends before the first task begins.

    Therefore, the job is detached. The tasks and the commit use pickled copies of this object.
    """

    def __init__(self, options: dict[str, Any], schema: Any, *, overwrite: bool) -> None:
        exists = options.get("if_exists", "append")
        if exists not in _MODES:
            raise ArgumentValueError(f"option if_exists={exists!r}: must be {' or '.join(map(repr, _MODES))}")
        if overwrite and "if_exists" in options:
            raise ArgumentValueError(
                'option if_exists: cannot be combined with mode("overwrite"), which already replaces the data set'
            )
        records, metadata = schemas_of(options.get("schema", arrow_of(schema)), options.get("metadata"))
        self._narrow = options.get("narrow", True)
        self._limits = {name: options.get(name) for name in ("max_shard_bytes", "max_shard_records")}
        self._storage_options = options.get("storage_options")
        path, mode = seen_from_tasks(options["path"]), "replace" if overwrite else _MODES[exists]
        self._types = agree_on_types(path, records, metadata, mode=mode, storage_options=self._storage_options)
        told = ("job_id", "compression", "index", "storage_options")
        self._job = _begin(
            path,
            mode=mode,
            schema=records.to_json(),
            metadata=self._types.metadata,
            **{name: options[name] for name in told if name in options},
        )

    def write(self, iterator: Iterator[Any]) -> _Made:
        """Write a task's rows as shards. Spark calls this in the task."""
        if self._job.header is None:  # an earlier run with this job_id has committed
            return _Made(0, [])
        rows = 0

        def counted() -> Iterator[Any]:
            nonlocal rows
            for batch in iterator:
                rows += batch.num_rows
                yield batch

        entries = write_share(
            self._job.share,
            counted(),
            self._types,
            part=TaskContext.get().partitionId(),
            narrow=self._narrow,
            limits=self._limits,
            storage_options=self._storage_options,
        )
        return _Made(rows, entries)

    def commit(self, messages: Sequence[_Made | None]) -> None:
        """Commit the shards of one attempt at each task, or nothing at all. Spark calls this in the driver."""
        if self._job.header is not None:
            check_types(self._job.share.path, self._types, storage_options=self._storage_options)
        made = [message for message in messages if message is not None]
        entries = [entry for message in made for entry in message.entries]
        rows = sum(message.rows for message in made)
        _commit(self._job, entries, records=rows, storage_options=self._storage_options)

    def abort(self, messages: Sequence[_Made | None]) -> None:
        """Abandon the job unless it may have committed. Spark calls this in the driver, even after a failed commit."""
        _give_up(self._job, storage_options=self._storage_options)
