"""The checksum of a TFRecord file: CRC-32C (Castagnoli), masked.

A masked CRC is rotated right by 15 bits and has a constant added, so that the CRC of data that itself holds CRCs stays
useful (TensorFlow, ``core/lib/hash/crc32c.h``). The CRC of single buffers comes from the package ``crc32c`` (SSE 4.2 or
ARMv8; it gives up the GIL above 32 KiB). What is ours is the CRC of many 8-byte lengths at once: a call per header
would cost as much as the checksum of a small record.
"""

from __future__ import annotations

import numpy as np
from crc32c import crc32c as _crc32c
from numpy.typing import NDArray

__all__ = ["Buffer", "crc32c", "mask", "masked_crc32c", "masked_crc32c_of_lengths", "unmask"]

Buffer = bytes | bytearray | memoryview

_DELTA = 0xA282EAD8

# The C function itself: a wrapper of ours would cost half as much again for a small record.
crc32c = _crc32c
"""``crc32c(data, value=0) -> int``: the plain CRC-32C of ``data``, carried on from ``value``."""


def mask(crc: int) -> int:
    """A plain CRC as TFRecord files store it."""
    return (((crc >> 15) | (crc << 17)) + _DELTA) & 0xFFFFFFFF


def unmask(masked: int) -> int:
    """The plain CRC back from a stored one."""
    rotated = (masked - _DELTA) & 0xFFFFFFFF
    return ((rotated >> 17) | (rotated << 15)) & 0xFFFFFFFF


def masked_crc32c(data: Buffer) -> int:
    """What stands after ``data`` in a TFRecord file."""
    crc: int = _crc32c(data)
    return (((crc >> 15) | (crc << 17)) + _DELTA) & 0xFFFFFFFF


def mask_all(crcs: NDArray[np.uint32]) -> NDArray[np.uint32]:
    """`mask` of each; NumPy's uint32 wraps around as the format wants."""
    return ((crcs >> np.uint32(15)) | (crcs << np.uint32(17))) + np.uint32(_DELTA)


def masked_crc32c_of_lengths(lengths: NDArray[np.uint64]) -> NDArray[np.uint32]:
    """The header checksum of each length: `masked_crc32c` of its 8 little-endian bytes.

    CRC is affine: the CRC of 8 bytes is that of 8 zeros, xored with a term for each byte that depends on its value and
    place alone. High bytes that are zero in all lengths have no term, so records below 256 bytes cost one look-up.
    """
    if not lengths.size:
        return np.empty(0, np.uint32)
    crcs = _TERMS[0].take(lengths & np.uint64(0xFF))
    for place in range(1, (int(lengths.max()).bit_length() + 7) // 8):
        crcs ^= _TERMS[place].take((lengths >> np.uint64(8 * place)) & np.uint64(0xFF))
    return mask_all(crcs)


def _terms() -> NDArray[np.uint32]:
    """Row ``place``, column ``value``: what a byte at that place adds; the CRC of 8 zeros is folded into row 0."""
    zeros: int = _crc32c(bytes(8))
    terms = np.zeros((8, 256), np.uint32)
    for place in range(8):
        for bit in range(8):
            term: int = _crc32c((1 << (8 * place + bit)).to_bytes(8, "little")) ^ zeros
            terms[place, 1 << bit : 2 << bit] = terms[place, : 1 << bit] ^ np.uint32(term)
    terms[0] ^= np.uint32(zeros)
    return terms


_TERMS = _terms()
