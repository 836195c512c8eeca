"""Decoding of HTTP bodies in a web archive, with a limit on the decoded size. This module does no I/O.

warcio decodes a whole chunk at once, and a chunk of a few megabytes may decode to gigabytes. So this module uses warcio
only to remove the chunked encoding, and counts the bytes while it decodes the body.

As in warcio, a body without the encoding that its header declares is returned unchanged. If a body is damaged, the
bytes before the damage are returned.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator
from typing import Any

from asyncrec.errors import ExampleError

_STEP = 256 << 10
# The input of zlib is passed in slices of this size, because zlib copies unconsumed input at each step.
_SLICE = 64 << 10
# brotli cannot limit its output, but the format bounds that of a slice of this size to a few hundred megabytes.
_BROTLI_STEP = 64


class TooLargeError(ExampleError):
    """A body decodes to more bytes than the limit."""


def body_of(record: Any, most: int) -> bytes:
    """Return the decoded body of a warcio record.

    Raises:
        TooLargeError: the body has more than ``most`` bytes.
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
    """Return the decoded body, or `None` if it has another encoding or the decoder's library is not installed."""
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
    except Exception:  # errors of zlib and brotli
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
    import brotli  # type: ignore[import-not-found,import-untyped,unused-ignore]  # optional, as in warcio

    decompressor = brotli.Decompressor()
    with memoryview(raw) as view:
        for start in range(0, len(raw), _BROTLI_STEP):
            yield decompressor.process(bytes(view[start : start + _BROTLI_STEP]))


_DECODERS: dict[str, list[Callable[[bytes], Iterator[bytes]]]] = {
    "gzip": [lambda raw: _inflated(raw, 16 + zlib.MAX_WBITS)],
    "deflate": [lambda raw: _inflated(raw, zlib.MAX_WBITS), lambda raw: _inflated(raw, -zlib.MAX_WBITS)],
    "br": [_brotli],
}
