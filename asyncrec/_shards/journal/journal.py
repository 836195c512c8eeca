"""`Journal`: the locked file in which a job on a disk says, for the case that it dies, whose the files are.

A folder that is written to (a local data set's own, or a spool) holds, besides shards,

    .pages.<maker>.partial                                  the header of a job that has not ended well
    .pages.<maker>~status.partial                           how it gets on (`_shards.journal.status`), perhaps
    .pages-<maker>-000003.tfrecord.<maker>.partial          a shard it has open: the journal of its records
    _keys/.pages-<maker>-000003.tfrecord.keys.<maker>.partial

A journal holds the shard's final bytes as far as they have come. The header's file has one line with the job's process,
one with the `JobHeader`, one with the machine on which it is locked, a line ``acknowledged`` once a `flush` of a fixed
writer is about to return, and behind its place a line ``taken`` once another process has the job. The job holds a lock
on the file for as long as it lives.

Where that lock proves nothing (`storage._local.mounts`), a job may be taken from a writer that lives. So the process
that takes it says so in the header first, and renames each journal to ``.<shard>.<maker>~taken.partial`` before reading
it; and a flush looks at both, after it has written and before it promises anything (`check`).

Everything here blocks, and is for worker threads.
"""

from __future__ import annotations

import errno
import os
import re
import secrets
import threading
import time
from contextlib import suppress
from typing import Any

from asyncrec._shards.journal.header import MOST_BYTES, JobHeader
from asyncrec._shards.journal.job_files import has_leftovers, header_path, is_silent, leftovers_of, names_in
from asyncrec._shards.journal.status import status_path
from asyncrec._shards.manifest.names import jobs_prefix, manifest_prefix
from asyncrec.errors import ConflictError, ObjectExistsError, ObjectNotFoundError, StorageError
from asyncrec.storage._local.disk import is_partial, read_at, write_at
from asyncrec.storage._local.lock import FileLock
from asyncrec.storage._local.mounts import lock_proves, this_machine
from asyncrec.storage._local.opening import create_file, is_not_own, open_own, own_file
from asyncrec.storage._local.storage import LocalStorage, mapped_errors

_ACKNOWLEDGED = b"acknowledged\n"
_TAKEN = b"taken\n"
# A small object is locked as soon as it is begun, and takes milliseconds.
_SMALL_SECONDS = 60
# What a header begins with, and a journal does not.
_BEGIN = re.compile(rb"[0-9]{1,20}\n\{")
# A header before it has its name.
_UNNAMED = re.compile(r"\.[0-9a-f]{16}\.partial")


