"""`LocalStorage` is the backend for plain paths and ``file:`` URLs. Its objects are files.

A key is a path below the root. Each part before a slash is a folder, created when needed and never listed. A key cannot
refer to a file outside the root, except through a symbolic link that the user created. Such a link is followed, but a
link with the object's own name is replaced when the object is written. Unfinished files, which are named
``.<name>.<id>.partial`` and are next to their target, are not objects, and only `LocalStorage.list_unfinished` lists
them.

Objects are written by `sink` and `unfinished`, read by `source`, read at random by `open_files`, and listed by `walk`.
"""

from __future__ import annotations

import errno
import os
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from itertools import islice
from pathlib import Path
from typing import Any

from asyncrec.errors import ArgumentValueError, ObjectNotFoundError, StorageError
from asyncrec.plugins import hookimpl
from asyncrec.storage._base import ByteSink, ByteSource, LocalFiles, ObjectInfo, Storage
from asyncrec.storage._factory import StorageFactory
from asyncrec.storage._local.disk import Disk, Place, is_partial, local_error, mapped_errors, object_info, partial_name
from asyncrec.storage._local.lock import FileLock
from asyncrec.storage._local.open_files import OpenFile
from asyncrec.storage._local.opening import open_own
from asyncrec.storage._local.sink import LocalSink
from asyncrec.storage._local.source import LocalSource, check_regular
from asyncrec.storage._local.unfinished import Target
from asyncrec.storage._local.walk import walk
from asyncrec.storage._prefixed import PrefixedStorage
from asyncrec.storage._url import check_key, join, local_path

__all__ = ["LocalStorage", "first_there", "local_error", "local_folder", "mapped_errors", "object_info", "open_file"]

# The size of one writev. At 2 MiB, a thread hop (50 to 120 us) takes a tenth of the time of copying and checksumming. A
# larger chunk would save little time, but use more memory.
_CHUNK_SIZE = 2 << 20
# The chunk size of index and keys files, enough for 16,384 keys. Keys are written before their records. The smaller
# this chunk is, the more records still have their keys after a crash.
BESIDE_CHUNK = 256 << 10
# The number of files looked up per thread hop when listing, which takes about a millisecond.
_LIST_BATCH = 500


class LocalStorage(Storage):
    """A folder whose files are objects. The folder need not exist yet.

    Args:
        root: a path, shown in errors as passed. A relative path is resolved now, against the current working directory.
        chunk_size: the size of a write in bytes. The caller of each sink buffers one chunk.
        system: the functions of `os`; tests pass an object that injects failures.
    """

    flush_level = "spooled"
    owner: str | None = None
    # A function that raises StorageError if the owner has lost its job. A flush then acknowledges nothing.
    check: Callable[[], None] | None = None
    # Whether objects are readable only by this user, as unfinished files are. This is for folders that no other user
    # reads.
    private = False

    def __init__(
        self, root: str | os.PathLike[str] = ".", *, chunk_size: int = _CHUNK_SIZE, system: Any = None
    ) -> None:
        if chunk_size < 1:
            raise ArgumentValueError(f"chunk_size must be at least 1 byte, not {chunk_size}")
        self.root = os.fspath(root)
        self.chunk_size = chunk_size
        self.disk = Disk(system)
        self.folder = os.path.abspath(self.root)

    def __repr__(self) -> str:
        return f"LocalStorage({self.root!r})"

    def path_of(self, key: str) -> Path:
        """Return the absolute path of the file for ``key``.

        Raises:
            ValueError: the key is invalid, or has an empty segment (``a//b``, ``a/``).
        """
        return Path(_file_of(self.folder, key))

    def owned_by(self, owner: str, *, keep: bool = True) -> LocalStorage:
        """Return a storage of the same folder for one writer, whose id appears in the names of its unfinished files.

        These files are created when a sink is opened rather than by its first `send`, so that after a crash they show
        which objects were open. Objects whose keys begin with ``_`` are written in chunks of at most `BESIDE_CHUNK`.
        Without ``keep``, an exception leaves no file even after a flush.
        """
        owned = LocalStorage(self.root, chunk_size=self.chunk_size)
        owned.disk, owned.folder, owned.owner, owned.private = self.disk, self.folder, owner, self.private
        if not keep:
            owned.flush_level = "buffered"
        return owned

    def partial_of(self, key: str) -> Path:
        """Return the path of the owner's unfinished file for ``key``."""
        path = self.path_of(key)
        return path.with_name(partial_name(path.name, self.owner))

    def begun_of(self, key: str) -> Path:
        """Return the path of the owner's unfinished file for ``key`` until its leading zeros are durable."""
        path = self.path_of(key)
        return path.with_name(partial_name(path.name, f"{self.owner}~begun"))

    def open_sink(self, key: str, *, exclusive: bool = False) -> AbstractAsyncContextManager[ByteSink]:
        return self._local_sink(key, exclusive=exclusive)

    def open_sink_of_zeros(self, key: str, zeros: int) -> LocalSink:
        """Return an owner's sink whose unfinished file begins with ``zeros`` durable zero bytes as soon as it exists.

        The caller must still send these bytes.
        """
        return self._local_sink(key, exclusive=False, zeros=zeros)

    def _local_sink(self, key: str, *, exclusive: bool, zeros: int = 0) -> LocalSink:
        path = _file_of(self.folder, key)
        if is_partial(os.path.basename(path)):
            raise ArgumentValueError(
                f"the key {key!r} has the form of an unfinished file's name, so it would never be listed; choose "
                "another key"
            )
        beside = self.owner is not None and key.startswith("_")
        target = Target(
            key=key,
            path=path,
            shown=join(self.root, key),
            exclusive=exclusive,
            owner=self.owner,
            zeros=zeros,
            private=self.private,
            check=self.check,
        )
        chunk_size = min(self.chunk_size, BESIDE_CHUNK) if beside else self.chunk_size
        return LocalSink(self.disk, target, chunk_size=chunk_size, keep=self.flush_level == "spooled")

    def open_source(
        self, key: str, *, start: int = 0, end: int | None = None, info: ObjectInfo | None = None
    ) -> AbstractAsyncContextManager[ByteSource]:
        if start < 0 or (end is not None and end < 0):
            raise ArgumentValueError(f"the range [{start}, {end}) of {key!r}: offsets count from the beginning")
        return LocalSource(self.disk, _place_of(self, key), start=start, end=end, info=info)

    def list_objects(self, prefix: str = "", *, start_after: str = "") -> AsyncIterator[ObjectInfo]:
        """List the objects. Only the names of one folder per level of the tree are in memory at a time."""
        return self._walk(prefix, start_after, partial=False)

    async def head(self, key: str) -> ObjectInfo:
        path, shown = self.path_of(key), join(self.root, key)
        with mapped_errors("looking up", shown):
            status = await self.disk.in_thread(self.disk.system.stat, path)
        check_regular(status, shown)
        return object_info(key, status)

    async def delete(self, key: str) -> None:
        path = self.path_of(key)
        with mapped_errors("deleting", join(self.root, key)):
            await self.disk.in_thread(_unlink, self.disk, path)

    def list_unfinished(self, prefix: str = "") -> AsyncIterator[ObjectInfo]:
        """List the files that are not yet published, including those being written. They can be read and deleted."""
        return self._walk(prefix, "", partial=True)

    async def remove_unfinished(self, upload: ObjectInfo) -> None:
        """Delete an unfinished upload. It is not an error if the upload no longer exists.

        Raises:
            StorageError: a process is writing the upload, or the file is not this user's.
        """
        if not is_partial(upload.key.rpartition("/")[2]):
            raise ArgumentValueError(f"{join(self.root, upload.key)} is not an unfinished upload of this storage")
        await self.disk.in_thread(_remove_unfinished, self.disk, str(self.path_of(upload.key)))

    async def _walk(self, prefix: str, start_after: str, *, partial: bool) -> AsyncIterator[ObjectInfo]:
        found = walk(self.folder, prefix, start_after, partial=partial)

        def next_batch() -> list[ObjectInfo]:
            return [object_info(key, status) for key, status in islice(found, _LIST_BATCH)]

        while True:
            try:
                batch = await self.disk.in_thread(next_batch)
            except OSError as error:
                raise local_error(error, "listing", error.filename or join(self.root, prefix)) from error
            for info in batch:
                yield info
            if len(batch) < _LIST_BATCH:
                return


