"""Find the borders of the frames in one block, and check their data, for many frames at once."""

from __future__ import annotations

from typing import TYPE_CHECKING

from asyncrec._framing.crc import Buffer, crc32c, mask_all
from asyncrec._framing.encoding import FOOTER_BYTES, FRAME_OVERHEAD
from asyncrec._numpy import np

if TYPE_CHECKING:
    from numpy.typing import NDArray


def frame_borders(records: list[bytes], position: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the records' lengths, and the ``len(records) + 1`` borders of their frames, the first at ``position``."""
    lengths = np.fromiter(map(len, records), np.int64, len(records))
    borders = np.empty(len(records) + 1, np.int64)
    borders[0] = position
    np.cumsum(lengths + FRAME_OVERHEAD, out=borders[1:])
    borders[1:] += position
    return lengths, borders


def data_holds(data: Buffer, records: list[bytes], borders: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Return, for each of these frames in ``data``, whether its data matches its checksum."""
    words = np.ndarray((len(data) - 3,), "<u4", data, strides=(1,))  # the four bytes from each position on
    holds: NDArray[np.bool_] = (
        mask_all(np.fromiter(map(crc32c, records), np.uint32, len(records))) == words[borders[1:] - FOOTER_BYTES]
    )
    return holds
