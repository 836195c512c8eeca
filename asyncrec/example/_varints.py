"""Encode and decode varints, the integers of the wire format, which have seven bits per byte, lowest bits first.

The eighth bit of a byte is set if more bytes follow. Negative integers are written as 64-bit two's complement, which
takes ten bytes. Packed varints are concatenated.

Source: protobuf.dev/programming-guides/encoding.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from asyncrec._native import native
from asyncrec.errors import DecodeError

_ONE_BYTE = [bytes([value]) for value in range(128)]
_LOOP_UP_TO = 16  # up to this many integers, a Python loop takes less time than NumPy's overhead of 10 us
_BLOCK = 1 << 16  # the number of integers converted at a time, so their ten columns stay within 2 MiB


def varint(value: int) -> bytes:
    """Encode a number from 0 to 2**64 - 1 as a varint of one to ten bytes."""
    if value < 0x80:
        return _ONE_BYTE[value]
    if value < 0x4000:
        return bytes((value & 0x7F | 0x80, value >> 7))
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def varints(array: npt.NDArray[Any]) -> bytes:
    """Return the integers of an array as packed varints in C order. All must be in the range of int64."""
    flat = array.reshape(-1)
    if len(flat) <= _LOOP_UP_TO:
        return b"".join([varint(number & 0xFFFF_FFFF_FFFF_FFFF) for number in flat.tolist()])
    blocks = (flat[start : start + _BLOCK] for start in range(0, len(flat), _BLOCK))
    return b"".join([_varint_block(block.astype(np.int64).view(np.uint64)) for block in blocks])


def _varint_block(numbers: npt.NDArray[np.uint64]) -> bytes:
    largest = int(numbers.max())
    if largest < 0x80:
        return numbers.astype(np.uint8).tobytes()
    width = -(-largest.bit_length() // 7)
    packed = np.empty((len(numbers), width), np.uint8)
    used = np.empty((len(numbers), width), np.bool_)
    used[:, 0] = True
    for column in range(width):
        packed[:, column] = (numbers & np.uint64(0x7F)).astype(np.uint8)
        numbers = numbers >> np.uint64(7)
        if column + 1 < width:
            used[:, column + 1] = numbers > 0
            packed[:, column] |= used[:, column + 1].astype(np.uint8) << np.uint8(7)
    return packed[used].tobytes()


def int64_values(payload: bytes | bytearray) -> npt.NDArray[np.int64]:
    """Return the numbers in packed varints, as a new array. Bits beyond the 64th are discarded, as in protobuf.

    Raises DecodeError if a varint is truncated or longer than ten bytes.
    """
    if len(payload) == 1 and payload[0] < 0x80:  # usually a label; twenty times as fast as the code below
        return np.array([payload[0]], np.int64)
    if native is not None:
        found = native.int64_values(payload)
        if found is not None:
            return np.frombuffer(found, np.int64)
    packed = np.frombuffer(payload, np.uint8)
    last = packed < 0x80
    if last.all():
        return packed.astype(np.int64)
    if not last[-1]:
        raise DecodeError(f"the last int64 value of {len(payload)} bytes is truncated")
    ends = np.flatnonzero(last)
    starts = np.zeros_like(ends)
    starts[1:] = ends[:-1] + 1
    more = ends - starts  # the number of bytes after the first
    longest = int(more.max())
    if longest > 9:
        raise DecodeError("an int64 value is longer than ten bytes")
    values = (packed[starts] & 0x7F).astype(np.uint64)
    rows = np.flatnonzero(more)
    for step in range(1, longest + 1):
        values[rows] |= (packed[starts[rows] + step] & 0x7F).astype(np.uint64) << np.uint64(7 * step)
        rows = rows[more[rows] > step]
    return values.view(np.int64)
