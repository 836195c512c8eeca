"""Distinguish a torn end from damage in a file whose writer died, or whose machine lost power.

An interrupted write leaves only its first bytes, sometimes followed by zeros, because a file system may have extended
the file before the data reached the disk. The end is therefore torn if the file ends inside a record or a GZIP member,
or if all bytes from some point inside one are zeros. Anything else is damage, which a writer must not cut off.

The entire file is read, and every checksum is checked, in a worker thread.
"""

from __future__ import annotations

import errno
import os
import struct
import zlib

from asyncrec._framing.compression import Decompressor
from asyncrec._framing.frames import FRAME_OVERHEAD, HEADER_BYTES, MAX_RECORD_BYTES, FrameDecoder
from asyncrec.errors import CorruptRecordError, FormatError, RecordTooLargeError, TruncatedError
from asyncrec.storage._local.disk import read_at

_SYNC = b"\x00\x00\xff\xff"
_LAST_BLOCK = b"\x03\x00"
_HEADER = b"\x1f\x8b\x08\x00"  # deflate, no flags; asyncrec and TensorFlow write such headers of ten bytes
_HEADER_BYTES = 10
_STEP = 1 << 20

# The maximum number of places to try. The four bytes of a flush (`_SYNC`) also occur in compressed data by chance,
# about once in 4 GiB, so no real file needs more tries.
_TRIES = 64


def finish_member(member: bytes) -> tuple[int, bytes]:
    """Return ``(keep, tail)``, such that ``member[:keep] + tail`` is a complete GZIP member of all flushed data.

    Return ``(0, b"")`` if nothing was flushed, or if neither asyncrec nor TensorFlow writes such members.
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
    """Return the CRC-32 and the length of the data in ``deflate``, or `None` unless it is exactly one stream."""
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


_BLOCK = 1 << 20
# A byte of deflate expands to at most 1,032 bytes. A compressing file system stores at most 128 KiB in a 4 KiB block.
_MOST_INFLATED = 1040
_MOST_PACKED = 32
_SECTOR = 512  # the unit of st_blocks, independent of the disk's sectors


def whole_end(fd: int, size: int, name: str, compression: str, *, start: int = 0) -> tuple[int, bytes]:
    """Return ``(end, tail)``. The file's first ``end`` bytes, followed by ``tail``, are its intact content.

    ``start`` is the number of bytes of an uncompressed file that are known to be intact, and are not read again.

    Raises:
        CorruptRecordError: the file has damage that is not a torn end.
    """
    try:
        if compression != "GZIP":
            return _whole_frames(fd, size, start), b""
        try:
            return _whole_members(fd, size)
        except FormatError as error:
            # Trailing zeros hide the end of the last member, so examine only the bytes before them.
            whole = zeros_from(fd, size)
            if whole == size:
                raise
            try:
                return _whole_members(fd, whole)
            except FormatError:
                raise error from None
    except FormatError as error:
        error.path = name
        raise


def is_torn(fd: int, size: int, offset: int, error: FormatError) -> bool:
    """Return whether a `FrameDecoder`'s error at ``offset`` of an uncompressed file means a torn end, not damage."""
    if isinstance(error, TruncatedError):
        return True
    end = offset + HEADER_BYTES  # the end of the header of the frame that was being written
    if isinstance(error, RecordTooLargeError) or (isinstance(error, CorruptRecordError) and error.part == "data"):
        end = offset + FRAME_OVERHEAD + int.from_bytes(read_at(fd, 8, offset), "little")
        if end >= size:
            return True
    return zeros_from(fd, size) < end


def zeros_from(fd: int, size: int) -> int:
    """Return the offset from which the file has only zeros; ``size`` if its last byte is not zero."""
    for first, end in reversed(_written(fd, size)):
        while end > first:
            begin = max(end - _BLOCK, first)
            block = read_at(fd, end - begin, begin)
            used = len(block.rstrip(b"\0"))
            if used:
                return begin + used
            end = begin
    return 0


def _written(fd: int, size: int) -> list[tuple[int, int]]:
    """Return the ranges of a file that are not holes, ascending. Even a hole of a terabyte is skipped immediately."""
    parts = []
    end = 0
    try:
        while end < size:
            begin = os.lseek(fd, end, os.SEEK_DATA)
            end = min(os.lseek(fd, begin, os.SEEK_HOLE), size)
            parts.append((begin, end))
    except OSError as error:
        if error.errno != errno.ENXIO:  # ENXIO means that only a hole follows
            return [(0, size)]  # the file system does not report holes
    return parts


def most_record_bytes(status: os.stat_result, *, compressed: bool) -> int:
    """Return the maximum length of a record in a file, from the number of blocks that the file uses on the disk.

    A writer may write records of any length, but a record longer than this can only consist of holes, and would waste
    memory.
    """
    return max(MAX_RECORD_BYTES, (_MOST_INFLATED if compressed else _MOST_PACKED) * _SECTOR * status.st_blocks)


def _whole_frames(fd: int, size: int, start: int) -> int:
    decoder = FrameDecoder(max_record_bytes=most_record_bytes(os.fstat(fd), compressed=False))
    position = start
    while position < size and decoder.error is None:
        block = read_at(fd, _BLOCK, position)
        if not block:
            break
        decoder.feed(block)
        position += len(block)
    if decoder.error is not None and not is_torn(fd, size, start + decoder.offset, decoder.error):
        raise decoder.error
    return start + decoder.offset


def _whole_members(fd: int, size: int) -> tuple[int, bytes]:
    decompressor = Decompressor("GZIP")
    decoder = FrameDecoder(max_record_bytes=most_record_bytes(os.fstat(fd), compressed=True))
    position = 0
    try:
        while position < size:
            block = read_at(fd, min(_BLOCK, size - position), position)
            if not block:
                break
            position += len(block)
            decompressor.feed(block)
            while output := decompressor.read(_BLOCK):
                decoder.feed(output)
        decompressor.finish()
    except TruncatedError:
        torn = decompressor.member_offset
        member = read_at(fd, size - torn, torn)
        keep, tail = finish_member(member)
        return torn + keep, tail
    decoder.finish()
    return decompressor.members_end, b""  # any zeros after this follow a complete member
