"""`Staging`: the files that a job keeps outside the store before it commits, with its lock and its journals.

There are two kinds. A job on a disk (a local data set or a spool) has a `LocalStaging`: a locked file with its header,
next to its unfinished shards, which contain the final bytes of their records and remain if the process dies. A job that
writes only to a store has a locked file on its machine, which proves it alive or dead (`tokens`). A job with a spool
has both, because processes that do not know the spool find the job through its mark in the store.

If the lock proves nothing (`storage._local.mounts`), a job may be taken over although its writer is alive. Therefore
the process that takes it over first records this in the header, and renames each journal to
``.<shard>.<maker>~taken.partial`` before reading it. After a flush has written its records, it checks whether the job
was taken over, and only then acknowledges them (`Staging.check`).

All methods in this module block. Call them in worker threads.
"""

from __future__ import annotations

import errno
import os
import secrets
import threading
from contextlib import suppress
from dataclasses import replace
from typing import Any

from asyncrec._path_log import PathLog
from asyncrec._shards.journal.header import JobHeader, header_path, parts_of
from asyncrec._shards.journal.job_files import JobFiles
from asyncrec._shards.journal.remedies import command_for
from asyncrec._shards.journal.status import status_path
from asyncrec._shards.journal.tokens import begin_token, end_token
from asyncrec._shards.manifest.names import manifest_prefix
from asyncrec.errors import ConflictError, ObjectExistsError, ObjectNotFoundError, StorageError
from asyncrec.storage._local.disk import write_at
from asyncrec.storage._local.lock import FileLock
from asyncrec.storage._local.mounts import lock_proves, this_machine
from asyncrec.storage._local.opening import create_file, open_own, own_file
from asyncrec.storage._local.storage import LocalStorage, mapped_errors

_path_log = PathLog("asyncrec.shards")

_ACKNOWLEDGED = b"acknowledged\n"
_TAKEN = b"taken\n"


class Staging:
    """The staging of a job of this process, or of a job claimed from another. This class is for jobs without a disk.

    Attributes:
        header: the job's header.
        files: the job's files on a disk; `None` if it has none.
        acknowledged: whether records have been acknowledged as safe, or are about to be.
        dead: for another process's job, whether it is proven dead or, if that is impossible, has long been silent.
    """

    files: JobFiles | None = None
    acknowledged = False

    def __init__(self, header: JobHeader, lock: FileLock | None, *, dead: bool = False) -> None:
        """If ``lock`` is `None`, nothing proves whether the job is alive."""
        self.header = header
        self.dead = dead
        self._lock = lock

    @classmethod
    def begin_marked(cls, header: JobHeader) -> Staging:
        """Begin the staging of a job that has a mark. Its header names the lock that proves the job alive or dead."""
        if header.detached:  # a detached job is not tied to a process
            return cls(replace(header, life="none"), None)
        try:
            token, lock = begin_token()
        except StorageError as error:
            _path_log.warning(
                header.url,
                "if this writer dies, no lock on this machine will prove it; set XDG_RUNTIME_DIR to a folder that "
                "only this user can write to: %s",
                error,
                writer=header.writer,
            )
            return cls(replace(header, life="none"), None)
        return cls(replace(header, life=token), lock)

    def take(self) -> None:
        """Durably take over the job of another process. Anything that process acknowledges afterwards does not count.

        Raises:
            StorageError: the disk failed, and the job was not taken over.
        """

    def check(self) -> None:
        """Raise an error if this process has lost its job. If it has not, its flushed records can be recovered.

        Raises:
            ConflictError: another process has taken over the job.
            StorageError: the header was removed.
        """

    def acknowledge(self) -> None:
        """Durably record that flushed records are safe, before `flush` returns. A job only needs to do this once.

        Raises:
            ConflictError, StorageError: as for `check`, or the disk failed. In that case, nothing is recorded.
        """

    def holds_promises(self) -> bool:
        """Return whether the job may have acknowledged records. If so, `asyncrec.recover` must keep them."""
        return False

    def end(self, *, keep: bool = False, briefly: bool = False) -> None:
        """Remove the locked file, unless ``keep`` is set or other files of the job are left. Then release the lock.

        Idempotent. With ``briefly``, a kept file that only proves the job dead remains for a day instead of a month.
        """
        if self._lock is not None:
            end_token(self._lock, keep=keep, briefly=briefly)


