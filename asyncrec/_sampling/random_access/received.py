"""`Blocks` and `Stored` hold what came of a shard until it is cut or decompressed."""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable

from asyncrec.storage._base import ByteSource


class Stored:
    """The bytes of neighbouring members as they are stored, received when the first of them is wanted."""

    def __init__(self, start: int, end: int, receive: Callable[[], Awaitable[bytes]]) -> None:
        self._start = start
        self._end = end
        self._receive = receive
        self._data: bytes | None = None

    def has(self, end: int) -> bool:
        """Whether it has the member that ends there; it has none where they are too large to be held."""
        return end <= self._end

    async def of(self, start: int, end: int) -> bytes:
        if self._data is None:
            self._data = await self._receive()
        return self._data[start - self._start : end - self._start]


class Blocks:
    """The next ``size`` bytes of a source, asked for at once, and taken piece by piece as they come."""

    def __init__(self, source: ByteSource, size: int) -> None:
        self._source = source
        self._missing = size
        self._blocks: deque[bytes | memoryview] = deque()
        self._held = 0

    async def take(self, size: int) -> bytes:
        """Take so many bytes, fewer only where the source ends before; the first block, if it is that, uncopied."""
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
