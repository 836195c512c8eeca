"""The writing half of `asyncrec._framing.frames`: encode records as frames, and find the frames' borders.

The encoder is in C if the package was built with a compiler (`asyncrec/_native/frames.c`); otherwise, it uses NumPy.
Both return equal buffers.
"""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct
from typing import TYPE_CHECKING

from asyncrec._framing.crc import Buffer, crc32c, mask_all, masked_crc32c, masked_crc32c_of_lengths
from asyncrec._native import native
from asyncrec._numpy import np

if TYPE_CHECKING:
    from numpy.typing import NDArray

HEADER_BYTES = 12
FOOTER_BYTES = 4
FRAME_OVERHEAD = HEADER_BYTES + FOOTER_BYTES

# For records of this size or more, adding a buffer to a vectored write is cheaper than copying the record into a run.
_HANDED_ON = 64 * 1024
# Below this many records, NumPy's fixed cost (about 20 us) outweighs the time it saves.
_FEW = 32

_LENGTH = Struct("<Q")
_HEADER = Struct("<QI")
_CRC = Struct("<I")
_GAP = bytearray(FRAME_OVERHEAD)


def encode_frames(records: Sequence[bytes]) -> list[Buffer]:
    """Return the frames of ``records``, in order, as buffers to be written one after the other.

    Adjacent small records are copied once, into one buffer. A record of 64 KiB or more is returned as the object
    itself, and the 16 bytes of footer and header between two large records as a separate buffer. The memory used is
    therefore limited by the size of the records passed. If ``records`` is empty, the result is empty.
    """
    if native is not None:
        return native.encode_frames(records, _HANDED_ON)
    return encode_frames_in_python(records)


def encode_frames_in_python(records: Sequence[bytes]) -> list[Buffer]:
    """Return the same as `encode_frames`, without the C extension."""
    if len(records) < _FEW:
        return _encode_few(records)
    lengths = np.fromiter(map(len, records), np.int64, len(records))
    glue_type = np.dtype([("footer", "<u4"), ("length", "<u8"), ("crc", "<u4")])
    glue = np.empty(len(records) + 1, glue_type)
    glue["length"][:-1] = lengths
    glue["crc"][:-1] = masked_crc32c_of_lengths(lengths.view(np.uint64))
    glue["footer"][1:] = mask_all(np.fromiter(map(crc32c, records), np.uint32, len(records)))

    large = np.flatnonzero(lengths >= _HANDED_ON).tolist()
    joined: list[bytes] = [b"", *records, b""]
    for index in large:
        joined[index + 1] = b""
        lengths[index] = 0
    # There is a gap before each record and after the last. Gap i has the footer of record i - 1 and the header of i.
    frames = _GAP.join(joined)
    gaps = np.zeros(len(records) + 1, np.int64)
    np.cumsum(lengths + FRAME_OVERHEAD, out=gaps[1:])
    every_16_bytes = np.ndarray((len(frames) - FRAME_OVERHEAD + 1,), glue_type, frames, strides=(1,))
    every_16_bytes[gaps] = glue

    # The first gap has no footer, and the last gap has no header.
    view = memoryview(frames)
    begin, end = FOOTER_BYTES, len(frames) - HEADER_BYTES
    buffers: list[Buffer] = []
    for index in large:
        cut = int(gaps[index]) + FRAME_OVERHEAD
        buffers += (view[begin:cut], records[index])
        begin = cut
    buffers.append(view[begin:end])
    return buffers


def _encode_few(records: Sequence[bytes]) -> list[Buffer]:
    buffers: list[Buffer] = []
    run: list[bytes] = []
    for record in records:
        size = len(record)
        run.append(_HEADER.pack(size, masked_crc32c(_LENGTH.pack(size))))
        if size < _HANDED_ON:
            run.append(record)
        else:
            buffers += (b"".join(run), record)
            run = []
        run.append(_CRC.pack(masked_crc32c(record)))
    if run:
        buffers.append(b"".join(run))
    return buffers


def frame_borders(records: list[bytes], position: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the records' lengths, and the ``len(records) + 1`` borders of their frames.

    The first frame begins at ``position``.
    """
    lengths = np.fromiter(map(len, records), np.int64, len(records))
    borders = np.empty(len(records) + 1, np.int64)
    borders[0] = position
    np.cumsum(lengths + FRAME_OVERHEAD, out=borders[1:])
    borders[1:] += position
    return lengths, borders


def data_holds(data: Buffer, records: list[bytes], borders: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Return, for each frame in ``data``, whether the frame's data matches its checksum.

    ``borders`` are the offsets at which the frames begin and end.
    """
    words = np.ndarray((len(data) - 3,), "<u4", data, strides=(1,))  # the four bytes at each position
    holds: NDArray[np.bool_] = (
        mask_all(np.fromiter(map(crc32c, records), np.uint32, len(records))) == words[borders[1:] - FOOTER_BYTES]
    )
    return holds