def first_there(storage: LocalStorage, keys: Iterable[str]) -> str | None:
    """Return the first of these keys whose object exists, or `None`. Blocks; one thread hop serves all keys."""
    for key in keys:
        path, shown = _file_of(storage.folder, key), join(storage.root, key)
        with suppress(ObjectNotFoundError), mapped_errors("looking up", shown):
            check_regular(storage.disk.system.stat(path), shown)
            return key
    return None


def _file_of(folder: str, key: str) -> str:
    check_key(key)
    if "//" in key or key.endswith("/"):
        raise ArgumentValueError(f"the key {key!r} has an empty segment between slashes, which a file path cannot have")
    return os.path.join(folder, key)


def _remove_unfinished(disk: Disk, path: str) -> None:
    try:
        fd = open_own(path, os.O_RDWR, linked=True)
    except ObjectNotFoundError:
        return
    lock = None
    try:
        lock = FileLock(fd, path)
    except StorageError as error:
        if error.errno != errno.ENOLCK:  # without locks, the file cannot be shown to be in use
            raise
    try:
        with mapped_errors("deleting", path), suppress(FileNotFoundError):
            disk.system.unlink(path)
    finally:
        if lock is not None:
            lock.release()


def _unlink(disk: Disk, path: Path) -> None:
    try:
        disk.system.unlink(path)
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
        pass
    except PermissionError:
        if not path.is_dir():  # macOS raises this for a folder, which is not an object
            raise


def local_folder(storage: Storage) -> LocalStorage | None:
    """Return a `LocalStorage` equivalent to ``storage``, or `None` if its objects are not local files."""
    if isinstance(storage, PrefixedStorage):
        whole = local_folder(storage.storage)
        if whole is None:
            return None
        part = LocalStorage(storage.root, chunk_size=whole.chunk_size)
        part.disk, part.folder = whole.disk, os.path.join(whole.folder, storage.prefix.rstrip("/"))
        return part
    if isinstance(storage, LocalFiles):
        folder = LocalStorage(storage.files_folder())
        folder.root = storage.root
        return folder
    return storage if type(storage) is LocalStorage else None  # a subclass may override methods


def open_file(folder: LocalStorage, key: str) -> OpenFile:
    """Open an object that the caller will read in its own threads. Blocks.

    Raises:
        ObjectNotFoundError, StoragePermissionError, StorageError: as `OpenFile`.
    """
    return OpenFile(folder.disk, _place_of(folder, key))


def _place_of(folder: LocalStorage, key: str) -> Place:
    return Place(key=key, path=str(folder.path_of(key)), shown=join(folder.root, key))


@asynccontextmanager
async def open_local(url: str, *, chunk_size: int = _CHUNK_SIZE) -> AsyncIterator[Storage]:
    """Open the storage rooted at a folder, given as a path or as a ``file:`` URL."""
    yield LocalStorage(local_path(url), chunk_size=chunk_size)


@hookimpl
def asyncrec_storage_factories() -> Iterable[StorageFactory]:
    return [StorageFactory("local", ("", "file"), open_local)]
