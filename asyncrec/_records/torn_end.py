"""A torn end is told from damage in a file whose writer died, or whose machine lost its power.

A write that was interrupted leaves its beginning, and nothing or zeros behind that: a filesystem may have made the file
longer before the data reached the disk. So an end is torn where the file stops inside a record or a GZIP member, or
where nothing but zeros follows from within it. Anything else is damage, which no writer may cut off.

All of it is read, and every checksum checked, in a worker thread.
"""

from __future__ import annotations

from asyncrec._framing.compression import Decompressor
from asyncrec._framing.frames import ANY_RECORD_BYTES, FRAME_OVERHEAD, HEADER_BYTES, FrameDecoder
from asyncrec._framing.salvage.torn_member import finish_member
from asyncrec.errors import CorruptRecordError, FormatError, RecordTooLargeError, TruncatedError
from asyncrec.storage._local.disk import read_at

__all__ = ["is_torn", "whole_end", "zeros_from"]

_BLOCK = 1 << 20


def whole_end(fd: int, size: int, name: str, compression: str, *, start: int = 0) -> tuple[int, bytes]:
    """Return ``(end, tail)``: the file's first ``end`` bytes and ``tail`` are whole, and no more of it can be kept.

    ``start``: of an uncompressed file, what is known to be whole, and not read again.

    Raises:
        CorruptRecordError: damage that does not reach the file's end.
    """
    try:
        if compression != "GZIP":
            return _whole_frames(fd, size, start), b""
        try:
            return _whole_members(fd, size)
        except FormatError as error:
            # Zeros decompress to something, and then to nothing: what is before them is looked at by itself.
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
    """Tell whether what a `FrameDecoder` refuses at ``offset`` of an uncompressed file is a torn end, not damage."""
    if isinstance(error, TruncatedError):
        return True
    end = offset + HEADER_BYTES  # of what was being written
    if isinstance(error, RecordTooLargeError) or (isinstance(error, CorruptRecordError) and error.part == "data"):
        end = offset + FRAME_OVERHEAD + int.from_bytes(read_at(fd, 8, offset), "little")
        if end >= size:
            return True
    return zeros_from(fd, size) < end


def zeros_from(fd: int, size: int) -> int:
    """Find the byte from which on the file holds nothing but zeros; ``size`` where it ends with something else."""
    end = size
    while end:
        begin = max(end - _BLOCK, 0)
        block = read_at(fd, end - begin, begin)
        used = len(block.rstrip(b"\0"))
        if used:
            return begin + used
        end = begin
    return 0


def _whole_frames(fd: int, size: int, start: int) -> int:
    decoder = FrameDecoder(max_record_bytes=max(size, 1))  # a longer one is torn
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
    decoder = FrameDecoder(max_record_bytes=ANY_RECORD_BYTES)
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
    return decompressor.members_end, b""  # zeros behind it would stand between members
