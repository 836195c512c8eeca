"""asyncrec without async, for scripts, notebooks and the workers of data loaders: the same names, the same parameters.

    from asyncrec import blocking

    with blocking.open_writer("pages.tfrecord") as writer:
        writer.write(b"...")
    for record in blocking.read_records("pages.tfrecord"):
        ...

``async with`` becomes ``with``, ``async for`` becomes ``for``, and what was awaited is called. The work is done by an
event loop in a thread of its own, one for each process, started on first use and ended with the process; that another
event loop runs in the calling thread, as in a notebook, does not matter. Names that have nothing asynchronous are not
repeated here.

Calls that go to that thread and back cost some 60 microseconds. What moves many records therefore moves them in lists.

- ``KeyboardInterrupt`` cancels the call that it interrupts, and leaves the ``with`` as any other exception does.
- After a fork the child starts a loop of its own. What was opened before raises a RuntimeError there.
- What is still open when Python ends is cancelled, and cleaned up.
"""

from __future__ import annotations

from asyncrec.blocking.records import RecordReader as RecordReader
from asyncrec.blocking.records import RecordWriter as RecordWriter
from asyncrec.blocking.records import open_reader as open_reader
from asyncrec.blocking.records import open_writer as open_writer
from asyncrec.blocking.records import read_records as read_records
from asyncrec.blocking.records import write_records as write_records
