"""A Spark 4 data source named ``asyncrec``, which reads data sets and writes them exactly once.

    spark.dataSource.register(AsyncrecDataSource)
    pages = spark.read.format("asyncrec").option("columns", "url,status").load("s3://crawl/2026/pages")
    found = pages.where("status = 200")
    found.write.format("asyncrec").mode("append").option("job_id", "found-2026-11-22").save("s3://crawl/2026/found")

Register the data source once per session. All Spark options are text; see `AsyncrecDataSource`.

The data source uses Spark's public Python Data Source API and needs no jar.

_source     the data source, and its options
_reading    the reader, which turns each group of a data set's parts into a partition
_writing    the writer, whose tasks write shards that the driver commits
_types      the conversion between Spark's types and Arrow's
"""

from asyncrec.integrations._needed import needed

with needed(__name__, "Spark 4", "pyspark"):
    import pyspark.sql.datasource  # noqa: F401  # here, so that a missing package raises the error of `needed`

from asyncrec.integrations.spark._source import AsyncrecDataSource

__all__ = ["AsyncrecDataSource"]
