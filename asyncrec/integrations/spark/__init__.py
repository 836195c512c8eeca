"""Spark 4 reads data sets, and writes them exactly once, by the name ``asyncrec``.

    spark.dataSource.register(AsyncrecDataSource)
    pages = spark.read.format("asyncrec").option("columns", "url,status").load("s3://crawl/2026/pages")
    found = pages.where("status = 200")
    found.write.format("asyncrec").mode("append").option("job_id", "found-2026-11-22").save("s3://crawl/2026/found")

Register the data source once in each session. Options are text, as all of Spark's: see `AsyncrecDataSource`.

On Spark's Python Data Source API, which is public; no jar is needed.

_source     the data source, and its options
_reading    partitions are parts of a data set
_writing    tasks write shards, and the driver commits
_types      Spark's types are Arrow's, and the other way round
"""

from asyncrec.integrations._needed import needed

with needed(__name__, "Spark 4", "pyspark"):
    import pyspark.sql.datasource  # noqa: F401  # here, so that one error says that it is missing

from asyncrec.integrations.spark._source import AsyncrecDataSource

__all__ = ["AsyncrecDataSource"]
