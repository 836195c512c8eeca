"""`FrameMeter` decodes only the lengths of the records in a TFRecord byte stream."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from asyncrec._framing.frames import FrameDecoder
from asyncrec._native import native
from asyncrec._numpy import np

if TYPE_CHECKING:
    from numpy.typing import NDArray


class FrameMeter(FrameDecoder):
    """A decoder like `FrameDecoder` that returns only the lengths of records, with `measure` in place of `feed`.

    The C code creates no record objects and releases the GIL, so several streams can be measured in parallel.
    """

    _before: list[NDArray[np.int64]] = []  # noqa: RUF012  # replaced, never mutated

    def measure(self, data: bytes) -> NDArray[np.int64]:
        """Process the next bytes of the stream. Return the length of every record that is now complete.

        Raises:
            FormatError: as for `feed`.
        """
        self._before = []
        behind = self.feed(data)
        return np.concatenate([*self._before, _lengths(behind)])

    def _walk(self, data: bytes, position: int, records: list[bytes]) -> int:
        if native is not None:
            begin = position
            position, packed = native.measure_frames(
                data, position, min(self._max_record_bytes, sys.maxsize), self._verify
            )
            measured = np.frombuffer(packed, np.int64)
            self.offset += position - begin
            self.records += len(measured)
            self._before = [_lengths(records), measured]
            records.clear()
        # The first frame that the C code leaves unprocessed is incomplete or damaged.
        return super()._walk(data, position, records)


def _lengths(records: list[bytes]) -> NDArray[np.int64]:
    return np.fromiter(map(len, records), np.int64, len(records))
