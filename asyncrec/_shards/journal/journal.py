"""`Journal`: the locked file in which a job on a disk says, for the case that it dies, whose the files are.

A folder that is written to (a local data set's own, or a spool) holds, besides shards,

    .pages.<maker>.partial                                  the header of a job that has not ended well
    .pages.<maker>~status.partial                           how it gets on (`_shards.journal.status`), perhaps
    .pages-<maker>-000003.tfrecord.<maker>.partial          a shard it has open: the journal of its records
    _keys/.pages-<maker>-000003.tfrecord.keys.<maker>.partial

A journal holds the shard's final bytes as far as they have come. The header's file has one line with the job's process,
one with the `JobHeader`, and a line ``acknowledged`` once a `flush` of a fixed writer has returned. The job holds a
lock on the file for as long as it lives.

Everything here blocks, and is for worker threads.
"""

from __future__ import annotations

import errno
import os
import re
import secrets
import time
from contextlib import suppress
from typing import Any

from asyncrec._shards.journal.header import MOST_BYTES, JobHeader
from asyncrec._shards.journal.leftovers import has_leftovers, leftovers_of, names_in
from asyncrec._shards.journal.status import status_path
from asyncrec._shards.manifest.names import jobs_prefix, manifest_prefix
from asyncrec.errors import ObjectExistsError, ObjectNotFoundError, StorageError
from asyncrec.storage._local.disk import is_partial, read_at, write_at
from asyncrec.storage._local.lock import FileLock
from asyncrec.storage._local.opening import create_file, is_not_own, open_own, own_file
from asyncrec.storage._local.storage import LocalStorage, mapped_errors

__all__ = [
    "Journal",
    "dead_jobs",
    "find_job_headers",
    "has_header",
    "header_path",
    "remove_small_leftovers",
    "remove_unnamed_headers",
    "sync_deletions",
]

_ACKNOWLEDGED = b"acknowledged\n"
# A small object is locked as soon as it is begun, and takes milliseconds.
_SMALL_SECONDS = 60
# What a header begins with, and a journal does not.
_BEGIN = re.compile(rb"[0-9]{1,20}\n\{")
# A header before it has its name.
_UNNAMED = re.compile(r"\.[0-9a-f]{16}\.partial")


class Journal:
    """A job's header in a file, with the lock on it: of this job (`begin`), or of one that has died (`claim`).

    Attributes:
        acknowledged: a flush has returned: records have been promised to survive.
    """

    def __init__(
        self, folder: LocalStorage, header: JobHeader, lock: FileLock, *, acknowledged: bool, end: int
    ) -> None:
        """``end`` is where the header ends in its file."""
        self.folder = folder
        self.header = header
        self.acknowledged = acknowledged
        self._lock = lock
        self._end = end

    @classmethod
    def begin(cls, folder: LocalStorage, header: JobHeader) -> Journal:
        """Write the header, durably.

        Raises:
            ObjectExistsError: a job of this id left one.
            StorageError: the disk.
        """
        path = header_path(folder, header)
        content = b"%d\n" % os.getpid() + header.encode()
        linked = False
        with mapped_errors("writing", path):
            system = folder.disk.system
            folder.disk.make_folder(folder.folder)
            # Locked before it has its name: nobody may take it for that of a job that has died.
            unnamed = os.path.join(folder.folder, f".{secrets.token_hex(8)}.partial")
            fd = create_file(unnamed, system=system)
            lock = None
            try:
                lock = _locked(fd, path)
                _write(system, fd, content)
                system.fsync(fd)
                try:
                    folder.disk.link(unnamed, path)
                except FileExistsError as error:
                    raise ObjectExistsError(
                        f"{path}: a writer with the id {header.writer} lives, or has left unfinished shards; "
                        "recover them first (asyncrec.recover), or use another writer_id"
                    ) from error
                linked = True
                folder.disk.sync_folder(folder.folder)
            except BaseException:
                for each in (unnamed, path) if linked else (unnamed,):
                    with suppress(OSError):
                        system.unlink(each)
                if lock is not None:
                    lock.release()
                raise
            with suppress(OSError):  # a second name, which `remove_unnamed_headers` takes away when this one has ended
                system.unlink(unnamed)
        return cls(folder, header, lock, acknowledged=False, end=len(content))

    @classmethod
    def claim(cls, folder: LocalStorage, path: str) -> Journal | None:
        """Lock the header of a job that has died; `None` when it was removed meanwhile, or is no header.

        Raises:
            StorageError: the job lives (``errno`` is EWOULDBLOCK), or the file is not this user's.
        """
        try:
            fd = open_own(path, os.O_RDWR, linked=True)
        except ObjectNotFoundError:
            return None
        lock = FileLock(fd, path)
        with mapped_errors("reading", path):
            try:
                process, line, rest = _parts(fd)
                header = JobHeader.decode(line) if os.fstat(fd).st_nlink else None
            except BaseException:
                lock.release()
                raise
        if header is None:
            lock.release()
            return None
        end = len(process) + len(line) + 2
        return cls(folder, header, lock, acknowledged=rest.startswith(_ACKNOWLEDGED), end=end)

    def acknowledge(self) -> None:
        """Write down that records are about to be promised to survive, durably. Once is enough.

        Always in the same place: another flush may write it at the same time, or a full disk have taken a part of it.
        """
        if not self.acknowledged:
            with mapped_errors("writing", header_path(self.folder, self.header)):
                write_at(self._lock.fd, _ACKNOWLEDGED, self._end, self.folder.disk.system)
                self.folder.disk.system.fsync(self._lock.fd)
            self.acknowledged = True

    def holds_promises(self) -> bool:
        """Whether records in it may have been promised to survive: `asyncrec.recover` keeps them, and nobody else.

        What a rolling writer has begun is nowhere else, and none of its flushes leaves a line.
        """
        return self.acknowledged or (self.header.kind == "rolling" and bool(leftovers_of(self.folder, self.header)))

    def end(self, *, keep: bool = False) -> None:
        """Let go of the lock, after removing the header, unless it is to be kept or something of the job is left.

        Idempotent.
        """
        try:
            if self._lock.fd >= 0 and not keep and not has_leftovers(self.folder, self.header):
                self.remove()
        finally:
            self._lock.release()

    def remove(self) -> None:
        """Remove the status and the header; what was removed before stays removed, even after a power cut."""
        status = status_path(self.folder, self.header)
        with mapped_errors("deleting", status), suppress(FileNotFoundError):
            if own_file(status):
                self.folder.disk.system.unlink(status)
        path = header_path(self.folder, self.header)
        with mapped_errors("deleting", path), suppress(FileNotFoundError):
            sync_deletions(self.folder, self.header.name)
            self.folder.disk.system.unlink(path)


