"""`UnfinishedFile` is a file that becomes an object when it is published. Its mode is 0600 until then. All methods
block.

The bytes are written to ``.<name>.<id>.partial`` next to the target. The first write creates this file. If the storage
has an owner (`LocalStorage.owned_by`), the file is created when the sink is opened, and ``<id>`` is the owner's id.
Publication sets the object's mode, calls fsync, checks the size, calls `os.replace` (`os.link` if exclusive), and calls
fsync on the folder.
"""

from __future__ import annotations

import errno
import logging
import os
import stat
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from asyncrec.errors import IntegrityError, ObjectExistsError, ObjectNotFoundError
from asyncrec.storage._base import Buffer, ObjectInfo
from asyncrec.storage._local.disk import Disk, Place, object_info, partial_name
from asyncrec.storage._local.lock import FileLock
from asyncrec.storage._local.opening import create_file

logger = logging.getLogger("asyncrec.storage")

# The maximum number of buffers in one writev: 1,024 on Linux and macOS. POSIX guarantees 16.
_IOV_MAX = os.sysconf("SC_IOV_MAX") if "SC_IOV_MAX" in os.sysconf_names else 16
# The mode of an unfinished file. Other users must not read unpublished records, even if they may read the data set.
_UNPUBLISHED = 0o600


@dataclass(frozen=True, kw_only=True)
class Target(Place):
    """The object that an unfinished file will become.

    Attributes:
        exclusive: whether publication fails if the object exists.
        owner: the id of the writer, as in the name of the unfinished file; `None` for a random name.
        zeros: the number of zero bytes with which the owner's unfinished file begins as soon as it exists.
        private: whether only this user can read the object.
        check: a function that raises StorageError if the owner has lost its job.
    """

    exclusive: bool
    owner: str | None
    zeros: int
    private: bool
    check: Callable[[], None] | None = None

    @property
    def folder(self) -> str:
        return os.path.dirname(self.path)


