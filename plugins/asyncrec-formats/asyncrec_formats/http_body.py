"""The body of an HTTP message in a web archive is decoded here, and never more of it than was asked for. Pure.

warcio removes the encodings of a whole chunk at once, and a chunk of some megabytes may hold gigabytes. So it is asked
for the bytes as they came, without their chunks; what they decode to is counted as it comes.

As in warcio, a body that is not in the encoding its header says is taken as it is; what was decoded before damage is
kept.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator
from typing import Any

from asyncrec.errors import ExampleError

_STEP = 256 << 10
# zlib copies what it has not taken of its input, at each step.
_SLICE = 64 << 10
# What brotli makes of so few bytes is bounded by its format, to some hundred megabytes: it cannot be told to stop.
_BROTLI_STEP = 64


class TooLargeError(ExampleError):
    """A body decodes to more than it may."""


def body_of(record: Any, most: int) -> bytes:
    """The decoded body of a record as warcio gives it.

    Raises:
        TooLargeError: it has more than ``most`` bytes.
    """
    from warcio.bufferedreaders import ChunkedDataReader

    headers = record.http_headers
    stream, decoders = record.raw_stream, []
    if headers is not None:
        if headers.get_header("transfer-encoding") == "chunked":
            stream = ChunkedDataReader(stream)
        decoders = _DECODERS.get((headers.get_header("content-encoding") or "").lower(), [])
    raw: bytes = stream.read()
    for decoder in decoders:
        body = _decoded(raw, decoder, most)
        if body is not None:
            return body
    if len(raw) > most:
        raise TooLargeError(f"the body has {len(raw):,} bytes, more than the limit of {most:,}")
    return raw


def _decoded(raw: bytes, decoder: Callable[[bytes], Iterator[bytes]], most: int) -> bytes | None:
    """`None` where it is not in that encoding."""
    pieces = []
    size = 0
    try:
        for piece in decoder(raw):
            size += len(piece)
            if size > most:
                raise TooLargeError(f"the body of {len(raw):,} bytes decodes to more than the limit of {most:,} bytes")
            pieces.append(piece)
    except TooLargeError:
        raise
    except ImportError:
        return None
    except Exception:  # zlib's and brotli's errors
        if not size:
            return None
    return b"".join(pieces)


def _inflated(raw: bytes, bits: int) -> Iterator[bytes]:
    inflater = zlib.decompressobj(bits)
    with memoryview(raw) as view:
        for start in range(0, len(raw), _SLICE):
            data = bytes(view[start : start + _SLICE])
            while data and not inflater.eof:
                yield inflater.decompress(data, _STEP)
                data = inflater.unconsumed_tail
            if inflater.eof:
                break
    yield inflater.flush(_STEP)


def _brotli(raw: bytes) -> Iterator[bytes]:
    import brotli  # type: ignore[import-not-found,import-untyped,unused-ignore]  # where warcio's users have it

    decompressor = brotli.Decompressor()
    with memoryview(raw) as view:
        for start in range(0, len(raw), _BROTLI_STEP):
            yield decompressor.process(bytes(view[start : start + _BROTLI_STEP]))


_DECODERS: dict[str, list[Callable[[bytes], Iterator[bytes]]]] = {
    "gzip": [lambda raw: _inflated(raw, 16 + zlib.MAX_WBITS)],
    "deflate": [lambda raw: _inflated(raw, zlib.MAX_WBITS), lambda raw: _inflated(raw, -zlib.MAX_WBITS)],
    "br": [_brotli],
}
