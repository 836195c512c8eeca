"""`LocalSink`: one file being written, seen by nobody until it is whole, and until then its user's alone (mode 0600).

The bytes go to ``.<name>.<id>.partial`` beside the target, made by the first `send`, or on opening where the storage
has an owner (`LocalStorage.owned_by`), whose id is then in the name; publishing is one hop to a thread: the mode that
an object has, fsync, check of the size, `os.replace` (`os.link` when exclusive), fsync of the folder. Everything that
touches the disk runs in worker threads that are waited for, so that neither a descriptor nor a file is left by a
cancellation. Only chunks for a filesystem that lives in memory are copied there and then.
"""

from __future__ import annotations

import errno
import fcntl
import logging
import os
import stat
from collections.abc import Callable, Sequence
from contextlib import suppress
from types import TracebackType

import anyio
import anyio.lowlevel

from asyncrec.errors import IntegrityError, ObjectExistsError, StorageError
from asyncrec.storage._base import Buffer, ByteSink
from asyncrec.storage._local.disk import Disk, mapped_errors, object_info, partial_name

__all__ = ["LocalSink"]

logger = logging.getLogger("asyncrec.storage")

# Buffers in one writev; Linux and macOS take 1,024. POSIX guarantees 16.
_IOV_MAX = os.sysconf("SC_IOV_MAX") if "SC_IOV_MAX" in os.sysconf_names else 16
# Copied into a filesystem in memory on the event loop at once: about 0.6 ms, where a hop to a thread and back costs
# more than the copy saves, because the two threads then take turns at the interpreter. It has no disk to wait for.
_MOST_TO_MEMORY = 2 << 20
# With hundreds of shards open: so small a write still costs less than the records in it.
_LEAST_CHUNK = 64 << 10
# An unfinished file is its user's alone: who may read the data set may not read what was never published.
_UNPUBLISHED = 0o600


