"""Decoding of HTTP bodies in a web archive, with a limit on the decoded size. This module does no I/O.

warcio decodes a whole chunk at once, and a chunk of a few megabytes may decode to gigabytes. So this module uses warcio
only to remove the chunked encoding, and counts the bytes while it decodes the body.

Codings are removed in reverse order, up to the first without a decoder. Brotli and zstd are decoded if the package
brotli or backports.zstd is installed (Python 3.14 includes zstd).

As in warcio, a body without the encoding that its header declares is returned unchanged. If a body is damaged or ends
early, the bytes before that are returned.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from asyncrec.errors import ExampleError

_STEP = 256 << 10
# The input of zlib is passed in slices of this size, because zlib copies unconsumed input at each step.
_SLICE = 64 << 10
# The first slice of a GZIP member is smaller, because zlib copies the bytes after a member's end.
_FIRST_SLICE = 1 << 10
# brotli cannot limit its output, but the format bounds that of a slice of this size to a few hundred megabytes.
_BROTLI_STEP = 64
# With more codings, the body stays encoded. Each of them costs as much as a whole body.
_MOST_CODINGS = 5
# After this many GZIP members or zstd frames, decoding stops. A million empty ones would take ten seconds.
_MOST_MEMBERS = 1 << 16
_GZIP = b"\x1f\x8b"
_ZSTD = b"\x28\xb5\x2f\xfd"


class TooLargeError(ExampleError):
    """A body decodes to more bytes than the limit."""


class Body(NamedTuple):
    """A body.

    Attributes:
        content: the body, without the codings that could be removed.
        encoding: the codings that remain, in the form of a Content-Encoding; empty if all were removed.
        whole: whether the body was decoded to its end.
    """

    content: bytes
    encoding: str
    whole: bool


def body_of(record: Any, most: int) -> Body:
    """Return the decoded body of a warcio record. For an empty body, the encoding has the codings without a decoder.

    Raises:
        TooLargeError: the body has more than ``most`` bytes.
    """
    from warcio.bufferedreaders import ChunkedDataReader

    stream, whole = record.raw_stream, True
    transfer = _codings(record.http_headers, "transfer-encoding")
    if transfer[-1:] == ["chunked"]:
        stream = ChunkedDataReader(stream)
    codings = _codings(record.http_headers, "content-encoding") + [each for each in transfer if each != "chunked"]
    raw: bytes = stream.read()
    while codings and len(codings) <= _MOST_CODINGS and codings[-1] in _DECODERS:
        try:
            raw, ended = _without(codings[-1], raw, most)
        except ImportError:
            break
        whole = whole and ended
        codings.pop()
    if len(raw) > most:
        raise TooLargeError(f"the body has {len(raw):,} bytes, more than the limit of {most:,}")
    return Body(raw, ", ".join(codings), whole)


def _codings(headers: Any, name: str) -> list[str]:
    """Return the codings in the headers named ``name``, in lower case."""
    values = [] if headers is None else [value for each, value in headers.headers if each.lower() == name]
    codings = [coding.strip().lower() for coding in ",".join(values).split(",")]
    return [coding for coding in codings if coding not in ("", "identity")]


def _without(coding: str, raw: bytes, most: int) -> tuple[bytes, bool]:
    """Return the body without a coding, and whether its end was found.

    A body without this coding is returned unchanged.

    Raises:
        ImportError: the decoder's library is not installed.
    """
    for decoder in _DECODERS[coding]:
        pieces: list[bytes] = []
        size = 0
        try:
            for piece in decoder(raw):
                size += len(piece)
                if size > most:
                    raise TooLargeError(
                        f"the body of {len(raw):,} bytes decodes to more than the limit of {most:,} bytes"
                    )
                pieces.append(piece)
        except (TooLargeError, ImportError):
            raise
        except EOFError:
            return b"".join(pieces), not raw
        except Exception:  # errors of zlib, brotli and zstd
            if size:
                return b"".join(pieces), False
        else:
            return b"".join(pieces), True
    return raw, True


def _inflated(raw: bytes, bits: int) -> Iterator[bytes]:
    with memoryview(raw) as view:
        at = 0
        for _ in range(_MOST_MEMBERS):
            inflater, size = zlib.decompressobj(bits), _FIRST_SLICE
            while at < len(raw) and not inflater.eof:
                data = bytes(view[at : at + size])
                at, size = at + len(data), min(2 * size, _SLICE)
                while data and not inflater.eof:
                    yield inflater.decompress(data, _STEP)
                    data = inflater.unconsumed_tail
            yield inflater.flush(_STEP)
            if not inflater.eof:
                raise EOFError
            at -= len(inflater.unused_data)
            if bits <= zlib.MAX_WBITS or view[at : at + len(_GZIP)] != _GZIP:
                return  # another GZIP member may follow; other bytes are ignored
    raise EOFError


def _brotli(raw: bytes) -> Iterator[bytes]:
    import brotli  # type: ignore[import-not-found,import-untyped,unused-ignore]  # optional, as in warcio

    decompressor = brotli.Decompressor()
    with memoryview(raw) as view:
        for start in range(0, len(raw), _BROTLI_STEP):
            yield decompressor.process(bytes(view[start : start + _BROTLI_STEP]))
    if not decompressor.is_finished():
        raise EOFError


def _zstd(raw: bytes) -> Iterator[bytes]:
    try:
        from compression import zstd  # type: ignore[import-not-found,unused-ignore]  # Python 3.14
    except ImportError:
        from backports import zstd  # type: ignore[import-not-found,unused-ignore]  # optional

    with memoryview(raw) as view:
        at = 0
        for _ in range(_MOST_MEMBERS):
            decompressor, size = zstd.ZstdDecompressor(), _FIRST_SLICE
            while at < len(raw) and not decompressor.eof:
                data = bytes(view[at : at + size])
                at, size = at + len(data), min(2 * size, _SLICE)
                yield decompressor.decompress(data, _STEP)
                while not decompressor.needs_input and not decompressor.eof:
                    yield decompressor.decompress(b"", _STEP)
            if not decompressor.eof:
                raise EOFError
            at -= len(decompressor.unused_data)
            if view[at : at + len(_ZSTD)] != _ZSTD:
                return  # another frame may follow; other bytes are ignored
    raise EOFError


def _gunzipped(raw: bytes) -> Iterator[bytes]:
    return _inflated(raw, 16 + zlib.MAX_WBITS)


_DECODERS: dict[str, list[Callable[[bytes], Iterator[bytes]]]] = {
    "gzip": [_gunzipped],
    "x-gzip": [_gunzipped],
    "deflate": [lambda raw: _inflated(raw, zlib.MAX_WBITS), lambda raw: _inflated(raw, -zlib.MAX_WBITS)],
    "br": [_brotli],
    "zstd": [_zstd],
}
