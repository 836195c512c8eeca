"""`GcsSink` sends an object in chunks of a resumable upload, one of which is in transit while the next one fills.

The sink retains the last 1 to 256 KiB. GCS accepts only whole units of 256 KiB, except in the last request, which
states the size and publishes the object, and must not be sent before the context exits. So the last request is short,
and contains bytes unless the object is empty or all bytes were flushed.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from types import TracebackType

import anyio
import anyio.lowlevel
import numpy as np
from crc32c import crc32c

from asyncrec.errors import ArgumentValueError
from asyncrec.storage import Buffer, ByteSink, SinkState, in_thread, sheltered, shielded

from .bucket import Bucket
from .protocol import UNIT
from .upload import ABORT_SECONDS, Upload

# Copying and checksumming more bytes would block the loop for too long.
_ON_LOOP = 1024 * 1024
# The seconds for which a cancelled publication may continue. At most 256 KiB remain to be sent.
_PUBLISH_SECONDS = 20.0

logger = logging.getLogger("asyncrec.storage")


class GcsSink(ByteSink):
    """A sink for one object, sent by a resumable upload.

    It buffers at most one chunk, which occupies a slot of the bucket, and 256 KiB. The error of a chunk in transit is
    raised by the next call or by the exit.
    """

    def __init__(self, bucket: Bucket, key: str, *, exclusive: bool) -> None:
        self.chunk_size = bucket.chunk_size
        self._bucket = bucket
        self._shown = bucket.shown(key)
        self._upload = Upload(bucket, key, exclusive=exclusive)
        self._held = b""
        self._ahead = 0  # the number of bytes of the next chunk that a flush has already sent
        self._checksum = 0
        self._task: asyncio.Task[None] | None = None
        self._state = SinkState(self._shown)

    async def __aenter__(self) -> GcsSink:
        with self._state.entering():
            try:
                await self._upload.begin()
            except BaseException:
                await self._abort()
                raise
        return self

    async def send(self, buffers: Sequence[Buffer]) -> None:
        with self._state.working():
            await self._join()
            size = sum(map(len, buffers))
            if size < self._ahead:
                raise ArgumentValueError("flushed bytes must be sent again, as part of the next chunk")
            skip, self._ahead = self._ahead, 0
            await self._pass_on(buffers, skip, hold=True)

    async def flush(self, tail: Sequence[Buffer]) -> int:
        with self._state.working():
            await self._join()
            self._ahead += await self._pass_on(tail, self._ahead, hold=False)
            await self._join()
        return self._ahead

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        try:
            if not self._state.leave(exc):
                return
            await self._join()
            if self._ahead:
                raise RuntimeError(
                    f"{self._shown}: the object was not published, because flushed bytes were not sent again as "
                    "part of a chunk"
                )
            await anyio.lowlevel.checkpoint()
            finish = self._upload.finish(memoryview(self._held), self._checksum)
            self.published = await sheltered(finish, limit=_PUBLISH_SECONDS)
        finally:
            if self.published is None:
                await self._abort()
            self._held = b""

    async def _pass_on(self, buffers: Sequence[Buffer], skip: int, *, hold: bool) -> int:
        """Upload whole units (with ``hold``, all but the last). Return the number of uploaded bytes of ``buffers``."""
        size = len(self._held) + sum(map(len, buffers)) - skip
        whole = max(0, size - hold) // UNIT * UNIT
        if not whole:
            if hold:
                _, self._held, self._checksum = _cut(self._held, buffers, skip, 0, self._checksum, hold)
            return 0
        await self._bucket.slots.acquire()
        try:
            args = self._held, buffers, skip, whole, self._checksum, hold
            cut = _cut(*args) if size <= _ON_LOOP else await in_thread(_cut, *args)
        except BaseException:
            self._bucket.slots.release()
            raise
        taken = whole - len(self._held)
        body, self._held, self._checksum = cut
        self._task = asyncio.create_task(self._upload.append(body))
        # Release the slot in a callback, because the task may be cancelled before it begins.
        self._task.add_done_callback(lambda _: self._bucket.slots.release())
        return taken

    async def _join(self) -> None:
        """Wait for the chunk in transit. A cancellation does not stop the chunk."""
        if self._task is not None:
            await asyncio.wait([self._task])
            self._task.result()
            self._task = None

    async def _abort(self) -> None:
        with shielded(ABORT_SECONDS) as limit:
            if self._task is not None:
                self._task.cancel()
                await asyncio.wait([self._task])
                if not self._task.cancelled():
                    self._task.exception()  # mark it as retrieved; it was already raised or no longer matters
            await self._upload.abort()
        if limit.cancelled_caught:
            logger.warning(
                "%s: aborting the upload took too long; the upload expires within a week",
                self._shown,
                extra={"path": self._shown},
            )


def _cut(
    held: bytes, buffers: Sequence[Buffer], skip: int, whole: int, checksum: int, hold: bool
) -> tuple[memoryview, bytes, int]:
    """Join the bytes, split them after ``whole`` bytes, and update the checksum. Return ``(body, rest, checksum)``.

    With ``hold``, ``rest`` contains the bytes after the body, and the checksum includes them. Without it, ``rest`` is
    empty, and the caller keeps these bytes.
    """
    # NumPy releases the GIL while it copies, but `bytes.join` of memoryviews does not.
    joined = np.empty(len(held) + sum(map(len, buffers)) - skip, np.uint8)
    at = 0
    for n, buffer in enumerate((held, *buffers)):
        piece = memoryview(buffer)
        if n and skip:
            skip, piece = max(0, skip - len(piece)), piece[skip:]
        if piece:
            joined[at : at + len(piece)] = np.frombuffer(piece, np.uint8)
            at += len(piece)
    data = joined.data
    taken = len(data) if hold else whole
    checksum = crc32c(data[len(held) : taken], checksum)
    return data[:whole], bytes(data[whole:taken]), checksum