class UnfinishedFile:
    """The file of one object until it is published or abandoned. One thread at a time may use it.

    Attributes:
        in_memory: whether the filesystem is in memory; valid once the file has been created.
        acknowledged: whether a flush has acknowledged any bytes.
    """

    def __init__(self, disk: Disk, target: Target) -> None:
        self.in_memory = False
        self.acknowledged = False
        self._disk = disk
        self._target = target
        self._lock: FileLock | None = None  # owns the descriptor
        self._partial: str | None = None
        self._mode = _UNPUBLISHED  # the object's mode, once it is published
        self._size = 0  # the number of bytes sent
        self._pushed = 0  # the end of the bytes written by `push`
        self._before_write: Callable[[], None] | None = None
        self._ahead_of: UnfinishedFile | None = None  # the file that is written after this one

    @property
    def there(self) -> bool:
        """Whether the file still has to be closed or removed."""
        return self._lock is not None or self._partial is not None

    def write_behind(self, other: UnfinishedFile, tail: Callable[[], Sequence[Buffer]]) -> None:
        """Write the unsent bytes of ``other`` to its file before each write: see `LocalSink.write_behind`."""
        self._before_write = lambda: other.push(tail())
        other._ahead_of = self

    def refuse_existing(self) -> None:
        """Raise ObjectExistsError if the target exists."""
        if self._exists():
            raise _exists_already(self._target)

    def create(self) -> None:
        """Create the file, unless it exists."""
        if self._lock is not None:
            return
        folder, name = os.path.split(self._target.path)
        self._disk.make_folder(folder)
        self._exists()  # raise now, not on publication, if the name is too long or names a folder
        owner, zeros = self._target.owner, self._target.zeros
        partial = os.path.join(folder, partial_name(name, owner))
        # Until its zeros are durable, the file has a different name, because missing zeros would count as lost data.
        begun = os.path.join(folder, partial_name(name, f"{owner}~begun")) if zeros else partial
        status = self._open(begun, _UNPUBLISHED if self._target.private else 0o666)
        self._mode = stat.S_IMODE(status.st_mode)
        if self._mode & 0o077:
            # The umask or the folder's access list gives other users these rights, but they must not read the file
            # before it is published. Create it again instead of changing its mode, because a process that has already
            # opened it could continue to read.
            self._close()
            self._disk.system.unlink(begun)
            self._partial = None
            status = self._open(begun, _UNPUBLISHED)
        if zeros:
            self._disk.system.ftruncate(self._fd, zeros)
            self._disk.system.fsync(self._fd)
            self._disk.system.replace(begun, partial)
            self._partial = partial
            self._disk.sync_folder(folder)
        self.in_memory = self._disk.lives_in_memory(status.st_dev)

    def write(self, buffers: Sequence[Buffer]) -> int:
        """Append the buffers. Return their total length in bytes."""
        if self._before_write is not None:
            self._before_write()
        self.create()
        before = self._size
        for first in range(0, len(buffers), _IOV_MAX):
            batch = buffers[first : first + _IOV_MAX]
            while batch:
                written = self._disk.system.writev(self._fd, batch)
                self._size += written
                batch = _after(batch, written)
        return self._size - before

    def flush(self, tail: Sequence[Buffer]) -> int:
        """Make the written bytes and ``tail`` durable. Return the number of durable bytes of ``tail``."""
        size = sum(map(nbytes, tail))
        if not size and not self._size:
            return 0
        if self._before_write is not None:
            self._before_write()
        self.push(tail)
        self._disk.system.fsync(self._fd)
        if not self.acknowledged:
            self._disk.sync_folder(self._target.folder)
        assert self._partial is not None, "push created it"
        _see_found(self._disk, self._fd, self._partial, self._target)
        self.acknowledged = True
        return size

    def push(self, tail: Sequence[Buffer]) -> None:
        """Write the unsent bytes of ``tail`` to the file, at the position at which `write` will write them again."""
        self.create()
        position = self._size
        for buffer in tail:
            if (end := position + nbytes(buffer)) > self._pushed:
                rest: Sequence[Buffer] = [memoryview(buffer).cast("B")[max(0, self._pushed - position) :]]
                while len(rest) and len(rest[0]):
                    # pwrite does not move writev's position, so the next chunk writes the same bytes again.
                    rest = _after(rest, self._disk.system.pwrite(self._fd, rest[0], end - len(rest[0])))
            position = end
        self._pushed = max(self._pushed, position)

    def publish(self) -> ObjectInfo:
        """Publish the file as the object.

        Raises:
            ObjectExistsError: the target is exclusive, and exists.
            IntegrityError: the file's length differs from the number of bytes written.
            StorageError: as `Target.check`. If the job was lost, its recovery may have published an object with this
                name.
        """
        self.create()
        if self._target.check is not None:
            self._target.check()
        assert self._partial is not None, "create() has set it"
        system, path = self._disk.system, self._target.path
        if self._mode != _UNPUBLISHED:
            system.fchmod(self._fd, self._mode)
        system.fsync(self._fd)
        status = system.fstat(self._fd)
        if status.st_size != self._size:
            raise IntegrityError(
                f"{self._target.shown}: {self._size:,} bytes were written, but the file has {status.st_size:,}"
            )
        replaces = self._exists()
        partial, linked = self._partial, False
        if not self._target.exclusive:
            system.replace(partial, path)
        elif replaces:
            raise _exists_already(self._target)
        else:
            linked = self._create_exclusively(partial)
        if not linked:
            self._partial = None
        try:
            self._disk.sync_folder(self._target.folder)
        except OSError:
            # It is unknown whether the name is durable. After the error, no object may be left, but acknowledged bytes,
            # and bytes that belong to another file (see `abandon`), must be kept. If an object was replaced, it is lost
            # in any case, so keep the new, complete object.
            if not replaces:
                with suppress(OSError):
                    if not linked:
                        system.replace(path, partial)
                        self._partial = partial
                    else:
                        system.unlink(path)
            raise
        if linked:
            # Remove the old name last, so that the file has at least one name after a power cut. If the removal fails,
            # the old name is harmless, because it is never listed.
            self._partial = None
            with suppress(OSError):
                system.unlink(partial)
        return object_info(self._target.key, status)

    def abandon(self) -> None:
        """Close the file, and remove it unless it was published or a flush has acknowledged bytes.

        The file to which this one belongs (`write_behind`) is removed first. If that file is kept, so is this one.
        Therefore, even a crash between the two steps cannot leave that file without this one.
        """
        kept = self.acknowledged
        if self._partial is not None and not kept and self._ahead_of is not None:
            kept = not self._ahead_of.remove_durably()
        if self._lock is not None and self._partial is not None and kept and self._mode != _UNPUBLISHED:
            with suppress(OSError):  # undo the change of mode, because the file remains unpublished
                self._disk.system.fchmod(self._fd, _UNPUBLISHED)
        self._close()
        if self._partial is not None and not kept:
            try:
                with suppress(FileNotFoundError):
                    self._disk.system.unlink(self._partial)
                self._partial = None
            except OSError as error:
                logger.warning(
                    "%s: the unfinished file %s could not be removed: %s",
                    self._target.shown,
                    self._partial,
                    error,
                    extra={"path": self._target.shown},
                )

    def remove_durably(self) -> bool:
        """Abandon the file. Return whether it is durably removed, so that it cannot reappear after a power cut.

        The file must not have been abandoned before, because `abandon` does not make the removal durable.
        """
        if self.acknowledged or not self.there:
            return not self.acknowledged
        self.abandon()
        if self._partial is not None:
            return False
        try:
            self._disk.sync_folder(self._target.folder)
        except OSError:
            return False
        return True

    @property
    def _fd(self) -> int:
        return -1 if self._lock is None else self._lock.fd

    def _open(self, partial: str, mode: int) -> os.stat_result:
        fd = create_file(partial, mode, system=self._disk.system)
        self._partial = partial
        # On a filesystem without locks, only the file's age shows whether a process is still writing it.
        self._lock = FileLock(fd, partial, needed=False)
        status: os.stat_result = self._disk.system.fstat(fd)
        return status

    def _close(self) -> None:
        if self._lock is not None:
            self._lock.release()  # acknowledged bytes are already durable
            self._lock = None

    def _exists(self) -> bool:
        try:
            status = self._disk.system.lstat(self._target.path)
        except FileNotFoundError:
            return False
        if stat.S_ISDIR(status.st_mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), self._target.path)
        return True

    def _create_exclusively(self, partial: str) -> bool:
        """Create the object. Return whether the unfinished file also keeps its old name."""
        try:
            return self._disk.link(partial, self._target.path)
        except FileExistsError as error:
            raise _exists_already(self._target) from error


