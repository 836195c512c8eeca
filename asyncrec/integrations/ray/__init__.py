"""Ray Data reads data sets, and writes them exactly once: `read_asyncrec`, `write_asyncrec`.

    import ray
    from asyncrec.integrations.ray import read_asyncrec, write_asyncrec

    pages = read_asyncrec("s3://crawl/2026/pages", columns=["url", "body"])
    write_asyncrec(pages.map_batches(clean), "s3://crawl/2026/clean", job_id="clean-2026-11-22")

To read, each task gets some shards, or a range of the records of a large one, and returns tables of some MiB: its
memory does not grow with the shard. To write, each attempt of a task makes shards under names of its own. The driver
makes one commit at the end, which names one attempt of each task; with it, the shards are in the data set.

On `Datasource` and `Datasink`, which are public; Ray's own attributes are not touched.

_reading    tasks read parts of a data set
_writing    tasks write shards, and the driver commits
"""

from asyncrec.integrations._needed import needed

with needed(__name__, "Ray Data", "ray"):
    import ray.data  # noqa: F401  # here, so that one error says that it is missing

from asyncrec.integrations.ray._reading import AsyncrecDatasource, read_asyncrec
from asyncrec.integrations.ray._writing import AsyncrecDatasink, WriteReport, write_asyncrec

__all__ = ["AsyncrecDatasink", "AsyncrecDatasource", "WriteReport", "read_asyncrec", "write_asyncrec"]
