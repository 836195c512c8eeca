"""`ChunkWriter` collects the bytes of records into the chunks that a sink accepts.

Like the sink that it wraps, a writer is used by one task at a time.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain

import anyio

from asyncrec._concurrency.tasks import in_thread
from asyncrec._framing.crc import crc32c
from asyncrec.errors import StorageError
from asyncrec.storage._base import Buffer, ByteSink
from asyncrec.storage._resuming_source import ResumingSource

__all__ = ["END_BYTES", "ChunkWriter", "ResumingSource"]

# Data above this size is copied and checksummed in a thread. Copying and checksumming each take 50 to 100 us per MiB,
# which is less than framing takes.
_MOST_ON_LOOP = 2 << 20
# Buffers up to this length are copied into slabs, because handling a hundred thousand tiny buffers per chunk would take
# longer than copying them.
_SMALL = 4 << 10
_SLAB = 64 << 10
# The number of bytes at the end of an object that `end_crc32c` covers: at most one page to read, but enough for several
# records of a kilobyte.
END_BYTES = 4 << 10


class ChunkWriter:
    """Writer that accepts buffers of any length and sends them in chunks of exactly ``sink.chunk_size`` bytes.

    The buffers of a chunk are not joined. A buffer must not be changed until it has been sent. Bytes that do not fill a
    chunk are kept until the next call. If they are a small part of a long buffer, they are copied, so that they do not
    keep the entire buffer alive.

    After an error or a cancellation, every later call raises; the object can only be abandoned.

    Attributes:
        size: the number of bytes accepted.
        crc32c: the CRC32C of the accepted bytes; 0 without ``checksum``.
        end: the last `END_BYTES` of the accepted bytes, or all of them if there are fewer; empty without ``checksum``.
    """

    def __init__(self, sink: ByteSink, *, checksum: bool = True) -> None:
        self._sink = sink
        self._checksum = checksum
        self._held: list[Buffer] = []
        self._held_size = 0
        self._error: Exception | None = None
        self._finished = False
        self.size = 0
        self.crc32c = 0
        self.end = b""

    @property
    def held(self) -> int:
        """The number of bytes accepted but not yet sent, always less than one chunk."""
        return self._held_size

    def tail(self) -> Sequence[Buffer]:
        """Return the unsent bytes, so that a caller can make them durable before the next `write`."""
        return self._held

    async def write(self, buffers: Sequence[Buffer]) -> None:
        """Accept the buffers, and send as many chunks as they fill.

        Raises:
            ClosedResourceError: `finish` has been called.
        """
        self._check()
        self._begin()
        try:
            buffers = [_bytewise(buffer) for buffer in buffers]
            size = sum(map(len, buffers))
            if not self._checksum:
                pass
            elif size > _MOST_ON_LOOP:
                self.crc32c = await in_thread(_checksum, buffers, self.crc32c)
            else:
                self.crc32c = _checksum(buffers, self.crc32c)
            if self._checksum:
                self.end = _end_of(self.end, buffers)
            self.size += size
            for buffer in buffers:
                await self._take(buffer)
        except BaseException as error:
            self._failed(error)
            raise
        self._error = None

    async def flush(self) -> int:
        """Make the written data as durable as the sink allows; return the number of durable bytes from the start."""
        self._check()
        self._begin()
        try:
            durable = self.size - self._held_size + await self._sink.flush(self._held)
        except BaseException as error:
            self._failed(error)
            raise
        self._error = None
        return durable

    async def finish(self) -> None:
        """Send the remaining bytes as the last chunk. Idempotent.

        The object is published when the sink's context exits.
        """
        if self._finished and self._error is None:
            return
        self._check()
        self._begin()
        try:
            if self._held:
                await self._send()
        except BaseException as error:
            self._failed(error)
            raise
        self._error = None
        self._finished = True

    def close(self) -> None:
        """Reject all later writes, because the object is abandoned."""
        self._failed(anyio.ClosedResourceError())

    async def _take(self, buffer: Buffer) -> None:
        room = self._sink.chunk_size - self._held_size
        if len(buffer) < room:
            await self._hold(buffer)
            return
        rest = memoryview(buffer)
        while len(rest) >= room:
            self._held.append(rest[:room])
            rest = rest[room:]
            await self._send()
            room = self._sink.chunk_size
        if rest:
            await self._hold(rest)

    async def _hold(self, buffer: Buffer) -> None:
        size = len(buffer)
        self._held_size += size
        if size <= _SMALL:
            last = self._held[-1] if self._held else None
            # A bytearray here is always one of our slabs, because `_bytewise` converts the caller's bytearrays.
            if isinstance(last, bytearray) and len(last) + size <= _SLAB:
                last += buffer
            elif size:
                self._held.append(bytearray(buffer))
        elif isinstance(buffer, memoryview) and size * 2 < _base_size(buffer):
            self._held.append(await in_thread(bytes, buffer) if size > _MOST_ON_LOOP else bytes(buffer))
        else:
            self._held.append(buffer)

    async def _send(self) -> None:
        chunk, self._held, self._held_size = self._held, [], 0
        await self._sink.send(chunk)

    def _check(self) -> None:
        if self._error is not None:
            raise self._error
        if self._finished:
            raise anyio.ClosedResourceError

    def _begin(self) -> None:
        # This error is set while a call is in progress, so that a concurrent call raises it. If the call is cancelled,
        # the error stays, and every later call raises it too.
        self._error = StorageError(
            "an earlier write was cancelled, so the object can only be abandoned; write it again"
        )

    def _failed(self, error: BaseException) -> None:
        self._held, self._held_size = [], 0
        if isinstance(error, Exception):
            self._error = error


def _bytewise(buffer: Buffer) -> bytes | memoryview:
    """Return the buffer as bytes or as a view of bytes, never as a bytearray, because that is the type of a slab."""
    if isinstance(buffer, bytes):
        return buffer
    view = memoryview(buffer)
    return view if view.format == "B" and view.ndim == 1 else view.cast("B")


def _checksum(buffers: Sequence[Buffer], value: int) -> int:
    for buffer in buffers:
        value = crc32c(buffer, value)
    return value


def _end_of(before: bytes, buffers: Sequence[Buffer]) -> bytes:
    """Return the last bytes of ``before`` followed by ``buffers``."""
    pieces: list[Buffer] = []
    missing = END_BYTES
    for buffer in chain(reversed(buffers), (before,)):
        pieces.append(buffer[-missing:])
        missing -= len(pieces[-1])
        if not missing:
            break
    return b"".join(reversed(pieces))


def _base_size(view: memoryview) -> int:
    """Return the number of bytes that ``view`` keeps alive."""
    return memoryview(view.obj).nbytes
