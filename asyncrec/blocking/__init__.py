"""asyncrec without async, for scripts, notebooks and data loader workers.

Names and parameters are the same as in `asyncrec`.

    from asyncrec import blocking

    with blocking.open_writer("pages.tfrecord") as writer:
        writer.write(b"...")
    for record in blocking.read_records("pages.tfrecord"):
        ...

``async with`` becomes ``with``, ``async for`` becomes ``for``, and a call needs no ``await``. An event loop in a
background thread does the work. Each process has one, which starts on first use and ends with the process. It does not
interfere with an event loop in the calling thread, such as a notebook's. Names of `asyncrec` that are already
synchronous are not repeated here.

A call to that thread and back takes about 60 microseconds, so records are transferred in lists.

- ``KeyboardInterrupt`` cancels the call that it interrupts, and exits the ``with`` as any other exception does.
- After a fork, the child starts its own event loop. In the child, objects opened before the fork raise RuntimeError.
- An open object that is garbage-collected is closed as after an exception, with a ResourceWarning. So is an object that
  is still open when Python exits. Python first waits for every non-daemon thread that used this module.
"""

from __future__ import annotations

from asyncrec.blocking._datasets import (
    DatasetWriter,
    SplitReader,
    TupleReader,
    generate_dataset,
    get_tfrecord_filepaths,
    open_split,
    write_folds,
    write_splits_from_csv,
)
from asyncrec.blocking._pages import conditions, resolve
from asyncrec.blocking._records import (
    RecordReader,
    RecordWriter,
    open_reader,
    open_writer,
    read_records,
    write_examples,
    write_records,
)
from asyncrec.blocking._sampling import ClassBalancedSampler, Dataset, InterleaveSampler, interleave, open_dataset
from asyncrec.blocking._shards import (
    ShardedWriter,
    compact,
    delete,
    forget_source,
    list_shards,
    open_sharded_writer,
    read_manifest,
    recover,
)
from asyncrec.blocking._storage import (
    ByteSink,
    ByteSource,
    FileWriter,
    Storage,
    directory_check,
    open_file,
    open_storage,
)
from asyncrec.blocking._streams import Stream

__all__ = [
    "ByteSink",
    "ByteSource",
    "ClassBalancedSampler",
    "Dataset",
    "DatasetWriter",
    "FileWriter",
    "InterleaveSampler",
    "RecordReader",
    "RecordWriter",
    "ShardedWriter",
    "SplitReader",
    "Storage",
    "Stream",
    "TupleReader",
    "compact",
    "conditions",
    "delete",
    "directory_check",
    "forget_source",
    "generate_dataset",
    "get_tfrecord_filepaths",
    "interleave",
    "list_shards",
    "open_dataset",
    "open_file",
    "open_reader",
    "open_sharded_writer",
    "open_split",
    "open_storage",
    "open_writer",
    "read_manifest",
    "read_records",
    "recover",
    "resolve",
    "write_examples",
    "write_folds",
    "write_records",
    "write_splits_from_csv",
]
