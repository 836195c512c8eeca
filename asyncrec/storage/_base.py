"""The interface of a storage backend: `Storage`, `ByteSink`, `ByteSource`, and the values they exchange.

An object store is not a file system. Objects are written once, whole, and appear in one step; there are no folders, no
renames and no appends. The contract is five methods, and every backend, built in or not, passes the same conformance
kit.

A *short* exclusive object, smaller than one chunk of its sink, decides between writers. Creating it is atomic on every
store that may be used for exclusive writing; a backend rejects a store that ignores the condition. For a longer object,
a store may ignore the condition (Ceph 16 does when a multipart upload is completed), and a check before or after the
upload can only detect the conflict. So a program that needs exactly one winner first creates a short object, which
decides.

Keys are relative to the root of the `Storage`, have ``/`` between their parts, and never begin with ``/``. A prefix is
a plain string: ``"c"`` matches ``"c/1"`` and ``"cc/1"``.

A backend maps its errors to `asyncrec.errors`, and raises transient ones as `TransientStorageError`. The core resumes
reads (`ResumingSource`, `Storage.get`), so a backend's source simply raises the error. For everything else, a backend
wraps each request in `asyncrec.storage.retrying`, so that the back-off is the same everywhere.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import NoReturn, Protocol, runtime_checkable

from asyncrec.errors import ObjectTooLargeError, StorageError, TransientStorageError
from asyncrec.storage._retry import retrying
from asyncrec.storage._url import join, redact

Buffer = bytes | bytearray | memoryview


@dataclass(frozen=True, slots=True)
class ObjectInfo:
    """An object as a store describes it.

    Attributes:
        key: the key, relative to the root of the storage.
        size: the size in bytes.
        etag: an opaque string that changes whenever the content changes; never empty. For local files, it consists of
            inode, size and mtime.
        crc32c: the checksum of the whole content, unmasked, if the store keeps one.
        modified: the time of the last change, with a time zone.
    """

    key: str
    size: int
    etag: str
    crc32c: int | None
    modified: datetime


class ByteSink(ABC):
    """One object being written. `Storage.open_sink` opens it, and one task uses it.

    Attributes:
        chunk_size: the number of bytes that the next `send` must carry. Read it again before each `send` (S3 increases
            it as it approaches its maximum number of parts). It is also the maximum number of bytes that the caller has
            to hold.
        published: `None` until the context has exited cleanly, then the store's description of the object.
    """

    chunk_size: int
    published: ObjectInfo | None = None

    @abstractmethod
    async def send(self, buffers: Sequence[Buffer]) -> None:
        """Accept the next chunk.

        Together the buffers have exactly `chunk_size` bytes. Only the last chunk of an object is shorter (never empty),
        and nothing is sent after it. The buffers are never joined for the backend. After this returns, they belong to
        the caller again, so a backend that still needs them must copy them. The call waits while the backend's memory
        is full.

        After a cancellation or any error, the object can only be abandoned.
        """

    def hold_at_most(self, size: int) -> None:  # noqa: B027  # optional: most stores fix the size of a chunk
        """Use chunks of ``size`` bytes, or the smallest that the store allows, because the caller has many sinks.

        Called before the first `send`, if at all. The default implementation does nothing.
        """

    @abstractmethod
    async def flush(self, tail: Sequence[Buffer]) -> int:
        """Make the bytes sent so far durable, and as much of ``tail`` as the store allows.

        ``tail`` holds the caller's unsent bytes, shorter than `chunk_size`; they will be sent again as part of the next
        chunk. Return the number of bytes of ``tail`` that have left this process: all of them for a local file, none
        for S3, a multiple of 256 KiB for GCS.

        If `Storage.flush_level` is ``"spooled"``, this call is an fsync, and the bytes that it has acknowledged are
        never discarded. If the context then exits with an exception, the unfinished file is kept for recovery, but
        never becomes visible under its key.
        """


class ByteSource(ABC):
    """One object being read, in a fixed version. `Storage.open_source` opens it, and one task uses it.

    Attributes:
        info: the description of the version being read.
        buffered: the number of bytes that have arrived but have not yet been received. The source keeps them as they
            arrived, because joining them would need a copy. They count towards the limit of the caller that requested
            them.
        flowing: whether the next bytes arrive without another request, because a response is in progress. Little then
            needs to be read ahead.
    """

    info: ObjectInfo
    buffered: int = 0
    flowing: bool = False

    @abstractmethod
    async def receive(self, max_bytes: int) -> bytes:
        """Return the next bytes: at least one and at most ``max_bytes``, or ``b""`` at the end of the range.

        However many sources of a storage are idle, only a few hold a connection. After a cancellation, the same bytes
        can be received again.

        Raises:
            TransientStorageError: the same call may succeed; the position has not moved.
            ObjectChangedError: the object was replaced since it was opened.
        """


class Storage(ABC):
    """A root under which objects are written and read. Any number of tasks may use it at once.

    Attributes:
        root: the URL with which the storage was opened, without credentials; shown in errors.
        read_ahead: the number of bytes that a reader should request ahead while it processes earlier bytes. 0 if a read
            has almost no latency (local files, memory).
        flush_level: the level that `ByteSink.flush` reaches: ``"spooled"`` if the bytes survive the process, otherwise
            ``"buffered"``.
        lists_by_pages: whether the beginning of a listing is cheap, however long the listing is. If it is false, no
            listing is made merely to explain an error.
    """

    root: str
    read_ahead: int = 0
    flush_level: str = "buffered"
    lists_by_pages: bool = True

    @abstractmethod
    def open_sink(self, key: str, *, exclusive: bool = False) -> AbstractAsyncContextManager[ByteSink]:
        """Write an object. On a clean exit, the verified object becomes visible, complete, in one step.

        On any exception, cancellation included, nothing becomes visible and no data is left behind; the clean-up is
        shielded and limited in time. With ``exclusive``, entering or exiting the context raises `ObjectExistsError` if
        the object exists; without it, the object is replaced. If two exclusive writers race, exactly one wins, provided
        that their objects are shorter than `ByteSink.chunk_size`. With longer objects, the outcome depends on the
        store. Both writers may win, and the last object stays. A caller that needs exactly one winner lets a short
        object decide.

        Raises:
            ValueError: the key is empty, absolute, or leads out of the root.
            StorageError: ``exclusive`` is set, but the store is known not to support it.
            IntegrityError: the stored object differs from the bytes sent; it was deleted if possible.
        """

    @abstractmethod
    def open_source(
        self, key: str, *, start: int = 0, end: int | None = None, info: ObjectInfo | None = None
    ) -> AbstractAsyncContextManager[ByteSource]:
        """Read the bytes ``[start, end)`` of an object, or up to its end if ``end`` is `None` or past the end.

        If ``start`` is at or past the end, the source is empty. Without ``info``, the source is pinned to the version
        found on opening.

        ``info`` describes the version to read, as returned before by this storage: from `head`, a listing, `put` or
        another source. The source is pinned to its etag and need not look at the object first. A backend over a network
        requests the bytes immediately, under the condition that they belong to this version.

        Raises:
            ObjectNotFoundError: the object does not exist. The message names the key.
            StoragePermissionError: the credentials do not permit the request.
            ObjectChangedError: the object is not the version of ``info``.
            TransientStorageError: the same call may succeed.

            With ``info``, each of these errors may also come from the first `ByteSource.receive` that requests bytes.
        """

    @abstractmethod
    def list_objects(self, prefix: str = "", *, start_after: str = "") -> AsyncIterator[ObjectInfo]:
        """List the objects whose key begins with ``prefix`` and is greater than ``start_after``.

        The listing is in ascending order of the UTF-8 bytes of the keys. Unpublished objects are never listed. If no
        key has the prefix, the listing is empty.
        """

    @abstractmethod
    async def head(self, key: str) -> ObjectInfo:
        """Return the store's description of one object. This needs no permission to list.

        Raises:
            ObjectNotFoundError: the object does not exist. The message names the key.
            StoragePermissionError: the credentials do not permit the request.
            TransientStorageError: the same call may succeed.
        """

    @abstractmethod
    async def delete(self, key: str) -> None:
        """Delete an object. It is not an error if the object does not exist."""

    async def get(self, key: str, *, max_bytes: int | None = None) -> bytes:
        """Return the whole content of a small object, from one version. After a transient fault, start again.

        Raises:
            ValueError: the object is larger than ``max_bytes``; nothing was read.
        """
        return await retrying(partial(self._get, key, max_bytes), what=f"reading {join(self.root, key)}")

    async def _get(self, key: str, max_bytes: int | None) -> bytes:
        async with self.open_source(key) as source:
            size = source.info.size
            if max_bytes is not None and size > max_bytes:
                raise ObjectTooLargeError(
                    f"{self.root}: {key} has {size:,} bytes, more than the limit of {max_bytes:,}"
                )
            blocks = []
            while block := await source.receive(1 << 20):
                blocks.append(block)
        content = b"".join(blocks)
        if len(content) < size:  # half a claim would look like another writer's
            raise TransientStorageError(
                f"{join(self.root, key)}: the response ended early, at byte {len(content):,} of {size:,}"
            )
        return content

    async def put(self, key: str, data: Buffer, *, exclusive: bool = False) -> ObjectInfo:
        """Publish ``data`` as one object, all or nothing.

        Raises:
            ObjectExistsError: with ``exclusive``, the object exists.
        """
        async with self.open_sink(key, exclusive=exclusive) as sink:
            view = memoryview(data)
            while view:
                size = sink.chunk_size
                await sink.send([view[:size]])
                view = view[size:]
        assert sink.published is not None, "a sink that exits cleanly has published"
        return sink.published


@runtime_checkable
class UnfinishedUploads(Protocol):
    """An optional interface of a `Storage` whose uploads can be left unfinished, and are billed (S3)."""

    def list_unfinished(self, prefix: str = "") -> AsyncIterator[ObjectInfo]:
        """List the uploads that were begun but neither completed nor aborted.

        In each entry, ``etag`` is the id of the upload, and ``modified`` is the time at which it began. ``size`` is 0
        if the store does not report the size.
        """

    async def remove_unfinished(self, upload: ObjectInfo) -> None:
        """Abort an unfinished upload. It is not an error if the upload no longer exists."""


@runtime_checkable
class LocalFiles(Protocol):
    """An optional interface of a `Storage` whose objects are the files of a folder on a disk of this machine.

    Writers then keep their journals in that folder, as in a local data set: flushed records survive the process, and
    the next writer, or `asyncrec.recover`, commits them. asyncrec reads and writes the files itself, but only if

    - the file of the key ``a/b`` is ``a/b`` below the folder, and holds exactly the bytes of the object;
    - a file that is linked or renamed to that name is the object from then on;
    - files whose names begin with a dot and end in ``.partial`` are not objects, and are never listed;
    - the file system has locks (flock) and hard links.
    """

    def files_folder(self) -> str:
        """Return the path of the folder."""


@runtime_checkable
class ExclusiveParts(Protocol):
    """An optional interface of a `Storage` that publishes long and short objects by different requests (S3)."""

    async def excludes_parts(self, key: str) -> bool:
        """Test whether the store refuses to publish a long object exclusively if the object exists.

        The test uses ``key``, under which no object exists, and deletes the object that it creates there.
        """


class ReadOnlyStorage(Storage):
    """Base class for storages that cannot be written in the way that asyncrec requires.

    Attributes:
        why: the reason, as the end of a sentence after "cannot be written: ".
    """

    why: str

    def open_sink(self, key: str, *, exclusive: bool = False) -> AbstractAsyncContextManager[ByteSink]:
        self._refuse(key, "written")

    async def delete(self, key: str) -> None:
        self._refuse(key, "deleted")

    def list_objects(self, prefix: str = "", *, start_after: str = "") -> AsyncIterator[ObjectInfo]:
        """List the objects, if the backend overrides this.

        Raises:
            StorageError: the backend cannot list.
        """
        raise StorageError(f"{redact(join(self.root, prefix))}: its objects cannot be listed: {self.why}")

    def _refuse(self, key: str, done: str) -> NoReturn:
        raise StorageError(f"{redact(join(self.root, key))}: cannot be {done}: {self.why}")
