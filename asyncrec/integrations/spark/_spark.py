"""PySpark, or an error that says how to install it."""

from __future__ import annotations

__all__ = [
    "DataSource",
    "DataSourceArrowWriter",
    "DataSourceReader",
    "InputPartition",
    "TaskContext",
    "WriterCommitMessage",
    "types",
]

try:
    from pyspark import TaskContext
    from pyspark.sql import types
    from pyspark.sql.datasource import (
        DataSource,
        DataSourceArrowWriter,
        DataSourceReader,
        InputPartition,
        WriterCommitMessage,
    )
except ModuleNotFoundError as error:
    if (error.name or "").partition(".")[0] != "pyspark":
        raise
    raise ModuleNotFoundError(
        "asyncrec.integrations.spark needs Spark 4, which is not installed: pip install 'asyncrec[spark]'",
        name="pyspark",
    ) from error
