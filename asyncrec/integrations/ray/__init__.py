"""Read data sets with Ray Data (`read_asyncrec`) and write them exactly once (`write_asyncrec`).

    import ray
    from asyncrec.integrations.ray import read_asyncrec, write_asyncrec

    pages = read_asyncrec("s3://crawl/2026/pages", columns=["url", "body"])
    write_asyncrec(pages.map_batches(clean), "s3://crawl/2026/clean", job_id="clean-2026-11-22")

Each reading task reads some shards, or a range of the records of a large shard, and returns tables of a few MiB, so its
memory use does not grow with the shard. Each attempt at a writing task gives its shards unique names. At the end, the
driver makes one commit, which adds the shards of one attempt of each task to the data set.

The integration uses Ray's public classes `Datasource` and `Datasink`, but none of Ray's private attributes.

_reading    the tasks that read parts of a data set
_writing    the tasks that write shards, and the driver's commit
"""

from asyncrec.integrations._needed import needed

with needed(__name__, "Ray Data", "ray"):
    import ray.data  # noqa: F401  # here, so that a missing package raises the error of `needed`

from asyncrec.integrations.ray._reading import AsyncrecDatasource, read_asyncrec
from asyncrec.integrations.ray._writing import AsyncrecDatasink, WriteReport, write_asyncrec

__all__ = ["AsyncrecDatasink", "AsyncrecDatasource", "WriteReport", "read_asyncrec", "write_asyncrec"]
