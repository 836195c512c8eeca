"""The header of a job in a folder on a disk: its path, and the lines of its file.

A folder to which jobs write (a local data set's own folder, or a spool) holds, in addition to shards,

    .pages.<maker>.partial                                  the header of a job that has not ended well
    .pages.<maker>~status.partial                           perhaps its progress (`_shards.journal.status`)
    .pages-<maker>-000003.tfrecord.<maker>.partial          the journal of a shard that it has open
    _keys/.pages-<maker>-000003.tfrecord.keys.<maker>.partial

The header's file has one line with the job's process, one with the `JobHeader`, and one with the machine on which it is
locked. It gets a line ``acknowledged`` when a `flush` of a fixed writer is about to return. Once another process has
taken the job (`_shards.journal.staging`), it gets a line ``taken`` after the place of that line.

All functions in this module block, and are for worker threads.
"""

from __future__ import annotations

import os

from asyncrec._shards.journal.header import MOST_BYTES
from asyncrec.storage._local.disk import read_at
from asyncrec.storage._local.storage import LocalStorage, mapped_errors


def header_path(folder: LocalStorage, name: str, writer: str) -> str:
    """Return the path of a job's header."""
    return os.path.join(folder.folder, f".{name}.{writer}.partial")


def names_in(folder: LocalStorage, part: str = "") -> list[str]:
    """List a folder, or the folder ``part`` in it. Return an empty list if it does not exist."""
    path = os.path.join(folder.folder, part)
    with mapped_errors("listing", path):
        try:
            return os.listdir(path)
        except (FileNotFoundError, NotADirectoryError):
            return []


def parts_of(fd: int) -> tuple[bytes, bytes, bytes, bytes]:
    """Split a header's file into the process, the JSON, the machine, and what follows."""
    content = read_at(fd, MOST_BYTES, 0)
    process, _, rest = content.partition(b"\n")
    line, _, rest = rest.partition(b"\n")
    machine, _, rest = rest.partition(b"\n")
    return process, line, machine, rest