def sync_deletions(folder: LocalStorage, name: str) -> None:
    """Make durable what a job has deleted, before its header or mark goes: a power cut would bring it back as nobody's.

    Deleting itself syncs nothing, for a job may delete thousands of objects. Blocks.
    """
    for part in ("", "_index", "_keys", jobs_prefix(name)):
        with suppress(FileNotFoundError):
            folder.disk.sync_folder(os.path.join(folder.folder, part))


def find_job_headers(folder: LocalStorage, name: str | None = None) -> list[tuple[str, JobHeader]]:
    """Find the path and content of every header in a folder, or of those for the data set ``name``.

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
                header = JobHeader.decode(_parts(fd)[1]) if _BEGIN.match(read_at(fd, 32, 0)) else None
        finally:
            os.close(fd)
        if header is not None and header_path(folder, header) == path and name in (None, header.name):
            found.append((path, header))
    return found


def has_header(folder: LocalStorage, name: str, writer: str) -> bool:
    """Whether a file has the name of a job's header, whosever it is."""
    return os.path.lexists(os.path.join(folder.folder, f".{name}.{writer}.partial"))


def dead_jobs(folder: LocalStorage, own: str, name: str | None) -> tuple[dict[str, JobHeader], bool]:
    """Find the jobs that died in this folder, by the paths of their headers, and whether there are others that live.

    Those on the data set ``name``, or on any; but for ``own``, the writer that asks.
    """
    dead, living = {}, False
    for path, header in find_job_headers(folder, name):
        if header.writer == own:
            continue
        try:
            journal = Journal.claim(folder, path)
        except StorageError:
            living = True
            continue
        if journal is not None:
            dead[path] = header
            journal.end(keep=True)
    return dead, living


def remove_unnamed_headers(folder: LocalStorage) -> None:
    """Remove what jobs left that were killed while they wrote their headers."""
    for name in names_in(folder):
        if not _UNNAMED.fullmatch(name):
            continue
        path = os.path.join(folder.folder, name)
        with suppress(StorageError):  # it went, is not ours, or its job is just writing it
            lock = FileLock(open_own(path, os.O_RDWR, linked=True), path)
            with suppress(OSError):
                folder.disk.system.unlink(path)
            lock.release()


def remove_small_leftovers(folder: LocalStorage, name: str) -> None:
    """Remove the unfinished marks and segments of a data set that processes left when they were killed."""
    for below in (manifest_prefix(name), jobs_prefix(name)):
        path = os.path.join(folder.folder, below)
        with suppress(OSError):
            for each in os.listdir(path):
                unfinished = os.path.join(path, each)
                with suppress(OSError):  # somebody is writing it, or took it away
                    if is_partial(each) and time.time() - os.lstat(unfinished).st_mtime > _SMALL_SECONDS:
                        lock = FileLock(open_own(unfinished, os.O_RDWR, linked=True), unfinished)
                        try:
                            folder.disk.system.unlink(unfinished)
                        finally:
                            lock.release()


def header_path(folder: LocalStorage, header: JobHeader) -> str:
    """Return where a job's header is."""
    return os.path.join(folder.folder, f".{header.name}.{header.writer}.partial")


def _locked(fd: int, path: str) -> FileLock:
    try:
        return FileLock(fd, path)
    except StorageError as error:
        if error.errno == errno.ENOLCK:
            error.add_note("a writer reaches this folder through spool=, a folder on a disk that has locks")
        raise


def _parts(fd: int) -> tuple[bytes, bytes, bytes]:
    """Split a header's file into the process, the JSON, and what follows."""
    content = read_at(fd, MOST_BYTES, 0)
    process, _, rest = content.partition(b"\n")
    line, _, rest = rest.partition(b"\n")
    return process, line, rest


def _write(system: Any, fd: int, data: bytes) -> None:
    while data:
        data = data[system.write(fd, data) :]
