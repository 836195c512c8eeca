"""`RangedSource`: a source that gets its bytes by requests for ranges of one version, and holds nothing between them.

A thousand sources that wait hold no connection. A request asks for as much as `receive` was asked for, up to a window;
its answer is handed out as it came, in blocks, and only then the next one is sent. `Storage.read_ahead`, of two
windows, is what makes the core ask for much.
"""

from __future__ import annotations

from abc import abstractmethod
from collections import deque
from collections.abc import Sequence
from types import TracebackType

import anyio
import anyio.lowlevel

from asyncrec.errors import ArgumentValueError, ObjectChangedError, TransientStorageError
from asyncrec.storage._base import ByteSource, ObjectInfo

__all__ = ["RangedSource"]


class RangedSource(ByteSource):
    """A source for a backend to derive from, and its own context: the backend says how to `look`, and how to `fetch`.

    Args:
        what: the object, as errors name it: its URL, without credentials.
        start, end, etag: as for `Storage.open_source`.

    Attributes:
        window: the most bytes that `fetch` is asked for at once. 8 MiB carry the latency of a request, some 30 ms, at
            the speed of a connection.
    """

    window: int = 8 << 20

    def __init__(self, what: str, *, start: int, end: int | None, etag: str | None) -> None:
        if start < 0 or (end is not None and end < 0):
            raise ArgumentValueError(f"the range [{start}, {end}) of {what}: offsets count from the beginning")
        self._what = what
        self._position = start  # of the next byte to ask for; what came and was not received is before it
        self._given_end = end
        self._pinned = etag
        self._blocks: deque[bytes] = deque()
        self._open = False

    @abstractmethod
    async def look(self) -> ObjectInfo:
        """Ask for the version that is there. It may raise whatever `Storage.head` does."""

    @abstractmethod
    async def fetch(self, start: int, end: int) -> Sequence[bytes]:
        """Get the bytes ``[start, end)``, never none, of the version in `info`, in blocks of any length.

        Raises:
            TransientStorageError: the same call may succeed. The core goes on from here; nothing is repeated for it.
            ObjectChangedError: the object was replaced, or deleted, since `look`.
        """

    async def __aenter__(self) -> RangedSource:
        self.info = await self.look()
        if self._pinned not in (None, self.info.etag):
            raise ObjectChangedError(
                f"{self._what}: its etag is {self.info.etag}, opened was {self._pinned}: open it again from the start"
            )
        self._end = self.info.size if self._given_end is None else min(self._given_end, self.info.size)
        self._open = True
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._open = False
        self._blocks.clear()
        self.buffered = 0

    async def receive(self, max_bytes: int) -> bytes:
        if not self._open:
            raise anyio.ClosedResourceError(f"{self._what}: its context is not open")
        if max_bytes < 1:
            raise ArgumentValueError(f"max_bytes is {max_bytes}; it is at least 1")
        # What has come is handed out without a checkpoint: a step of the loop for each block would be a tenth of what
        # reading costs, and after at most a window there is one.
        if not self._blocks:
            if self._position >= self._end:
                await anyio.lowlevel.checkpoint()
                return b""
            await self._refill(min(self._end, self._position + min(max_bytes, self.window)))
        block = self._blocks.popleft()
        if len(block) > max_bytes:
            self._blocks.appendleft(block[max_bytes:])
            block = block[:max_bytes]
        self.buffered -= len(block)
        return block

    async def _refill(self, end: int) -> None:
        blocks = await self.fetch(self._position, end)
        size = sum(map(len, blocks))
        if size != end - self._position:
            raise TransientStorageError(
                f"{self._what}: reading bytes {self._position:,} to {end:,}: {size:,} bytes came"
            )
        self._blocks.extend(block for block in blocks if block)
        self.buffered = size
        self._position = end
