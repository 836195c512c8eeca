"""`Home`: where the jobs on a data set keep records that are not part of it yet: in a local folder, or nowhere.

In a folder on a disk (`LocalHome`: a local data set's own folder, or a spool), a job has a locked file with its header,
next to its unfinished shards (`LocalStaging`). A job on a store has only its mark, and a lock on its own machine. A
request to a store may take effect late, even after the process that sent it has died. `home_of` returns the home of a
data set; it is the only code that checks what kind of storage contains the data set.

All methods in this module block. Call them in worker threads.
"""

from __future__ import annotations

import os
import re
import time
from contextlib import suppress

from asyncrec._shards.journal.header import JobHeader, header_path, names_in, parts_of
from asyncrec._shards.journal.staging import LocalStaging, Staging, sync_folders
from asyncrec._shards.journal.tokens import take_token
from asyncrec._shards.manifest.names import manifest_prefix
from asyncrec.errors import StorageError
from asyncrec.storage._base import Storage
from asyncrec.storage._local.disk import is_partial, read_at
from asyncrec.storage._local.lock import FileLock
from asyncrec.storage._local.opening import is_not_own, open_own
from asyncrec.storage._local.storage import LocalStorage, local_folder, mapped_errors

# The file of a small object is locked as soon as it is created, and writing it takes only milliseconds.
_SMALL_SECONDS = 60
# The first bytes of a header. No journal begins with these bytes.
_BEGIN = re.compile(rb"[0-9]{1,20}\n\{")
# The temporary name of a header's file, before the file is linked to its final name.
_UNNAMED = re.compile(r"\.[0-9a-f]{16}\.partial")


class Home:
    """The home of the jobs on a data set in a store. Such jobs keep no records outside the store.

    Attributes:
        folder: the folder on a disk, if there is one.
    """

    folder: LocalStorage | None = None

    def headers(self, name: str | None = None) -> list[JobHeader]:
        """Read the headers of the jobs in the home, whether alive or dead; with ``name``, only of that data set's jobs.

        Raises:
            StorageError: a header cannot be read. The files of its job must not be touched.
        """
        return []

    def is_taken(self, name: str, writer: str) -> bool:
        """Return whether a file with the name of this job's header exists, no matter which user owns it."""
        return False

    def claim(self, header: JobHeader) -> Staging | None:
        """Lock the file that proves a job alive. Return `None` if its header was removed or is malformed.

        `Staging.dead` is true if getting the lock proves that the job is dead. Take over the job only in that case, or
        if a user declares it dead.

        Raises:
            StorageError: the job is alive (``errno`` is EWOULDBLOCK), or the file belongs to another user.
        """
        lock, dead = take_token(header.life)
        return Staging(header, lock, dead=dead)

    def sync(self, name: str) -> None:
        """Make the creation and deletion of a data set's objects durable."""

    def remove_strays(self, name: str) -> None:
        """Remove the unfinished headers, marks and segments that killed processes left behind."""


class LocalHome(Home):
    """The home of jobs that keep their files in a folder on a disk."""

    folder: LocalStorage

    def __init__(self, folder: LocalStorage) -> None:
        self.folder = folder

    def headers(self, name: str | None = None) -> list[JobHeader]:
        found = []
        for file in sorted(filter(is_partial, names_in(self.folder))):
            path = os.path.join(self.folder.folder, file)
            try:
                fd = open_own(path, os.O_RDONLY, linked=True)
            except StorageError as error:
                if is_not_own(error):  # ignore a header that belongs to another user
                    continue
                raise
            try:
                with mapped_errors("reading", path):
                    header = JobHeader.decode(parts_of(fd)[1]) if _BEGIN.match(read_at(fd, 32, 0)) else None
            finally:
                os.close(fd)
            if header is None or name not in (None, header.name):
                continue
            if header_path(self.folder, header.name, header.writer) == path:
                found.append(header)
        return found

    def is_taken(self, name: str, writer: str) -> bool:
        return os.path.lexists(header_path(self.folder, name, writer))

    def claim(self, header: JobHeader) -> Staging | None:
        return LocalStaging.claim(self.folder, header.name, header.writer)

    def sync(self, name: str) -> None:
        sync_folders(self.folder, name)

    def remove_strays(self, name: str) -> None:
        self.remove_unnamed()
        path = os.path.join(self.folder.folder, manifest_prefix(name))
        with suppress(OSError):
            for each in os.listdir(path):
                unfinished = os.path.join(path, each)
                with suppress(OSError):  # another process is writing the file, or has removed it
                    if is_partial(each) and time.time() - os.lstat(unfinished).st_mtime > _SMALL_SECONDS:
                        self._remove_unheld(unfinished)

    def remove_unnamed(self) -> None:
        """Remove the files that were left behind by jobs killed while they were writing their headers."""
        for name in filter(_UNNAMED.fullmatch, names_in(self.folder)):
            with suppress(StorageError):  # the file was removed, belongs to another user, or is being written
                self._remove_unheld(os.path.join(self.folder.folder, name))

    def _remove_unheld(self, path: str) -> None:
        lock = FileLock(open_own(path, os.O_RDWR, linked=True), path)
        try:
            with suppress(OSError):
                self.folder.disk.system.unlink(path)
        finally:
            lock.release()


NOWHERE = Home()


def home_of(folder: Storage) -> Home:
    """Return the home of the jobs on a data set in this folder, if they do not use a spool."""
    local = local_folder(folder)
    return NOWHERE if local is None else LocalHome(local)
