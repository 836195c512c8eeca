"""The checksum of a TFRecord file: CRC-32C (Castagnoli), masked.

Masking rotates a CRC right by 15 bits and adds a constant, because the CRC of data that contains plain CRCs would be
problematic (TensorFlow, ``core/lib/hash/crc32c.h``). The CRC of a single buffer is computed with SSE 4.2 or ARMv8
instructions by asyncrec's C module or, if it was not built, by the package ``crc32c``. Both release the GIL for long
buffers. NumPy computes the CRCs of many 8-byte lengths at once, because a call per header would take as long as the
checksum of a small record. Two functions are for salvage: `length_of` inverts a header's checksum, and `crcs_between`
derives the CRC of a range from a running CRC at its two ends, so that overlapping ranges are checked in one pass.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from asyncrec._native import native
from asyncrec._numpy import np

if TYPE_CHECKING:
    from numpy.typing import NDArray

Buffer = bytes | bytearray | memoryview

_DELTA = 0xA282EAD8
_POLYNOMIAL = 0x82F63B78  # the Castagnoli polynomial, bits reversed
_PLACES = 5  # the number of length bytes for which `crcs_between` has tables

# This is the C function itself. For a small record, a Python wrapper would add half the time of the call.
if native is None:
    from crc32c import crc32c as crc32c
else:
    crc32c = native.crc32c  # type: ignore[assignment]  # the package's function has one more parameter
"""``crc32c(data, value=0) -> int``: the plain CRC-32C of ``data``, continued from ``value``."""


def mask(crc: int) -> int:
    """Mask a plain CRC, as stored in TFRecord files."""
    return (((crc >> 15) | (crc << 17)) + _DELTA) & 0xFFFFFFFF


def unmask(masked: int) -> int:
    """Return the plain CRC of a masked CRC."""
    rotated = (masked - _DELTA) & 0xFFFFFFFF
    return ((rotated >> 17) | (rotated << 15)) & 0xFFFFFFFF


def masked_crc32c(data: Buffer) -> int:
    """Return the checksum that follows ``data`` in a TFRecord file."""
    crc: int = crc32c(data)
    return (((crc >> 15) | (crc << 17)) + _DELTA) & 0xFFFFFFFF


def mask_all(crcs: NDArray[np.uint32]) -> NDArray[np.uint32]:
    """Mask many CRCs. NumPy's uint32 wraps around, as the format requires."""
    return ((crcs >> np.uint32(15)) | (crcs << np.uint32(17))) + np.uint32(_DELTA)


def masked_crc32c_of_lengths(lengths: NDArray[np.uint64]) -> NDArray[np.uint32]:
    """Compute the header checksum of each length: `masked_crc32c` of its 8 little-endian bytes.

    CRC is affine: the CRC of 8 bytes is the CRC of 8 zeros, xored with a term for each byte that depends only on its
    value and place. High bytes that are zero in all lengths have no term, so records below 256 bytes need one look-up.
    """
    if not lengths.size:
        return np.empty(0, np.uint32)
    terms = _terms()
    crcs = terms[0].take(lengths & np.uint64(0xFF))
    for place in range(1, (int(lengths.max()).bit_length() + 7) // 8):
        crcs ^= terms[place].take((lengths >> np.uint64(8 * place)) & np.uint64(0xFF))
    return mask_all(crcs)


def length_of(masked: int) -> int:
    """Return the only length below 4 GiB that has this header checksum.

    A 32-bit CRC of 32 unknown bits is one-to-one. The register is run backwards over 8 zero bytes, which yields its
    initial value xored with the length.
    """
    forth, back = _steps()
    register = unmask(masked) ^ 0xFFFFFFFF
    for _ in range(8):
        index = back[register >> 24]
        register = ((register ^ forth[index]) << 8 & 0xFFFFFFFF) | index
    return register ^ 0xFFFFFFFF


def crcs_between(
    before: NDArray[np.uint32], after: NDArray[np.uint32], lengths: NDArray[np.int64]
) -> NDArray[np.uint32]:
    """Compute the CRC of each range from the running CRC before and after it. ``lengths`` are in bytes, below 1 TiB.

    This is zlib's ``crc32_combine`` solved for the second part. The first CRC is advanced over as many zero bytes as
    the range is long, which means multiplying it by x ** (8 * length) modulo the polynomial.
    """
    carried = before
    for place in range(_PLACES):
        digits = (lengths >> (8 * place)) & 0xFF
        if digits.any():
            carried = _multiply(carried, _powers()[place].take(digits))
    return carried ^ after


def _multiply(a: NDArray[np.uint32], b: NDArray[np.uint32]) -> NDArray[np.uint32]:
    """Multiply over GF(2), modulo the Castagnoli polynomial. The highest bit is the coefficient of x ** 0."""
    product = np.zeros_like(b)
    for bit in range(31, -1, -1):
        product ^= b * ((a >> np.uint32(bit)) & np.uint32(1))
        b = (b >> np.uint32(1)) ^ ((b & np.uint32(1)) * np.uint32(_POLYNOMIAL))
    return product


@cache  # takes milliseconds; only readers of damaged files need it
def _powers() -> NDArray[np.uint32]:
    """Return a table whose row ``place``, column ``digit`` is x ** (8 * digit * 256 ** place)."""
    powers = np.empty((_PLACES, 256), np.uint32)
    base = np.array([1 << 23], np.uint32)  # x ** 8
    for place in range(_PLACES):
        powers[place, 0] = 1 << 31
        for bit in range(8):
            known = 1 << bit
            powers[place, known : 2 * known] = _multiply(powers[place, :known], np.repeat(base, known))
            base = _multiply(base, base)
    return powers


@cache
def _steps() -> tuple[list[int], list[int]]:
    """Return two tables for one step of the CRC register.

    The first gives the change of the register for each value of its lowest byte. The second gives that lowest byte for
    each value of the change's highest byte.
    """
    forth = []
    for index in range(256):
        register = index
        for _ in range(8):
            register = register >> 1 ^ (_POLYNOMIAL if register & 1 else 0)
        forth.append(register)
    back = [0] * 256
    for index, register in enumerate(forth):
        back[register >> 24] = index
    return forth, back


@cache
def _terms() -> NDArray[np.uint32]:
    """Return the terms for `masked_crc32c_of_lengths`, by the byte's place (row) and value (column).

    Row 0 also includes the CRC of 8 zero bytes.
    """
    zeros: int = crc32c(bytes(8))
    terms = np.zeros((8, 256), np.uint32)
    for place in range(8):
        for bit in range(8):
            term: int = crc32c((1 << (8 * place + bit)).to_bytes(8, "little")) ^ zeros
            terms[place, 1 << bit : 2 << bit] = terms[place, : 1 << bit] ^ np.uint32(term)
    terms[0] ^= np.uint32(zeros)
    return terms
