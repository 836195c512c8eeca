"""`FramedBatch` holds records that go from one file to another in the frames in which they stand."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from asyncrec._framing.frames import FRAME_OVERHEAD
from asyncrec._numpy import np
from asyncrec._records.writing.write_batch import KEY_BYTES, WriteBatch

if TYPE_CHECKING:
    from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class FramedBatch:
    """A number of records in their frames, which are whole and whose checksums were found to hold.

    Attributes:
        frames: one behind the other.
        lengths: of each record.
        keys: the digests of their keys, one behind the other, where they have keys.
    """

    frames: memoryview
    lengths: NDArray[np.int64]
    keys: bytes | None = None

    def __len__(self) -> int:
        return len(self.lengths)

    def fitting(self, size: int) -> int:
        """Count the first records whose frames take so many bytes at most."""
        return int(np.searchsorted(self._ends(), size, side="right"))

    def split(self, count: int) -> tuple[FramedBatch, FramedBatch]:
        """Cut behind so many records."""
        at = int(self._ends()[count - 1]) if count else 0
        keys = (None, None) if self.keys is None else (self.keys[: KEY_BYTES * count], self.keys[KEY_BYTES * count :])
        return (
            FramedBatch(self.frames[:at], self.lengths[:count], keys[0]),
            FramedBatch(self.frames[at:], self.lengths[count:], keys[1]),
        )

    def sealed(self) -> WriteBatch:
        """Make what is written of it."""
        return WriteBatch.of_frames(self.frames, count=len(self), lengths=self.lengths.tobytes(), digests=self.keys)

    def _ends(self) -> NDArray[np.int64]:
        ends: NDArray[np.int64] = np.cumsum(self.lengths + FRAME_OVERHEAD)
        return ends