class LocalStaging(Staging):
    """The staging of a job on a disk, begun by this process (`begin`) or claimed from another (`claim`)."""

    files: JobFiles

    def __init__(
        self, folder: LocalStorage, header: JobHeader, lock: FileLock, *, acknowledged: bool, dead: bool, end: int
    ) -> None:
        """``end`` is the offset of the end of the header in its file."""
        super().__init__(header, lock, dead=dead)
        self.files = JobFiles(folder, header)
        self.acknowledged = acknowledged
        self._folder = folder
        self._path = header_path(folder, header.name, header.writer)
        self._held = lock
        self._end = end
        self._acknowledging = threading.Lock()

    @classmethod
    def begin(cls, folder: LocalStorage, header: JobHeader) -> LocalStaging:
        """Begin a job by writing its header durably.

        Raises:
            ObjectExistsError: a job with this id has a header.
            StorageError: the disk failed.
        """
        path = header_path(folder, header.name, header.writer)
        linked = False
        with mapped_errors("writing", path):
            system = folder.disk.system
            folder.disk.make_folder(folder.folder)
            # Lock the file before giving it its final name, so that no process takes it for a dead job's header.
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
                        f"{path}: a writer with the id {header.writer} is running or has left unfinished shards; "
                        f"recover them first ({command_for(header, folder.root if header.spool else header.url)}), "
                        "or use another writer_id"
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
            with suppress(OSError):  # if this fails, `LocalHome.remove_unnamed` removes the name later
                system.unlink(unnamed)
        return cls(folder, header, lock, acknowledged=False, dead=False, end=len(content))

    @classmethod
    def claim(cls, folder: LocalStorage, name: str, writer: str) -> LocalStaging | None:
        """Lock the header of a job. Return `None` if it was removed in the meantime or is malformed.

        `dead` is true if the job is proven dead or has long been silent. Take over any other job only if a user
        declares it dead.

        Raises:
            StorageError: the job is alive (``errno`` is EWOULDBLOCK), or the file belongs to another user.
        """
        path = header_path(folder, name, writer)
        try:
            fd = open_own(path, os.O_RDWR, linked=True)
        except ObjectNotFoundError:
            return None
        lock = FileLock(fd, path)
        with mapped_errors("reading", path):
            try:
                process, line, machine, rest = parts_of(fd)
                header = JobHeader.decode(line) if os.fstat(fd).st_nlink else None
                if header is None:
                    lock.release()
                    return None
                dead = not header.detached and (
                    lock_proves(fd, machine.decode("ascii", "replace")) or JobFiles(folder, header).are_silent()
                )
            except BaseException:
                lock.release()
                raise
        end = len(process) + len(line) + len(machine) + 3
        return cls(folder, header, lock, acknowledged=rest.startswith(_ACKNOWLEDGED), dead=dead, end=end)

    def take(self) -> None:
        with mapped_errors("writing", self._path):
            write_at(self._held.fd, _TAKEN, self._end + len(_ACKNOWLEDGED), self._folder.disk.system)
            self._folder.disk.system.fsync(self._held.fd)
            # An acknowledgement counts if it was written before this read.
            self.acknowledged = parts_of(self._held.fd)[3].startswith(_ACKNOWLEDGED)

    def check(self) -> None:
        with mapped_errors("looking at", self._path):
            status = self._folder.disk.system.fstat(self._held.fd)
        if status.st_size > self._end + len(_ACKNOWLEDGED):
            raise ConflictError(
                f"{self._path}: another process has declared this writer dead and recovered its flushed records; "
                "later records are not safe: write them again with a new writer"
            )
        if not status.st_nlink:
            raise StorageError(
                f"{self._path}: the header of this writer was removed, so its records could not be recovered; "
                "records since the last flush are not safe: write them again with a new writer"
            )

    def acknowledge(self) -> None:
        system, fd = self._folder.disk.system, self._held.fd
        with self._acknowledging, mapped_errors("writing", self._path):
            if self.acknowledged:
                return
            try:
                write_at(fd, _ACKNOWLEDGED, self._end, system)
                system.fsync(fd)
                self.check()
            except BaseException:
                # No caller relies on this line yet, so it can be undone. Overwrite it instead of truncating the file,
                # so that a line that another process has written after it is kept.
                with suppress(OSError):
                    write_at(fd, bytes(1), self._end, system)
                raise
            self.acknowledged = True

    def holds_promises(self) -> bool:
        # A rolling writer's journals have the only copy of their records, and its flushes leave no line in the header.
        return self.acknowledged or (self.header.kind == "rolling" and bool(self.files.shards()))

    def end(self, *, keep: bool = False, briefly: bool = False) -> None:
        try:
            if self._held.fd >= 0 and not keep and not self.files.any_left():
                self._remove()
        finally:
            self._held.release()

    def _remove(self) -> None:
        """Remove the status and the header, after making earlier deletions durable."""
        status = status_path(self._folder, self.header)
        with mapped_errors("deleting", status), suppress(FileNotFoundError):
            if own_file(status):
                self._folder.disk.system.unlink(status)
        with mapped_errors("deleting", self._path), suppress(FileNotFoundError):
            sync_folders(self._folder, self.header.name)
            self._folder.disk.system.unlink(self._path)


def sync_folders(folder: LocalStorage, name: str) -> None:
    """Make the directory entries of a data set durable. Blocks.

    Individual deletions are not synced, because a job may delete thousands of objects. They are all made durable before
    the job's header or mark is removed. Otherwise, a power failure could restore objects that no job owns any more.
    """
    for part in ("", "_index", "_keys", manifest_prefix(name)):
        with suppress(FileNotFoundError):
            folder.disk.sync_folder(os.path.join(folder.folder, part))


def _locked(fd: int, path: str) -> FileLock:
    try:
        return FileLock(fd, path)
    except StorageError as error:
        if error.errno == errno.ENOLCK:
            error.add_note("to write to this folder, pass spool= with a folder on a disk that supports locks")
        raise


def _write(system: Any, fd: int, data: bytes) -> None:
    while data:
        data = data[system.write(fd, data) :]
