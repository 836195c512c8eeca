"""`Compressor` turns frames into the bytes of a compressed file."""

from __future__ import annotations

import zlib
from abc import ABC, abstractmethod
from collections.abc import Sequence

from asyncrec._framing.compression.engines import compressobj
from asyncrec._framing.compression.options import CompressionOptions
from asyncrec._framing.crc import Buffer

# A large buffer is compressed in pieces of this size, so that the output of a single call does not amount to a second
# copy of a large record.
_PIECE = 1 << 20


class Compressor(ABC):
    """A compressor that accepts frames and returns the bytes of the file. Must be used by one thread at a time.

    Attributes:
        member_offset: the compressed offset of the member that contains the data passed to the last `compress` call; 0
            for ZLIB, which is one stream, and without compression.
        member_input: the number of bytes added to this member up to and including the last `compress` call.
        total_out: the total number of bytes that all methods have returned.
    """

    member_offset: int = 0
    member_input: int = 0
    total_out: int = 0

    @abstractmethod
    def compress(self, buffers: Sequence[Buffer]) -> list[bytes]:
        """Compress whole frames. Return the available output, which may be empty. Only this method starts a member."""

    @abstractmethod
    def flush(self) -> bytes:
        """Return the output still needed to decompress all frames passed so far, without ending the member.

        This makes the compression ratio worse.
        """

    @abstractmethod
    def finish(self) -> bytes:
        """Return the last bytes of the file. Must be called once, at the end.

        If there were no records, a GZIP file consists of one empty member.
        """


def make_compressor(options: CompressionOptions) -> Compressor:
    """Return the `Compressor` for one file."""
    return _Deflating(options) if options.type else _Plain()


class _Plain(Compressor):
    """A compressor that returns frames unchanged."""

    def compress(self, buffers: Sequence[Buffer]) -> list[bytes]:
        size = sum(map(len, buffers))
        self.member_input += size
        self.total_out += size
        return [bytes(buffer) for buffer in buffers]  # copies joined runs of records, but not bytes objects

    def flush(self) -> bytes:
        return b""

    def finish(self) -> bytes:
        return b""


class _Deflating(Compressor):
    """A compressor that writes GZIP members, or one ZLIB stream, which it treats as a member of unlimited size."""

    def __init__(self, options: CompressionOptions) -> None:
        self._options = options
        self._limit = options.member_bytes if options.type == "GZIP" else None
        self._stream = compressobj(options)
        self._flushed = True  # whether all output has been returned

    def compress(self, buffers: Sequence[Buffer]) -> list[bytes]:
        if not any(map(len, buffers)):
            return []
        ready: list[bytes] = []
        if self._limit is not None and self.member_input >= self._limit:
            end = self._stream.flush(zlib.Z_FINISH)
            ready.append(end)
            self.member_offset = self.total_out + len(end)
            self.member_input = 0
            self._stream = compressobj(self._options)
        for buffer in buffers:
            self.member_input += len(buffer)
            if len(buffer) <= _PIECE:
                ready.append(self._stream.compress(buffer))
                continue
            view = memoryview(buffer)
            ready += [self._stream.compress(view[at : at + _PIECE]) for at in range(0, len(view), _PIECE)]
        ready = [piece for piece in ready if piece]
        self._flushed = False
        self.total_out += sum(map(len, ready))
        return ready

    def flush(self) -> bytes:
        # Another sync flush would add an empty block.
        if self._flushed:
            return b""
        self._flushed = True
        return self._count(self._stream.flush(zlib.Z_SYNC_FLUSH))

    def finish(self) -> bytes:
        return self._count(self._stream.flush(zlib.Z_FINISH))

    def _count(self, data: bytes) -> bytes:
        self.total_out += len(data)
        return data
