"""`S3Source`: ranged requests of one version of an object; between two of them it holds no connection.

A request is pinned to the ETag and read to its end: a thousand sources that wait hold nothing. It asks for as much as
`receive` was asked for; its answer is handed out as it came, in blocks, and only then the next one is sent.
`S3Storage.read_ahead` is what makes the core ask for much.
"""

from __future__ import annotations

from collections import deque
from types import TracebackType

import anyio
import anyio.lowlevel

from asyncrec.errors import ArgumentValueError, ObjectChangedError, TransientStorageError
from asyncrec.storage import ByteSource

from .parts import MIB
from .shared import Shared

__all__ = ["S3Source"]

# The most that one request fetches. 8 MiB carries its latency (some 30 ms on S3) at the speed of a connection.
WINDOW = 8 * MIB
# glibc gives freed memory back, and takes it anew page by page, until a process has once freed a large block: then it
# keeps twice as much of it for the next. Reading in blocks of 256 KiB, a third of the time went there.
bytes(WINDOW)


class S3Source(ByteSource):
    """A source of one object, which `S3Storage.open_source` makes; its own context."""

    def __init__(self, shared: Shared, key: str, start: int, end: int | None, etag: str | None) -> None:
        self._shared = shared
        self._shown = key
        self._key = shared.options.prefix + key
        self._position = start
        self._end = end
        # By the caller, or by the first bytes read.
        self._pinned = etag
        # Of the last answer, and not handed out yet; `_position` is behind them.
        self._blocks: deque[bytes] = deque()
        self._open = False

    async def __aenter__(self) -> S3Source:
        self._shared.check()
        await self._pin()
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
            raise anyio.ClosedResourceError(f"{self._what()}: its context is not open")
        if max_bytes < 1:
            raise ArgumentValueError(f"max_bytes is at least 1, not {max_bytes}")
        self._shared.check()
        # What has come is handed out without a checkpoint: a step of the loop for each block would be a tenth of what
        # reading costs, and after at most `WINDOW` there is one.
        while not self._blocks:
            end = min(self.info.size, self._position + min(max_bytes, WINDOW))
            if self._end is not None:
                end = min(end, self._end)
            if self._position >= end:
                await anyio.lowlevel.checkpoint()
                return b""
            try:
                self._blocks = await self._shared.bucket.read(self._key, self._position, end, self.info.etag)
            except ObjectChangedError as error:
                await self._changed(error)
                continue
            self._pinned = self.info.etag
            self.buffered = sum(map(len, self._blocks))
            self._position += self.buffered
        block = self._blocks.popleft()
        if len(block) > max_bytes:
            self._blocks.appendleft(block[max_bytes:])
            block = block[:max_bytes]
        self.buffered -= len(block)
        return block

    async def _pin(self) -> None:
        """Find the version to read; one that contradicts the etag asked for is looked at twice: answers get damaged."""
        for last in (False, True):
            found = await self._shared.bucket.head(self._key, shown=self._shown)
            if self._pinned is None or found.info.etag == self._pinned:
                self.info = found.info
                return
            if last:
                raise ObjectChangedError(f"{self._what()}: its etag is not {self._pinned} any more: open it again")

    async def _changed(self, error: ObjectChangedError) -> None:
        """An answer says it is another version: believed if HEAD agrees. Forgiven while nothing was read or pinned, and
        the size is what it was: the caller counts on it."""
        found = await self._shared.bucket.head(self._key, shown=self._shown)
        if found.info.etag == self.info.etag:
            raise TransientStorageError(f"{self._what()}: an answer had another etag than the object has") from error
        if self._pinned is not None or found.info.size != self.info.size:
            raise error
        self.info = found.info

    def _what(self) -> str:
        return self._shared.bucket.what("read", self._key)
