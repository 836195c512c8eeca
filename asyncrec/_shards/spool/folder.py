"""`SpoolFolder` is a local folder to which shards are written first. They are uploaded from there in the background.

An object writer writes its shards to the folder, with index and keys, in the same way as to a local data set.
Therefore, the records that a flush acknowledges are on the disk, and a store that is slow or down does not stop the
writer. Each object writer has an uploader (`asyncrec._shards.spool.uploader`), which sends the parts of a shard as they
reach the disk, publishes the shard once it is complete, commits it, and removes it from the spool. If the store is
down, the uploader retries the shard from the beginning until that succeeds or the writer exits, and once more at exit.

The folder belongs to one writer at a time, which has a lock that is released when its process exits. Shards that an
earlier writer left behind are recovered before anything is written.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from functools import partial

from asyncrec._concurrency.tasks import acquire_in_thread
from asyncrec._shards.journal.remedies import recover_command
from asyncrec._shards.manifest.segment import ShardEntry
from asyncrec._shards.spool.backlog import SpoolBacklog
from asyncrec.errors import StorageError
from asyncrec.storage._base import ByteSink
from asyncrec.storage._local.disk import write_at
from asyncrec.storage._local.lock import FileLock
from asyncrec.storage._local.opening import open_own
from asyncrec.storage._local.storage import LocalStorage, mapped_errors

LOCK_NAME = ".asyncrec-spool"
# Every folder that contains a data set also contains this subfolder (`_shards.manifest.names`).
_MANIFESTS = "_manifest"


class SpoolFolder(LocalStorage):
    """The storage backend for the folder of a spool. Only this user can read the files in it.

    Attributes:
        backlog: counts the bytes of the shards in the folder.
    """

    private = True

    def __init__(self, folder: str | os.PathLike[str], owner: str, backlog: SpoolBacklog) -> None:
        super().__init__(folder)
        self.owner = owner
        self.backlog = backlog

    def open_sink(self, key: str, *, exclusive: bool = False) -> AbstractAsyncContextManager[ByteSink]:
        sink = self._local_sink(key, exclusive=exclusive)
        if not key.startswith("_"):
            sink.on_sent = partial(self.backlog.sent, key)
        return sink

    def remove(self, entry: ShardEntry) -> None:
        """Remove a shard's index and keys, and then the shard, because recovery needs it to find the others. Blocks."""
        for key in reversed(entry.objects):
            path = self.path_of(key)
            with mapped_errors("deleting", str(path)), suppress(FileNotFoundError):
                self.disk.system.unlink(path)


def is_spool(path: str | os.PathLike[str]) -> bool:
    """Return whether a folder is, or has been, a spool. Blocks."""
    with suppress(FileNotFoundError, NotADirectoryError, ValueError):
        return stat.S_ISREG(os.lstat(os.path.join(path, LOCK_NAME)).st_mode)
    return False


def refuse_spool(folder: LocalStorage | None) -> None:
    """Raise an error if a folder in which a data set is to be written or recovered is a spool. Blocks.

    Complete shards in a spool already have the names that they will have in the data set. A job for which the spool is
    the data set's folder would consider them uploaded, and would remove them.

    Raises:
        StorageError: the folder is a spool.
    """
    if folder is not None and is_spool(folder.folder):
        raise StorageError(
            f"{folder.root} is a spool, where shards wait to be uploaded; write the data set to another folder. "
            f"{recover_command(folder.root, to='...')} uploads the records that a dead writer left in the spool"
        )


@asynccontextmanager
async def lock_spool(
    path: str | os.PathLike[str], *, target: LocalStorage | None = None
) -> AsyncIterator[LocalStorage]:
    """Lock the folder of a spool for this process. Create the folder if necessary.

    Args:
        target: the folder of the data set, if it is local.

    Raises:
        StorageError: another process uses the spool (the message names it), or the folder contains data sets.
    """
    folder = LocalStorage(path)
    lock = await acquire_in_thread(partial(_lock, folder, target), FileLock.release)
    try:
        yield folder
    finally:
        lock.release()


def _lock(folder: LocalStorage, target: LocalStorage | None) -> FileLock:
    with mapped_errors("opening the spool", folder.root):
        same = target is not None and os.path.realpath(target.folder) == os.path.realpath(folder.folder)
        if same or (not is_spool(folder.folder) and os.path.lexists(os.path.join(folder.folder, _MANIFESTS))):
            raise StorageError(f"{folder.root}: this folder contains data sets; pass another folder as spool=")
        folder.disk.make_folder(folder.folder, 0o700)
        path = os.path.join(folder.folder, LOCK_NAME)
        new = not os.path.lexists(path)
        fd = open_own(path, os.O_RDWR | os.O_CREAT)
        try:
            lock = FileLock(fd, path)
        except StorageError as error:
            if new and error.errno == errno.ENOLCK:  # no process owns the file, but it would mark a spool
                os.unlink(path)
            raise
        try:
            os.ftruncate(fd, 0)
            write_at(fd, b"%d\n" % os.getpid(), 0)
            # Its name says that the folder is a spool: after a power cut it is there if any header is.
            folder.disk.sync_folder(folder.folder)
        except BaseException:
            lock.release()
            raise
        return lock
