"""`receive_frames` extracts records from bytes as they arrive. `Blocks` and `Stored` keep bytes until they are
needed."""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable

import anyio
import numpy as np
from anyio.lowlevel import checkpoint
from numpy.typing import NDArray

from asyncrec._concurrency.tasks import in_thread
from asyncrec._framing.frames import FRAME_OVERHEAD, FrameDecoder
from asyncrec.storage._base import ByteSource


class Stored:
    """The stored bytes of neighbouring members, received when the first of these members is needed."""

    def __init__(self, start: int, end: int, receive: Callable[[], Awaitable[bytes]]) -> None:
        self._start = start
        self._end = end
        self._receive = receive
        self._data: bytes | None = None

    def has(self, end: int) -> bool:
        """Return whether `of` can return the member that ends at ``end``. It cannot if the members are too large."""
        return end <= self._end

    async def of(self, start: int, end: int) -> bytes:
        if self._data is None:
            self._data = await self._receive()
        return self._data[start - self._start : end - self._start]


class Blocks:
    """The next ``size`` bytes of a source, requested together, and returned piece by piece as they arrive."""

    def __init__(self, source: ByteSource, size: int) -> None:
        self._source = source
        self._missing = size
        self._blocks: deque[bytes | memoryview] = deque()
        self._held = 0

    async def take(self, size: int) -> bytes:
        """Return the next ``size`` bytes, or fewer at the end of the source. A block of that size is not copied."""
        while self._held < size and (block := await self._source.receive(self._missing)):
            self._blocks.append(block)
            self._held += len(block)
            self._missing -= len(block)
        parts: list[bytes | memoryview] = []
        size = min(size, self._held)
        self._held -= size
        while size:
            first = self._blocks.popleft()
            if len(first) > size:
                view = memoryview(first)
                self._blocks.appendleft(view[size:])
                first = view[:size]
            parts.append(first)
            size -= len(first)
        return parts[0] if len(parts) == 1 and isinstance(parts[0], bytes) else b"".join(parts)


# Blocks larger than `_LARGE`, and the blocks of records larger than `_LARGE`, are split into records in a worker
# thread. Other blocks are split on the event loop, and other tasks get a turn after each block that is larger than
# `_SMALL`.
_LARGE = 1 << 20
_SMALL = 64 << 10


async def receive_frames(
    source: ByteSource, sizes: NDArray[np.int64], *, limiter: anyio.CapacityLimiter
) -> list[bytes] | None:
    """Return the records of consecutive frames of these sizes, or `None` if any is incomplete or damaged."""
    decoder, records, lengths = FrameDecoder(max_record_bytes=int(sizes.max())), list[bytes](), list[int]()
    missing = int(sizes.sum())
    while missing and (block := await source.receive(missing)):
        missing -= len(block)
        if len(block) > _LARGE or decoder.wanted > _LARGE:
            found = await in_thread(decoder.feed, block, limiter=limiter)
        else:
            found = decoder.feed(block)
        records += found
        lengths += map(len, found)  # measured now, while the records are still in the processor's cache
        if decoder.error is not None:
            return None
        if missing and len(block) > _SMALL:
            await checkpoint()
    return records if lengths == (sizes - FRAME_OVERHEAD).tolist() else None