def leads_to(path: str, fd: int, system: Any = None) -> bool:
    """Return whether a path still refers to an open file. If not, bytes written to the file will be lost. Blocks."""
    system = os if system is None else system
    here = system.fstat(fd)
    try:
        there = system.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        return False
    return bool((here.st_dev, here.st_ino) == (there.st_dev, there.st_ino))


def _see_found(disk: Disk, fd: int, partial: str, target: Target) -> None:
    """Raise an error if the name no longer refers to the file, or if its owner has lost the job.

    In both cases, bytes written to the file would be lost.

    Raises:
        ObjectNotFoundError: the file was removed or renamed.
        StorageError: as `Target.check`.
    """
    found = leads_to(partial, fd, disk.system)
    if target.check is not None:
        target.check()
    if not found:
        raise ObjectNotFoundError(
            f"{target.shown}: the unfinished file {partial} was removed or renamed, together with its records; "
            "records since the last flush are not safe"
        )


def _exists_already(target: Target) -> ObjectExistsError:
    return ObjectExistsError(f"{target.shown} exists already").with_remedy("choose another name")


def nbytes(buffer: Buffer) -> int:
    return buffer.nbytes if isinstance(buffer, memoryview) else len(buffer)


def _after(buffers: Sequence[Buffer], written: int) -> Sequence[Buffer]:
    """Return the parts of ``buffers`` after the first ``written`` bytes.

    Raises:
        OSError: no byte was written, so the caller's loop would never end.
    """
    size = sum(map(nbytes, buffers))
    if written == size:
        return ()
    if not written:
        raise OSError(errno.EIO, "the system accepted no bytes")
    for n, buffer in enumerate(buffers):
        if written < nbytes(buffer):
            return [memoryview(buffer).cast("B")[written:], *buffers[n + 1 :]]
        written -= nbytes(buffer)
    return ()
