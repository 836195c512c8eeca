"""The interface of a storage backend: `Storage`, `ByteSink`, `ByteSource`, and the values that they exchange.

An object store is not a file system. Each object is written once, as a whole, and appears in one step. There are no
folders, renames or appends. The contract has five methods, and every backend, built in or not, passes the same
conformance kit.

To agree on a winner, writers create a *short* object exclusively: one that is smaller than one chunk of its sink. The
creation is atomic, because a backend rejects exclusive writes to a store that ignores the condition. For a longer
object, a store may ignore the condition (as Ceph 16 does when a multipart upload is completed), and a check before or
after the upload can only detect the conflict. Therefore, a program that needs exactly one winner creates a short object
first.

Keys are relative to the root of the `Storage`, use ``/`` as the separator, and never begin with ``/``. A prefix is a
plain string: ``"c"`` matches ``"c/1"`` and ``"cc/1"``.

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
    """A store's description of an object.

    Attributes:
        key: the key, relative to the root of the storage.
        size: the size in bytes.
        etag: an opaque string that changes whenever the content changes; never empty. For local files, it consists of
            the inode, size and mtime.
        crc32c: the unmasked CRC32C of the whole content; `None` if the store keeps no such checksum.
        modified: the time of the last change, as an aware `datetime`.
    """

    key: str
    size: int
    etag: str
    crc32c: int | None
    modified: datetime


class ByteSink(ABC):
    """An object that is being written. Opened by `Storage.open_sink`, and used by one task.

    Attributes:
        chunk_size: the number of bytes to pass to the next `send`. Read it again before each `send`, because it can
            change (S3 increases it as the upload approaches the maximum number of parts). The caller never has to
            buffer more bytes than this.
        published: `None` until the context has exited cleanly, then the store's description of the object.
    """

    chunk_size: int
    published: ObjectInfo | None = None

    @abstractmethod
    async def send(self, buffers: Sequence[Buffer]) -> None:
        """Accept the next chunk.

        The buffers contain exactly `chunk_size` bytes in total. Only the last chunk of an object may be shorter, but it
        must not be empty. Callers do not join the buffers, and may reuse them once this method returns, so a backend
        that still needs them must copy them. Waits while the backend's memory is full.

        After a cancellation or any error, the object can only be abandoned.
        """

    def hold_at_most(self, size: int) -> None:  # noqa: B027  # optional: most stores fix the size of a chunk
        """Reduce the chunk size to ``size`` bytes, or to the smallest that the store allows.

        A caller with many open sinks may call this before the first `send`. The default implementation does nothing.
        """

    @abstractmethod
    async def flush(self, tail: Sequence[Buffer]) -> int:
        """Make the bytes sent so far durable, and as much of ``tail`` as the store allows.

        ``tail`` contains the caller's unsent bytes, fewer than `chunk_size`. They will be sent again as part of the
        next chunk. Return the number of bytes of ``tail`` that have left this process: all of them for a local file,
        none for S3, a multiple of 256 KiB for GCS.

        If `Storage.flush_level` is ``"spooled"``, this method calls fsync, and the bytes that it acknowledges are never
        discarded. If the context then exits with an exception, the unfinished file is kept for recovery, but never
        becomes visible under its key.
        """


class ByteSource(ABC):
    """A fixed version of an object that is being read. Opened by `Storage.open_source`, and used by one task.

    Attributes:
        info: the description of the version being read.
        buffered: the number of bytes that have arrived but have not yet been returned by `receive`. They are kept as
            they arrived, to avoid a copy. They count towards the limit of the caller that requested them.
        flowing: whether a response is in progress, so that the next bytes arrive without another request. If so, little
            needs to be read ahead.
    """

    info: ObjectInfo
    buffered: int = 0
    flowing: bool = False

    @abstractmethod
    async def receive(self, max_bytes: int) -> bytes:
        """Return the next bytes: at least one and at most ``max_bytes``, or ``b""`` at the end of the range.

        The idle sources of a storage together use only a few connections. After a cancellation, the same bytes can be
        received again.

        Raises:
            TransientStorageError: a retry may succeed; the position has not moved.
            ObjectChangedError: the object was replaced since it was opened.
        """


class Storage(ABC):
    """A root under which objects are read and written. Any number of tasks may use it concurrently.

    Attributes:
        root: the URL with which the storage was opened, without credentials; shown in errors.
        read_ahead: the number of bytes that a reader should request ahead while it processes earlier bytes. 0 if a read
            has almost no latency (local files, memory).
        flush_level: the level that `ByteSink.flush` reaches: ``"spooled"`` if flushed bytes survive the process,
            otherwise ``"buffered"``.
        lists_by_pages: whether the beginning of a listing is cheap even if the listing is long. If false, no listing is
            requested merely to explain an error.
    """

    root: str
    read_ahead: int = 0
    flush_level: str = "buffered"
    lists_by_pages: bool = True

    @abstractmethod
    def open_sink(self, key: str, *, exclusive: bool = False) -> AbstractAsyncContextManager[ByteSink]:
        """Open a sink for an object. On a clean exit, the complete, verified object becomes visible in one step.

        On any exception, including a cancellation, nothing becomes visible and no data remains. The clean-up is
        shielded and has a time limit. With ``exclusive``, entering or exiting the context raises `ObjectExistsError` if
        the object exists; without it, the object is replaced. If two exclusive writers race, exactly one wins, provided
        that their objects are shorter than `ByteSink.chunk_size`. With longer objects, both writers may succeed on some
        stores, and the last object then remains. A caller that needs exactly one winner creates a short object.

        Raises:
            ValueError: the key is empty, absolute, or outside the root.
            StorageError: ``exclusive`` is set, but the store is known not to support it.
            IntegrityError: the stored object differs from the bytes sent; it was deleted if possible.
        """

    @abstractmethod
    def open_source(
        self, key: str, *, start: int = 0, end: int | None = None, info: ObjectInfo | None = None
    ) -> AbstractAsyncContextManager[ByteSource]:
        """Open a source of the bytes ``[start, end)`` of an object, or up to its end if ``end`` is `None` or past the
        end.

        If ``start`` is at or past the end, the source is empty. Without ``info``, the source is pinned to the version
        found on opening.

        ``info`` describes the version to read. It must come from this storage: from `head`, a listing, `put` or another
        source. The source is pinned to its etag, and need not look up the object first. A network backend requests the
        bytes immediately, on the condition that they belong to this version.

        Raises:
            ObjectNotFoundError: the object does not exist. The message names the key.
            StoragePermissionError: the credentials do not permit the request.
            ObjectChangedError: the object is not the version of ``info``.
            TransientStorageError: the same call may succeed.

            With ``info``, the first `ByteSource.receive` that requests bytes may raise these errors instead.
        """

    @abstractmethod
    def list_objects(self, prefix: str = "", *, start_after: str = "") -> AsyncIterator[ObjectInfo]:
        """List the objects whose keys begin with ``prefix`` and are greater than ``start_after``.

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
        """Return the content of a small object, all from one version. After a transient fault, start again.

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
        if len(content) < size:  # a truncated claim would look like another writer's claim
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
        assert sink.published is not None, "a clean exit publishes the object"
        return sink.published


@runtime_checkable
class UnfinishedUploads(Protocol):
    """An optional interface of a `Storage` whose uploads can remain unfinished and are then billed (S3)."""

    def list_unfinished(self, prefix: str = "") -> AsyncIterator[ObjectInfo]:
        """List the uploads that were begun but neither completed nor aborted.

        In each entry, ``etag`` is the id of the upload, and ``modified`` is the time at which it began. ``size`` is 0
        if the store does not report the size.
        """

    async def remove_unfinished(self, upload: ObjectInfo) -> None:
        """Abort an unfinished upload. It is not an error if the upload no longer exists."""


@runtime_checkable
class LocalFiles(Protocol):
    """An optional interface of a `Storage` whose objects are the files of a folder on a local disk.

    Writers then keep their journals in that folder, as in a local data set. Flushed records survive the process, and
    the next writer, or `asyncrec.recover`, commits them. asyncrec accesses the files itself, which requires that

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
    """Base class for storages that do not support writing as asyncrec requires it.

    Attributes:
        why: the reason, as the end of a sentence after "cannot be written: ".
    """

    why: str

    def open_sink(self, key: str, *, exclusive: bool = False) -> AbstractAsyncContextManager[ByteSink]:
        self._refuse(key, "written")

    async def delete(self, key: str) -> None:
        self._refuse(key, "deleted")

    def list_objects(self, prefix: str = "", *, start_after: str = "") -> AsyncIterator[ObjectInfo]:
        """List the objects. This implementation always raises; a backend that can list overrides it.

        Raises:
            StorageError: the backend cannot list objects.
        """
        raise StorageError(f"{redact(join(self.root, prefix))}: its objects cannot be listed: {self.why}")

    def _refuse(self, key: str, done: str) -> NoReturn:
        raise StorageError(f"{redact(join(self.root, key))}: cannot be {done}: {self.why}")
