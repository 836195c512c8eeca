"""`AsyncrecDataSource`, which ``format("asyncrec")`` names."""

from __future__ import annotations

from typing import Any

from pyspark.sql.datasource import DataSource

from asyncrec.integrations.spark._options import reading_options, writing_options
from asyncrec.integrations.spark._reading import Reader, stored_schema
from asyncrec.integrations.spark._writing import Writer


class AsyncrecDataSource(DataSource):  # type: ignore[misc]  # PySpark is not there where this is checked
    """The data source ``asyncrec`` of Spark 4, for batches.

    Spark's options are text. Numbers of bytes may be written as ``64MiB``, objects are JSON.

    Options for reading:
        path: a file, a folder, a pattern or a data set, which every node reaches by this path; given to ``load``.
        split: as for `asyncrec.integrations.arrow.open_batches`; ``path`` is then the folder of the splits.
        columns: the names of the columns wanted, with commas between them. Others are not parsed. ``schema(...)`` does
            the same, and determines the types of Spark's columns.
        newest: as for `asyncrec.integrations.arrow.open_batches`.
        schema: `Schema.to_json`, if no schema is stored with the records; ``schema(...)`` may give it instead.
        part_bytes: a larger shard that has an index becomes several partitions; 128 MiB.
        max_partitions: smaller shards share partitions if there would be more of them; 10,000.
        batch_rows, batch_bytes, verify: as for `asyncrec.integrations.arrow.open_batches`.
        storage_options: an object of options for the backend, in every task.

    Options for writing:
        path: a folder and the data set's name in it, which every node reaches by this path; given to ``save``.
        job_id: a name for this work: a run with this id adds nothing to what an earlier one has committed, and ends an
            earlier one that has not.
        if_exists: with ``mode("append")``: ``append``, or ``fail`` if there is a data set. ``mode("overwrite")`` makes
            the rows the whole data set.
        schema: `Schema.to_json` of the records; by default, that of the columns. A column of single values that
            contains nulls must be a VarLen.
        max_shard_bytes, max_shard_records, compression, index, metadata: as for `asyncrec.open_sharded_writer`; a shard
            is full at 256 MiB unless you say otherwise.
        narrow: ``false`` refuses a float64 that would change as a float32.
        storage_options: as for reading.
    """

    @classmethod
    def name(cls) -> str:
        return "asyncrec"

    def schema(self) -> Any:
        return stored_schema(reading_options(self.options))

    def reader(self, schema: Any) -> Reader:
        return Reader(reading_options(self.options), schema)

    def writer(self, schema: Any, overwrite: bool) -> Writer:
        return Writer(writing_options(self.options), schema, overwrite=overwrite)