class Journal:
    """A job's header in a file, with the lock on it: of this job (`begin`), or of another one (`claim`).

    Attributes:
        acknowledged: records have been promised to survive, or are about to be.
        dead: of another job, whether it is proven dead, or has long been silent where nothing can prove it.
    """

    def __init__(
        self, folder: LocalStorage, header: JobHeader, lock: FileLock, *, acknowledged: bool, dead: bool, end: int
    ) -> None:
        """``end`` is where the header ends in its file."""
        self.folder = folder
        self.header = header
        self.acknowledged = acknowledged
        self.dead = dead
        self._lock = lock
        self._end = end
        self._acknowledging = threading.Lock()

    @classmethod
    def begin(cls, folder: LocalStorage, header: JobHeader) -> Journal:
        """Write the header, durably.

        Raises:
            ObjectExistsError: a job of this id left one.
            StorageError: the disk.
        """
        path = header_path(folder, header)
        linked = False
        with mapped_errors("writing", path):
            system = folder.disk.system
            folder.disk.make_folder(folder.folder)
            # Locked before it has its name: nobody may take it for that of a job that has died.
            unnamed = os.path.join(folder.folder, f".{secrets.token_hex(8)}.partial")
            fd = create_file(unnamed, system=system)
            lock = None
            try:
                content = b"%d\n%s%s\n" % (os.getpid(), header.encode(), this_machine(fd).encode())
                lock = _locked(fd, path)
                _write(system, fd, content)
                system.fsync(fd)
                try:
                    folder.disk.link(unnamed, path)
                except FileExistsError as error:
                    raise ObjectExistsError(
                        f"{path}: a writer with the id {header.writer} lives, or has left unfinished shards; recover "
                        f"them first ({header.recover_command(folder.root if header.spool else header.url)}), or use "
                        "another writer_id"
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
        return cls(folder, header, lock, acknowledged=False, dead=False, end=len(content))

    @classmethod
    def claim(cls, folder: LocalStorage, path: str) -> Journal | None:
        """Lock the header of a job; return `None` if it was removed meanwhile, or is not a header.

        Whether the job is dead thereby, `dead` says: only then, or when a person says that it is, may it be taken.

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
                process, line, machine, rest = _parts(fd)
                header = JobHeader.decode(line) if os.fstat(fd).st_nlink else None
                if header is None:
                    lock.release()
                    return None
                dead = not header.detached and (
                    lock_proves(fd, machine.decode("ascii", "replace")) or is_silent(folder, header)
                )
            except BaseException:
                lock.release()
                raise
        end = len(process) + len(line) + len(machine) + 3
        return cls(folder, header, lock, acknowledged=rest.startswith(_ACKNOWLEDGED), dead=dead, end=end)

    def take(self) -> None:
        """Have the job of another process, durably: what that acknowledges from now on it acknowledges no more.

        Raises:
            StorageError: the disk; nothing is taken.
        """
        with mapped_errors("writing", header_path(self.folder, self.header)):
            write_at(self._lock.fd, _TAKEN, self._end + len(_ACKNOWLEDGED), self.folder.disk.system)
            self.folder.disk.system.fsync(self._lock.fd)
            # What it acknowledged until then counts.
            self.acknowledged = _parts(self._lock.fd)[3].startswith(_ACKNOWLEDGED)

    def check(self) -> None:
        """See that this process still has its job: what is flushed can then be recovered.

        Raises:
            ConflictError: another process has taken it.
            StorageError: the header was removed.
        """
        path = header_path(self.folder, self.header)
        with mapped_errors("looking at", path):
            status = self.folder.disk.system.fstat(self._lock.fd)
        if status.st_size > self._end + len(_ACKNOWLEDGED):
            raise ConflictError(
                f"{path}: another process has taken this writer for dead, and recovered what it had flushed; records "
                "since then are not safe, and are to be written by a new writer"
            )
        if not status.st_nlink:
            raise StorageError(
                f"{path}: the header of this writer was removed, so that nobody could recover what it writes; records "
                "since the last flush are not safe"
            )

    def acknowledge(self) -> None:
        """Write down durably that records are safe, before the caller of `flush` learns it. Once is enough.

        Raises:
            StorageError: the disk; it is not written down. Or as `check`.
        """
        system, fd = self.folder.disk.system, self._lock.fd
        with self._acknowledging, mapped_errors("writing", header_path(self.folder, self.header)):
            if self.acknowledged:
                return
            try:
                write_at(fd, _ACKNOWLEDGED, self._end, system)
                system.fsync(fd)
                self.check()
            except BaseException:
                # No caller will learn of it: it is not a promise. Overwritten, for what others wrote behind it stays.
                with suppress(OSError):
                    write_at(fd, bytes(1), self._end, system)
                raise
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

    A job whose state this machine cannot know is neither.

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
            if journal.dead:
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


def _locked(fd: int, path: str) -> FileLock:
    try:
        return FileLock(fd, path)
    except StorageError as error:
        if error.errno == errno.ENOLCK:
            error.add_note("a writer reaches this folder through spool=, a folder on a disk that has locks")
        raise


def _parts(fd: int) -> tuple[bytes, bytes, bytes, bytes]:
    """Split a header's file into the process, the JSON, the machine, and what follows."""
    content = read_at(fd, MOST_BYTES, 0)
    process, _, rest = content.partition(b"\n")
    line, _, rest = rest.partition(b"\n")
    machine, _, rest = rest.partition(b"\n")
    return process, line, machine, rest


def _write(system: Any, fd: int, data: bytes) -> None:
    while data:
        data = data[system.write(fd, data) :]
