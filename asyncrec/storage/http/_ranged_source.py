"""`RangedSource` is a source that requests ranges of one version of an object.

Looking up an object before requesting bytes would take two round trips. One is enough, because the response to a
request for bytes also contains the object's version and length. Therefore, the source looks up an object only if the
version or the length is missing, or if the request is rejected because there are no bytes to return. If the caller
passes ``info``, nothing is requested until the first bytes are needed.

A range of at most one window is requested at a time. The blocks of the response are returned as they arrived, before
the next request is sent. A `Storage.read_ahead` of two windows makes the core request two windows ahead.

Between two requests, a source uses no connection, so a thousand sources can be idle. The price is a round trip for each
window. To avoid it, a backend with a free slot may stream one long response to a reader that keeps up. If the response
breaks off, or the reader pauses, the source continues with ranges.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections import deque
from collections.abc import Sequence
from types import TracebackType
from typing import Protocol

import anyio
import anyio.lowlevel

from asyncrec.errors import ArgumentValueError, TransientStorageError
from asyncrec.storage._base import ByteSource, ObjectInfo

# The number of bytes received from a long response at a time: enough to amortise the overhead of a call, but few enough
# not to delay the reader of a slow connection.
_OF_AN_ANSWER = 512 << 10
# How long, in seconds, a reader may go without a call and still count as keeping up.
_REST = 2.0
# Blocks smaller than _SMALL are joined into blocks of about _JOINED bytes. Copying larger blocks would not be worth it.
_SMALL = 64 << 10
_JOINED = 256 << 10
# A fraction of a window (256 KiB of 8 MiB). A response of at most this size is received completely when it begins. If
# an object's length is unknown and no slot is free, this much is requested first. A reader that requests less than this
# at a time is assumed not to need a fast stream.
_AT_ONCE = 1 / 32
# The fraction of a window that a reader must receive after a pause before it counts as keeping up again.
_KEEPS_UP = 1 / 4


class LongAnswer(Protocol):
    """A response from the reader's position to the end of its range, for a source that has slots::

    async def stream(self, start, end):  # like `fetch`, but only begun
        return ShopAnswer(await self._storage.begin(self._key, start, end, etag=self.info.etag))

    class ShopAnswer:
        def __init__(self, response):
            self._response = response

        async def receive(self, size):
            blocks = []
            while size > 0 and (block := await self._response.read(size)):
                blocks.append(block)
                size -= len(block)
            return blocks

        async def aclose(self):
            with anyio.move_on_after(5, shield=True):
                await self._response.aclose()
    """

    async def receive(self, size: int, /) -> Sequence[bytes]:
        """Return the next blocks: ``size`` bytes or slightly more, or fewer if the response ends.

        After a cancellation or an error, the response can only be closed.

        Raises:
            StorageError: as `RangedSource.fetch`.
        """

    async def aclose(self) -> None:
        """Release the connection, in a shielded scope with a time limit."""


class StreamSlots:
    """A storage's slots for sources that keep a connection between two calls of their readers::

        self.streams = StreamSlots(8)  # kept by the storage; each source passes slots=storage.streams

    Attributes:
        left: the number of free slots.
    """

    def __init__(self, count: int) -> None:
        self.left = count


class RangedSource(ByteSource):
    """Base class for a backend's source, which is its own context manager. The backend defines `look` and `fetch`::

        class ShopSource(RangedSource):
            def __init__(self, storage, key, *, start, end, info):
                super().__init__(f"{storage.root}/{key}", start=start, end=end, info=info)
                self._storage, self._key = storage, key

            async def look(self):
                return await self._storage.head(self._key)

            async def fetch(self, start, end):
                return [await self._storage.get_range(self._key, start, end, etag=self.info.etag)]

    `Storage.open_source` is then a plain function that returns a source::

        def open_source(self, key, *, start=0, end=None, info=None):
            return ShopSource(self, check_key(key), start=start, end=end, info=info)

    A backend whose responses contain the object's version also overrides `first`, which saves the call to `look`.

    Args:
        what: the object's URL without credentials, for errors.
        start, end, info: as for `Storage.open_source`.
        slots: the storage's slots, for backends that can `stream`. Without slots, `fetch` returns all bytes.

    Attributes:
        window: the maximum number of bytes requested from `fetch` at once. At 8 MiB, a request's latency of about
            30 ms is small compared with the transfer at a connection's speed.
    """

    window: int = 8 << 20

    def __init__(
        self, what: str, *, start: int, end: int | None, info: ObjectInfo | None, slots: StreamSlots | None = None
    ) -> None:
        if start < 0 or (end is not None and end < 0):
            raise ArgumentValueError(f"the range [{start}, {end}) of {what}: offsets count from the beginning")
        self._what = what
        self._position = start  # the offset of the next byte to request, after all that have arrived
        self._given_end = end
        self._known = info
        self._blocks: deque[bytes] = deque()
        self._open = False
        self._slots = slots or StreamSlots(0)
        self._answer: LongAnswer | None = None
        # The number of bytes received since the reader last paused or a response broke off. Initially, the reader
        # counts as keeping up.
        self._fetched = self.window
        self._at_once = int(self.window * _AT_ONCE)
        self._returned_at = math.inf  # the clock's time when the reader last received bytes

    @property
    def flowing(self) -> bool:  # type: ignore[override]  # read-only
        return self._answer is not None

    @abstractmethod
    async def look(self) -> ObjectInfo:
        """Return the description of the object's current version. May raise the errors of `Storage.head`."""

    async def first(self, start: int, end: int | None) -> tuple[ObjectInfo, LongAnswer | Sequence[bytes]] | None:
        """Request the bytes ``[start, end)`` of the current version, or up to its end if ``end`` is `None`.

        Return the description of the object from the response's headers, and the response itself, with the requested
        bytes, or fewer if the object ends earlier. A backend without slots is always passed an ``end``, and returns the
        received blocks. Return `None` if the response does not contain the version and the size, or if there are no
        bytes. The source then calls `look`. The default implementation returns `None`.

        Raises:
            ObjectNotFoundError, StoragePermissionError, TransientStorageError: as `Storage.open_source`.
        """
        return None

    @abstractmethod
    async def fetch(self, start: int, end: int) -> Sequence[bytes]:
        """Return the bytes ``[start, end)`` (at least one) of the version in `info`, in blocks of any length.

        If a response broke off, return fewer bytes, but at least one.

        Raises:
            TransientStorageError: a retry may succeed. The core continues at this offset, without requesting any byte
                again.
            ObjectChangedError: the object was replaced, or deleted, since `look`.
        """

    async def stream(self, start: int, end: int) -> LongAnswer:
        """Begin a single response with the bytes ``[start, end)`` of the version in `info`.

        Raises:
            StorageError: as `fetch`.
        """
        raise NotImplementedError(f"{type(self).__name__} does not implement streaming, but was given slots")

    async def __aenter__(self) -> RangedSource:
        if self._known is not None:
            await anyio.lowlevel.checkpoint()
            self.info = self._known
        elif not await self._begin():
            self.info = await self.look()
        self._open = True
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._open = False
        self._blocks.clear()
        self.buffered = 0
        await self._let_go()

    async def receive(self, max_bytes: int) -> bytes:
        if not self._open:
            raise anyio.ClosedResourceError(f"{self._what}: this object must be used inside its `async with`")
        if max_bytes < 1:
            raise ArgumentValueError(f"max_bytes must be at least 1, not {max_bytes}")
        # Blocks that have arrived are returned without a checkpoint, because a checkpoint for each block would take a
        # tenth of the reading time. A checkpoint follows after at most one window.
        if not self._blocks:
            end = self._end
            if self._position >= end:
                await anyio.lowlevel.checkpoint()
                return b""
            await self._refill(max_bytes, end)
        block = self._blocks.popleft()
        if len(block) < _SMALL and self._blocks:
            block = _joined(block, self._blocks)
        if len(block) > max_bytes:
            self._blocks.appendleft(block[max_bytes:])
            block = block[:max_bytes]
        self.buffered -= len(block)
        return block

    async def _refill(self, max_bytes: int, end: int) -> None:
        if anyio.current_time() - self._returned_at > _REST:
            await self._let_go()
        rest = end - self._position
        keeps_up = max_bytes >= self._at_once and self._fetched >= self.window * _KEEPS_UP
        blocks: Sequence[bytes] = ()
        if self._answer is not None or (keeps_up and self._slots.left and rest > min(max_bytes, self.window)):
            blocks = await self._read_on(end)
        if not blocks:
            end = min(end, self._position + min(max_bytes, self.window))
            blocks = await self.fetch(self._position, end)
        self._take(blocks, end)
        self._returned_at = anyio.current_time()

    @property
    def _end(self) -> int:
        return self.info.size if self._given_end is None else min(self._given_end, self.info.size)

    def _take(self, blocks: Sequence[bytes], end: int) -> None:
        size = sum(map(len, blocks))
        if not 0 < size <= end - self._position:
            raise TransientStorageError(
                f"{self._what}: reading bytes {self._position:,} to {end:,} returned only {size:,} bytes"
            )
        self._blocks.extend(block for block in blocks if block)
        self.buffered = size
        self._position += size
        self._fetched += size

    async def _begin(self) -> bool:
        """Request the first bytes. Return whether the response describes the object."""
        start, end = self._position, self._given_end
        if end is not None and end <= start:
            return False
        # If the rest of the response is longer than one `receive`, keep the slot until the reader requests more.
        holds = self._slots.left > 0
        if not holds and (end is None or end - start > self.window):
            end = start + self._at_once
        self._slots.left -= holds
        try:
            found = await self.first(start, end)
            if found is None:
                return False
            self.info, answer = found
            end = min(self._end, self.info.size if end is None else end)
            if isinstance(answer, Sequence):
                blocks = answer
            elif holds and end - start > self._at_once:
                holds, self._answer = False, answer
                self._returned_at = anyio.current_time()
                return True
            else:
                try:
                    blocks = await answer.receive(end - start) if start < end else ()
                finally:
                    await answer.aclose()
        finally:
            self._slots.left += holds
        if start < end or any(blocks):  # Azurite returns no bytes for a range at the end
            self._take(blocks, end)
        return True

    async def _read_on(self, end: int) -> Sequence[bytes]:
        """Return the next blocks of a long response, or no blocks if it broke off.

        In that case, the range request that follows raises the error.
        """
        blocks: Sequence[bytes] = ()
        try:
            if self._answer is None:
                self._answer = await self._begin_stream(end)
            blocks = await self._answer.receive(min(_OF_AN_ANSWER, end - self._position))
        except TransientStorageError:
            pass
        except BaseException:
            await self._let_go()
            raise
        if not blocks or self._position + sum(map(len, blocks)) >= end:
            await self._let_go()
        return blocks

    async def _begin_stream(self, end: int) -> LongAnswer:
        self._slots.left -= 1  # done before the request, so that no other reader takes the slot
        try:
            return await self.stream(self._position, end)
        except BaseException:
            self._slots.left += 1
            raise

    async def _let_go(self) -> None:
        """Release the connection. The next bytes will be requested as a range."""
        answer, self._answer, self._fetched = self._answer, None, 0
        if answer is not None:
            self._slots.left += 1
            await answer.aclose()


def _joined(block: bytes, rest: deque[bytes]) -> bytes:
    """Join a small block with the small blocks after it."""
    pieces = [block]
    size = len(block)
    while rest and len(rest[0]) < _SMALL and size < _JOINED:
        pieces.append(rest.popleft())
        size += len(pieces[-1])
    return b"".join(pieces)
