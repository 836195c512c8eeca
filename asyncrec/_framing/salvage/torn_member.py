"""`finish_member` makes a whole GZIP member of one that was torn when its writer died. Pure.

A sync flush ends on a byte boundary with the four bytes of an empty stored block. What stands up to there is a whole
deflate stream, except for its last block, and asyncrec flushes between records only: so a torn member is cut after its
last flush, and given an empty last block, its CRC-32 and its length (RFC 1951 section 3.2.4, RFC 1952 section 2.3.1).
"""

from __future__ import annotations

import struct
import zlib

_SYNC = b"\x00\x00\xff\xff"
_LAST_BLOCK = b"\x03\x00"
_HEADER = b"\x1f\x8b\x08\x00"  # deflate, no flags: ten bytes in all, as asyncrec and TensorFlow write it
_HEADER_BYTES = 10
_STEP = 1 << 20

# A flush's four bytes may stand in compressed data by chance, once in 4 GiB; so many tries end every real search.
_TRIES = 64


def finish_member(member: bytes) -> tuple[int, bytes]:
    """Return ``(keep, tail)``: ``member[:keep] + tail`` is a whole GZIP member with everything flushed into it.

    ``(0, b"")`` where nothing was flushed, or where it is not a member that asyncrec or TensorFlow writes.
    """
    if not member.startswith(_HEADER):
        return 0, b""
    end = len(member)
    for _ in range(_TRIES):
        at = member.rfind(_SYNC, _HEADER_BYTES, end)
        if at < 0:
            break
        keep = at + len(_SYNC)
        sums = _checked(member[_HEADER_BYTES:keep] + _LAST_BLOCK)
        if sums is not None:
            return keep, _LAST_BLOCK + struct.pack("<II", *sums)
        end = keep - 1
    return 0, b""


def _checked(deflate: bytes) -> tuple[int, int] | None:
    """Compute CRC-32 and length of what a deflate stream holds, or `None` when it is not one whole stream."""
    stream = zlib.decompressobj(-zlib.MAX_WBITS)
    crc = length = 0
    rest = deflate
    try:
        while rest and not stream.eof:
            output = stream.decompress(rest, _STEP)
            crc = zlib.crc32(output, crc)
            length += len(output)
            rest = stream.unconsumed_tail
    except zlib.error:
        return None
    if not stream.eof or stream.unused_data:
        return None
    return crc, length & 0xFFFFFFFF
