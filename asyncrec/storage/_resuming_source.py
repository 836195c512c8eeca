"""`ResumingSource` is a source that continues after a fault, and reads ahead if the storage has latency.

Backends simply raise `TransientStorageError`. After the back-off of `storage._retry`, the object is reopened at the
current offset, in the same version. Any progress resets the back-off. A body that ends before its declared size is also
treated as a transient fault.

A source returns at least one byte and at most the number requested. `receive_exactly` returns an exact number of bytes,
and `read_head` returns the beginning of an object.
"""

from __future__ import annotations

from collections import deque
from contextlib import AbstractAsyncContextManager, suppress
from types import TracebackType
from typing import Protocol, runtime_checkable

import anyio

from asyncrec._concurrency.tasks import TaskScope
from asyncrec.errors import ArgumentValueError, ObjectChangedError, StorageError, TransientStorageError
from asyncrec.storage._base import ByteSource, ObjectInfo, Storage
from asyncrec.storage._retry import Backoff
from asyncrec.storage._url import join, redact

# The size of the first request when reading ahead. Each later request may be twice as large as the one before it. A
# reader that needs only the beginning of an object therefore does not wait for more.
_FIRST_AHEAD = 1 << 20


# While a response is in progress, this many bytes are received at a time, and twice as many are buffered. Larger reads
# would save no request, and small buffers stay in the processor's cache.
_FLOWING = 1 << 20


@runtime_checkable
class KeepsCopies(Protocol):
    """An optional interface of a `Storage` that may return bytes of a local copy, which may be damaged."""

    async def drop_damaged(self, key: str, info: ObjectInfo) -> bool:
        """Discard a version's damaged copy. Return whether rereading the version may help."""