class LocalSink(ByteSink):
    """See the module and `ByteSink`.

    An exception leaves nothing, unless a `flush` has acknowledged bytes: then the unfinished file is kept, with at
    least those. asyncio's own ``task.cancel()``, when it comes during the very hop that publishes, leaves as
    `CancelledError` though the object is there, whole; `published` then says so.
    """

    def __init__(
        self,
        disk: Disk,
        key: str,
        path: str,
        shown: str,
        *,
        exclusive: bool,
        chunk_size: int,
        owner: str | None = None,
        keep: bool = True,
        zeros: int = 0,
        private: bool = False,
    ) -> None:
        """``zeros``: bytes that the owner's unfinished file begins with, from the moment that it is there."""
        self.chunk_size = chunk_size
        self.on_sent: Callable[[int], None] | None = None  # told what each `send` has put into the file
        self._zeros = zeros
        self._pushed = 0  # bytes in the file, by `push`
        self._before_write: Callable[[], None] | None = None
        self._ahead_of: LocalSink | None = None  # the one that is written behind this
        self._owner = owner
        self._keep = keep
        self._private = private
        self._mode = _UNPUBLISHED  # of the object, once it is published
        self._disk = disk
        self._system = disk.system
        self._key = key
        self._path = path
        self._shown = shown
        self._exclusive = exclusive
        self._fd = -1
        self._partial: str | None = None
        self._in_memory = False
        self._size = 0  # sent
        self._acknowledged = False
        self._state = "new"  # open, failed, closed

    async def __aenter__(self) -> LocalSink:
        if self._state != "new":
            raise RuntimeError("a sink is entered once")
        if self._exclusive:
            with mapped_errors("writing", self._shown):
                there = await self._disk.in_thread(self._exists)
            if there:
                raise self._exists_already()
        if self._owner is not None:
            try:
                with mapped_errors("writing", self._shown):
                    await self._disk.in_thread(self._create)
            except BaseException:
                await self._clean_up()
                raise
        self._state = "open"
        return self

    def hold_at_most(self, size: int) -> None:
        self.chunk_size = min(self.chunk_size, max(size, _LEAST_CHUNK))

    def write_behind(self, other: LocalSink, tail: Callable[[], Sequence[Buffer]]) -> None:
        """From now on, put what ``other`` was not sent yet into its file before each write to this one.

        ``tail`` gives it. So a crash of the process leaves nothing in this file of which the other's part is missing;
        nor does a failure, behind which the other's unfinished file is kept if this one's is.
        """
        self._before_write = lambda: other._push(tail())
        other._ahead_of = self

    async def send(self, buffers: Sequence[Buffer]) -> None:
        here = self._in_memory and sum(map(_nbytes, buffers)) <= _MOST_TO_MEMORY
        size = await self._step(self._write, buffers, here=here)
        if self.on_sent is not None:
            self.on_sent(size)

    async def flush(self, tail: Sequence[Buffer]) -> int:
        return await self._step(self._flush, tail) if self._keep else 0

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        failed = self._state == "failed"
        self._state = "closed"
        if exc is None:
            try:
                if failed:
                    raise StorageError(f"{self._shown}: not published, because writing it failed before")
                with mapped_errors("publishing", self._shown):
                    await self._disk.in_thread(self._publish)
            except BaseException:
                await self._clean_up()
                raise
        await self._clean_up()

    # -- in the task ---------------------------------------------------------------------------------------------------

    async def _step(
        self, func: Callable[[Sequence[Buffer]], int], buffers: Sequence[Buffer], *, here: bool = False
    ) -> int:
        if self._state in ("new", "closed"):
            raise anyio.ClosedResourceError
        if self._state == "failed":
            raise StorageError(f"{self._shown}: writing it failed or was cancelled before; it can only be abandoned")
        self._state = "failed"  # until this has ended well
        with mapped_errors("writing", self._shown):
            if here:
                await anyio.lowlevel.checkpoint()
                done = func(buffers)
            else:
                done = await self._disk.in_thread(func, buffers)
        self._state = "open"
        return done

    async def _clean_up(self) -> None:
        if self._fd < 0 and self._partial is None:
            return
        # Not limited in time: what the system does not answer to, no time limit can undo.
        await self._disk.surely_in_thread(self._abandon)

    def _exists_already(self) -> ObjectExistsError:
        return ObjectExistsError(f"{self._shown}: it is there already, and was to be created")

    # -- in a thread ---------------------------------------------------------------------------------------------------

    def _exists(self) -> bool:
        try:
            status = self._system.lstat(self._path)
        except FileNotFoundError:
            return False
        if stat.S_ISDIR(status.st_mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), self._path)
        return True

    def _create(self) -> None:
        if self._fd >= 0:
            return
        folder, name = os.path.split(self._path)
        self._disk.make_folder(folder)
        self._exists()  # a folder of that name, or a name too long, shows now and not at the end
        partial = os.path.join(folder, partial_name(name, self._owner))
        # Whoever finds the file with its zeros missing would take what follows for lost.
        begun = os.path.join(folder, partial_name(name, f"{self._owner}~begun")) if self._zeros else partial
        status = self._open_partial(begun, _UNPUBLISHED if self._private else 0o666)
        self._mode = stat.S_IMODE(status.st_mode)
        if self._mode & 0o077:
            # That is what the umask, or the folder's access list, gives an object; nobody else reads it before. Made
            # anew and not changed: who had opened it before the change would read on.
            self._close()
            self._system.unlink(begun)
            self._partial = None
            status = self._open_partial(begun, _UNPUBLISHED)
        with suppress(OSError):  # a filesystem without locks: then its age alone says whether somebody writes it
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if self._zeros:
            self._system.ftruncate(self._fd, self._zeros)
            self._system.fsync(self._fd)
            self._system.replace(begun, partial)
            self._partial = partial
            self._disk.sync_folder(folder)
        self._in_memory = self._disk.lives_in_memory(status.st_dev)

    def _open_partial(self, partial: str, mode: int) -> os.stat_result:
        self._fd = self._system.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
        self._partial = partial
        status: os.stat_result = self._system.fstat(self._fd)
        return status

    def _write(self, buffers: Sequence[Buffer]) -> int:
        if self._before_write is not None:
            self._before_write()
        self._create()
        before = self._size
        for first in range(0, len(buffers), _IOV_MAX):
            batch = buffers[first : first + _IOV_MAX]
            while batch:
                written = self._system.writev(self._fd, batch)
                self._size += written
                batch = _after(batch, written)
        return self._size - before

    def _flush(self, tail: Sequence[Buffer]) -> int:
        size = sum(map(_nbytes, tail))
        if not size and not self._size:
            return 0
        if self._before_write is not None:
            self._before_write()
        self._push(tail)
        self._system.fsync(self._fd)
        if not self._acknowledged:
            self._disk.sync_folder(os.path.dirname(self._path))
        self._acknowledged = True
        return size

    def _push(self, tail: Sequence[Buffer]) -> None:
        """Put what was not sent yet into the file, too."""
        self._create()
        position = self._size
        for buffer in tail:
            view = memoryview(buffer).cast("B")
            rest: Sequence[Buffer] = [view[max(0, min(self._pushed - position, len(view))) :]]
            position += len(view) - len(rest[0])
            while len(rest) and len(rest[0]):
                # Beyond the position of writev, which the next chunk begins at: it writes the same bytes again.
                written = self._system.pwrite(self._fd, rest[0], position)
                position += written
                rest = _after(rest, written)
        self._pushed = max(self._pushed, position)

    def _publish(self) -> None:
        self._create()
        assert self._partial is not None, "made with the descriptor"
        if self._mode != _UNPUBLISHED:
            self._system.fchmod(self._fd, self._mode)
        self._system.fsync(self._fd)
        status = self._system.fstat(self._fd)
        if status.st_size != self._size:
            raise IntegrityError(f"{self._shown}: {self._size:,} bytes were written, the file has {status.st_size:,}")
        replaces = self._exists()
        partial, linked = self._partial, False
        if not self._exclusive:
            self._system.replace(partial, self._path)
        elif replaces:
            raise self._exists_already()
        else:
            linked = self._create_exclusively(partial)
        if not linked:
            self._partial = None
        try:
            self._disk.sync_folder(os.path.dirname(self._path))
        except OSError:
            # Whether the name survives is not known: the error must not leave an object behind, nor take away what was
            # acknowledged. One that was replaced is lost either way; then the new one, which is whole, is worth more
            # than none.
            if not replaces:
                with suppress(OSError):
                    if self._acknowledged and not linked:
                        self._system.replace(self._path, partial)
                    else:
                        self._system.unlink(self._path)
            raise
        if linked:
            # Only now: no power cut leaves neither name. Should this fail, a second name, never listed, does no harm.
            self._partial = None
            with suppress(OSError):
                self._system.unlink(partial)
        self.published = object_info(self._key, status)

    def _create_exclusively(self, partial: str) -> bool:
        """Whether the object is a second name of the unfinished file, which then is there still."""
        try:
            return self._disk.link(partial, self._path)
        except FileExistsError as error:
            raise self._exists_already() from error

    def _abandon(self) -> None:
        kept = self._acknowledged or (self._ahead_of is not None and self._ahead_of._acknowledged)
        if self._fd >= 0 and self._partial is not None and kept and self._mode != _UNPUBLISHED:
            with suppress(OSError):  # it was to be published, and stays unfinished
                self._system.fchmod(self._fd, _UNPUBLISHED)
        self._close()
        if self._partial is not None and not kept:
            partial, self._partial = self._partial, None
            try:
                self._system.unlink(partial)
            except FileNotFoundError:
                pass
            except OSError as error:
                logger.warning("%s: the unfinished file %s cannot be removed: %s", self._shown, partial, error)

    def _close(self) -> None:
        if self._fd >= 0:
            fd, self._fd = self._fd, -1
            with suppress(OSError):  # what was promised has been synced before
                os.close(fd)


def _nbytes(buffer: Buffer) -> int:
    return buffer.nbytes if isinstance(buffer, memoryview) else len(buffer)


def _after(buffers: Sequence[Buffer], written: int) -> Sequence[Buffer]:
    """What is left of ``buffers`` after ``written`` bytes.

    Raises:
        OSError: nothing was written of something, which would go on for ever.
    """
    size = sum(map(_nbytes, buffers))
    if written == size:
        return ()
    if not written:
        raise OSError(errno.EIO, "the system took no byte")
    for n, buffer in enumerate(buffers):
        if written < _nbytes(buffer):
            return [memoryview(buffer).cast("B")[written:], *buffers[n + 1 :]]
        written -= _nbytes(buffer)
    return ()
