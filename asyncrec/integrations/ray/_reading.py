"""`read_asyncrec` reads a data set in tasks. Each task reads some shards, or a range of records of a large shard."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from typing import Any

import pyarrow as pa
import ray
from ray.data.block import BlockMetadata
from ray.data.datasource import Datasource, ReadTask

from asyncrec._arguments import Size
from asyncrec.example._schema import Schema
from asyncrec.integrations._engines import PART_BYTES, groups, read_size, seen_from_tasks
from asyncrec.integrations.arrow import BatchMaker, Part, plan_batches, read_parts


def read_asyncrec(
    path: str | os.PathLike[str],
    *,
    split: str | None = None,
    schema: Schema | Any = None,
    columns: Iterable[str] | None = None,
    newest: str | None = None,
    part_bytes: Size = PART_BYTES,
    batch_rows: int | None = None,
    batch_bytes: Size | None = None,
    verify: bool = True,
    storage_options: dict[str, Any] | None = None,
    **options: Any,
) -> Any:
    """Return a ``ray.data.Dataset`` of the records, with the columns of `asyncrec.integrations.arrow`.

    This call reads the manifest once. A task reads one or more shards, or a part of a shard that has an index.

    Args:
        path: a file, a folder, a pattern or a data set, accessible by this path on every node.
        split, schema, columns, newest, batch_rows, batch_bytes, verify: as for
            `asyncrec.integrations.arrow.open_batches`.
        part_bytes: the size above which a shard with an index is read by several tasks; 128 MiB by default.
        storage_options: options for the backend, which every task uses.
        options: the options of ``ray.data.read_datasource``: ``override_num_blocks``, ``concurrency``,
            ``ray_remote_args``.
    """
    source = AsyncrecDatasource(
        path,
        split=split,
        schema=schema,
        columns=columns,
        newest=newest,
        part_bytes=part_bytes,
        batch_rows=batch_rows,
        batch_bytes=batch_bytes,
        verify=verify,
        storage_options=storage_options,
    )
    return ray.data.read_datasource(source, **options)


class AsyncrecDatasource(Datasource):  # type: ignore[misc]  # types are checked without Ray
    """The data source of `read_asyncrec`, with the same arguments."""

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        split: str | None = None,
        schema: Schema | Any = None,
        columns: Iterable[str] | None = None,
        newest: str | None = None,
        part_bytes: Size | None = PART_BYTES,
        batch_rows: int | None = None,
        batch_bytes: Size | None = None,
        verify: bool = True,
        storage_options: dict[str, Any] | None = None,
    ) -> None:
        super().__init__()
        self._plan = plan_batches(
            seen_from_tasks(path),
            part_bytes=part_bytes,
            split=split,
            schema=schema,
            columns=columns,
            newest=newest,
            storage_options=storage_options,
        )
        self._options = {
            "batch_rows": batch_rows,
            "batch_bytes": batch_bytes,
            "verify": verify,
            "storage_options": storage_options,
        }

    def get_name(self) -> str:
        return "Asyncrec"

    def estimate_inmemory_data_size(self) -> int | None:
        return sum(read_size(part) for part in self._plan.parts)

    def get_read_tasks(
        self, parallelism: int, per_task_row_limit: int | None = None, data_context: Any = None
    ) -> list[ReadTask]:
        """Return at most ``parallelism`` tasks, each for neighbouring parts, with about the same number of bytes."""
        maker, options = self._plan.maker, self._options
        dealt = groups(self._plan.parts, max(1, parallelism)) or [()]
        return [
            ReadTask(_Read(maker, group, options), _metadata(group), maker.arrow, per_task_row_limit) for group in dealt
        ]


class _Read:
    """The function that a task runs. It has no reference to the source, so that it is small when pickled."""

    def __init__(self, maker: BatchMaker, parts: tuple[Part, ...], options: dict[str, Any]) -> None:
        self._maker = maker
        self._parts = parts
        self._options = options

    def __call__(self) -> Iterator[Any]:
        if not self._parts:
            yield self._maker.arrow.empty_table()
            return
        for batch in read_parts(self._maker, self._parts, **self._options):
            yield pa.Table.from_batches([batch])


def _metadata(parts: tuple[Part, ...]) -> BlockMetadata:
    counts = [rows for part in parts if (rows := part.rows) is not None]
    return BlockMetadata(
        num_rows=sum(counts) if len(counts) == len(parts) else None,
        size_bytes=int(sum(map(read_size, parts))),
        exec_stats=None,
        input_files=[part.path for part in parts],
    )