class ResumingSource(ByteSource):
    """A `ByteSource` that continues after a connection breaks. It is its own context manager.

    Args:
        start, end, info: as for `Storage.open_source`.
        read_ahead: the maximum number of bytes that a background task requests and buffers; by default,
            `Storage.read_ahead`. With 0, there is no task, and each call reads from the storage.

    Attributes:
        info: the store's description of the version being read; confirmed once bytes have arrived.
        retries: the number of times that reading was resumed.

    Raises (on entering and by `receive`):
        ObjectChangedError: the version no longer exists, or differs from ``info``.
        TransientStorageError: all retries failed.
        StorageError: any other error of the storage, without retries.
    """

    def __init__(
        self,
        storage: Storage,
        key: str,
        *,
        start: int = 0,
        end: int | None = None,
        info: ObjectInfo | None = None,
        read_ahead: int | None = None,
    ) -> None:
        self._reader = _Reader(storage, key, start, end, info)
        self._limit = storage.read_ahead if read_ahead is None else read_ahead
        self._scope: TaskScope | None = None
        self._stop = anyio.CancelScope()  # the background task's scope
        self._entered = False
        # The background task, if there is one, passes these to the reader.
        self._blocks: deque[bytes] = deque()
        self._taken = 0  # bytes of the first block already returned
        self._held = 0
        self._error: Exception | None = None
        self._ended = False
        self._changed = anyio.Event()  # tells the reader of a block or of the end
        self._room = anyio.Event()  # tells the task that there is room

    @property
    def retries(self) -> int:
        return self._reader.retries

    @property
    def buffered(self) -> int:  # type: ignore[override]
        return self._reader.buffered if self._scope is None else self._held

    async def __aenter__(self) -> ResumingSource:
        if self._limit <= 0:
            await self._reader.open()
        else:
            self._scope = TaskScope()
            await self._scope.__aenter__()
            try:
                self._scope.start_soon(self._read_ahead)
                while self._reader.info is None and not self._ended:
                    await self._wait_for_change()
                if self._error is not None:
                    raise self._error
            except BaseException as error:
                self._scope.cancel()
                await self._scope.__aexit__(type(error), error, error.__traceback__)
                raise
        info = self._reader.info
        assert info is not None, "open() has set it"
        self.info: ObjectInfo = info
        self._entered = True
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._entered = False
        self._blocks.clear()
        if self._scope is None:
            await self._reader.close(exc)
        else:
            self._scope.cancel()
            await self._scope.__aexit__(exc_type, exc, traceback)

    async def receive(self, max_bytes: int) -> bytes:
        if not self._entered:
            raise anyio.ClosedResourceError
        if max_bytes < 1:
            raise ArgumentValueError(f"max_bytes must be at least 1, not {max_bytes}")
        if self._scope is None:
            block = await self._reader.receive(max_bytes)
            self.info = self._reader.info or self.info
            return block
        await anyio.lowlevel.checkpoint()
        while not self._blocks:
            if self._error is not None:
                raise self._error
            if self._ended:
                return b""
            await self._wait_for_change()
        block = self._blocks[0]
        begin, end = self._taken, self._taken + max_bytes
        if end < len(block):
            self._taken = end
            block = block[begin:end]
        else:
            self._blocks.popleft()
            self._taken = 0
            block = block[begin:] if begin else block
        self._held -= len(block)
        self._room.set()
        self.info = self._reader.info or self.info
        return block

    async def seek(self, position: int) -> None:
        """Move to a byte of the same version. After a cancellation, call `seek` again before reading."""
        if self._scope is None:
            await self._reader.close(None)
        else:
            self._stop.cancel()
            while not self._ended:
                await self._wait_for_change()
            self._blocks.clear()
            self._taken = self._held = 0
            self._error = None
            self._ended = False
            self._stop = anyio.CancelScope()
            self._scope.start_soon(self._read_ahead)
        self._reader.position = position

    async def drop_damaged(self) -> bool:
        """Report that the bytes read are damaged. Return whether rereading may help because a cached copy was at
        fault."""
        reader = self._reader
        return isinstance(reader.storage, KeepsCopies) and await reader.storage.drop_damaged(reader.key, self.info)

    async def park(self) -> None:
        """Close the object but keep the position. The next `receive` reopens it. Do nothing if a task reads ahead."""
        if self._scope is None:
            await self._reader.close(None)

    async def _wait_for_change(self) -> None:
        self._changed = anyio.Event()
        await self._changed.wait()

    async def _read_ahead(self) -> None:
        """Read ahead whenever fewer bytes than the limit are buffered. Runs in a task."""
        try:
            with self._stop:
                await self._keep_reading()
        finally:
            self._ended = True
            self._changed.set()

    @property
    def _most_held(self) -> int:
        """The maximum number of bytes that the task requests and buffers."""
        return min(self._limit, 2 * _FLOWING) if self._reader.flowing else self._limit

    async def _keep_reading(self) -> None:
        """Open, read and close in one task, so that cancel scopes are entered and exited in the same task."""
        error: BaseException | None = None
        # Request half of the limit at a time, so that one half is processed while the other arrives. Filling each small
        # space as soon as it is free would require many requests.
        most = max(1, self._limit // 2)
        wanted = min(_FIRST_AHEAD, most)
        try:
            await self._reader.open()
            self._changed.set()
            while True:
                # Bytes that the source has already buffered take no more memory here than in the source.
                while not self._reader.buffered and self._held > self._most_held - wanted:
                    self._room = anyio.Event()
                    await self._room.wait()
                block = await self._reader.receive(wanted)
                if not block:
                    break
                self._blocks.append(block)
                self._held += len(block)
                self._changed.set()
                wanted = min(wanted * 2, min(most, _FLOWING) if self._reader.flowing else most)
        except Exception as fault:
            error = self._error = fault
        except BaseException as cancellation:
            error = cancellation
            raise
        finally:
            await self._reader.close(error)


async def receive_exactly(source: ByteSource, size: int) -> bytes:
    """Return the next ``size`` bytes, or fewer if the range ends earlier. A single block is not copied."""
    blocks = []
    while size > 0 and (block := await source.receive(size)):
        blocks.append(block)
        size -= len(block)
    return blocks[0] if len(blocks) == 1 else b"".join(blocks)


async def read_head(storage: Storage, key: str, size: int) -> tuple[bytes, ObjectInfo]:
    """Return the first ``size`` bytes of an object (or all, if it is shorter) and the store's description of it.

    Raises:
        ObjectNotFoundError, StoragePermissionError, StorageError: as `Storage.open_source`.
    """
    async with ResumingSource(storage, key, end=size, read_ahead=0) as source:
        head = await receive_exactly(source, size)
    return head, source.info


class _Reader:
    """A reader of one object from ``start``, which reopens the object as needed, and closes it in the same task."""

    def __init__(self, storage: Storage, key: str, start: int, end: int | None, info: ObjectInfo | None) -> None:
        self.storage = storage
        self.key = key
        self.position = start
        self._end = end
        self._pinned = info
        self._opening: AbstractAsyncContextManager[ByteSource] | None = None
        self._source: ByteSource | None = None
        self._shown = redact(join(storage.root, key))
        self._backoff = Backoff(f"reading {self._shown}")
        self.info: ObjectInfo | None = None
        self.retries = 0

    @property
    def buffered(self) -> int:
        return self._source.buffered if self._source is not None else 0

    @property
    def flowing(self) -> bool:
        return self._source is not None and self._source.flowing

    async def open(self) -> None:
        while True:
            try:
                await self._open()
                return
            except TransientStorageError as error:
                fault = error
            await self._pause(fault)

    async def receive(self, max_bytes: int) -> bytes:
        assert self._end is not None, "open() has set it"
        while self.position < self._end:
            try:
                if self._source is None:
                    await self._open()
                assert self._source is not None, "_open sets the source"
                block = await self._source.receive(max_bytes)
                if block:
                    self.position += len(block)
                    self._backoff.reset()
                    # Pin the version only now, because the response to the opening request may have been wrong.
                    self._pinned = self.info = self._source.info
                    return block
                raise TransientStorageError(
                    f"{self._shown}: the response ended early, at byte {self.position:,} of {self._end:,}"
                )
            except TransientStorageError as error:
                fault = error
            await self.close(fault)
            await self._pause(fault)
        await anyio.lowlevel.checkpoint()
        return b""

    async def close(self, error: BaseException | None) -> None:
        opening, self._opening, self._source = self._opening, None, None
        if opening is not None:
            with suppress(StorageError):  # the source is no longer needed
                await opening.__aexit__(type(error) if error else None, error, error.__traceback__ if error else None)

    async def _open(self) -> None:
        opening = self.storage.open_source(self.key, start=self.position, end=self._end, info=self._pinned)
        self._source = await opening.__aenter__()
        self._opening = opening
        info = self._source.info
        if self.info is None:
            self._end = info.size if self._end is None else min(self._end, info.size)
        elif info.size != self.info.size:
            # The version is not yet pinned, because no byte has arrived, but the caller already relies on the size.
            raise ObjectChangedError(
                f"{self._shown} has {info.size:,} bytes, but had {self.info.size:,} when it was opened: open it "
                "again and read from the start"
            )
        self.info = info

    async def _pause(self, fault: TransientStorageError) -> None:
        await self._backoff.wait(fault)
        self.retries += 1
