"""Convert records to Arrow columns and back, for pandas, Polars, DuckDB, Parquet, Ray and Spark.

    from asyncrec.integrations.arrow import open_batches

    async with open_batches("s3://crawl/2026/pages", columns=["url", "status"]) as reader:
        async for batch in reader: ...                     # pyarrow.RecordBatch

Without async, ``read_batches(path)`` returns a ``pyarrow.RecordBatchReader``, ``to_pandas(path)`` returns a DataFrame,
and ``from_pandas(frame, path)`` writes one.

_types             the conversion between `Schema` and Arrow's schemas
_from_records      the conversion of records to batches
_to_records        the conversion of batches to records
_plan, _reading    the parts of a data set that are read, and their reader
_writing           the writer of a data set
_blocking          the same functions without async
"""

from asyncrec.integrations._needed import needed

with needed(__name__, "pyarrow", "pyarrow"):
    import pyarrow.compute  # for `pa.compute`
    import pyarrow.ipc  # noqa: F401  # for `pa.ipc`

from asyncrec.integrations.arrow._blocking import (
    from_pandas,
    plan_batches,
    read_batches,
    read_parts,
    to_pandas,
    to_table,
    write_batches,
)
from asyncrec.integrations.arrow._from_records import BatchMaker, to_batch
from asyncrec.integrations.arrow._plan import Part, Plan
from asyncrec.integrations.arrow._reading import BatchReader, open_batches
from asyncrec.integrations.arrow._to_records import to_records
from asyncrec.integrations.arrow._types import arrow_schema, schema_of
from asyncrec.integrations.arrow._writing import BatchWriter, open_batch_writer

__all__ = [
    "BatchMaker",
    "BatchReader",
    "BatchWriter",
    "Part",
    "Plan",
    "arrow_schema",
    "from_pandas",
    "open_batch_writer",
    "open_batches",
    "plan_batches",
    "read_batches",
    "read_parts",
    "schema_of",
    "to_batch",
    "to_pandas",
    "to_records",
    "to_table",
    "write_batches",
]
