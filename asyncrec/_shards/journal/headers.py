"""The headers of jobs in a folder on a disk: where each is, what is in it, and which are there.

A folder that is written to (a local data set's own, or a spool) holds, besides shards,

    .pages.<maker>.partial                                  the header of a job that has not ended well
    .pages.<maker>~status.partial                           how it gets on (`_shards.journal.status`), perhaps
    .pages-<maker>-000003.tfrecord.<maker>.partial          a shard it has open: the journal of its records
    _keys/.pages-<maker>-000003.tfrecord.keys.<maker>.partial

The header's file has one line with the job's process, one with the `JobHeader`, one with the machine on which it is
locked, a line ``acknowledged`` once a `flush` of a fixed writer is about to return, and behind its place a line
``taken`` once another process has the job (`_shards.journal.staging`).

Everything here blocks, and is for worker threads.
"""

from __future__ import annotations

import os
import re
import time
from contextlib import suppress

from asyncrec._shards.journal.header import MOST_BYTES, JobHeader
from asyncrec._shards.manifest.names import jobs_prefix, manifest_prefix
from asyncrec.errors import StorageError
from asyncrec.storage._local.disk import is_partial, read_at
from asyncrec.storage._local.lock import FileLock
from asyncrec.storage._local.opening import is_not_own, open_own
from asyncrec.storage._local.storage import LocalStorage, mapped_errors

# A small object is locked as soon as it is begun, and takes milliseconds.
_SMALL_SECONDS = 60
# What a header begins with, and a journal does not.
_BEGIN = re.compile(rb"[0-9]{1,20}\n\{")
# A header before it has its name.
_UNNAMED = re.compile(r"\.[0-9a-f]{16}\.partial")


def header_path(folder: LocalStorage, name: str, writer: str) -> str:
    """Return where the header of a job is."""
    return os.path.join(folder.folder, f".{name}.{writer}.partial")


def names_in(folder: LocalStorage, part: str = "") -> list[str]:
    """List a folder, or the folder ``part`` in it; what is not there, or is not a folder, is empty."""
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


def find_headers(folder: LocalStorage, name: str | None = None) -> list[JobHeader]:
    """Read every header in a folder, or those for the data set ``name``, in the order of their paths.

    Their jobs may live or not.

    Raises:
        StorageError: one cannot be read: what it speaks for is not nobody's.
    """
    found = []
    for file in sorted(names_in(folder)):
        path = os.path.join(folder.folder, file)
        if not is_partial(file):
            continue
        try:
            fd = open_own(path, os.O_RDONLY, linked=True)
        except StorageError as error:
            if is_not_own(error):  # then it is no header that we may obey
                continue
            raise
        try:
            with mapped_errors("reading", path):
                header = JobHeader.decode(parts_of(fd)[1]) if _BEGIN.match(read_at(fd, 32, 0)) else None
        finally:
            os.close(fd)
        if header is None or name not in (None, header.name):
            continue
        if header_path(folder, header.name, header.writer) == path:
            found.append(header)
    return found


def remove_unnamed_headers(folder: LocalStorage) -> None:
    """Remove what jobs left that were killed while they wrote their headers."""
    for name in names_in(folder):
        if _UNNAMED.fullmatch(name):
            with suppress(StorageError):  # it went, is not ours, or its job is just writing it
                _remove_unheld(folder, os.path.join(folder.folder, name))


def remove_small_leftovers(folder: LocalStorage, name: str) -> None:
    """Remove the unfinished marks and segments of a data set that processes left when they were killed."""
    for below in (manifest_prefix(name), jobs_prefix(name)):
        path = os.path.join(folder.folder, below)
        with suppress(OSError):
            for each in os.listdir(path):
                unfinished = os.path.join(path, each)
                with suppress(OSError):  # somebody is writing it, or took it away
                    if is_partial(each) and time.time() - os.lstat(unfinished).st_mtime > _SMALL_SECONDS:
                        _remove_unheld(folder, unfinished)


def _remove_unheld(folder: LocalStorage, path: str) -> None:
    lock = FileLock(open_own(path, os.O_RDWR, linked=True), path)
    try:
        with suppress(OSError):
            folder.disk.system.unlink(path)
    finally:
        lock.release()
