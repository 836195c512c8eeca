"""`TextColumn`: many short texts in one array of UTF-8 bytes, each followed by a NUL.

A path takes about 50 bytes in a column, but about 150 as a Python string, which matters if there are a million paths.
No text contains a NUL, because paths in a manifest must not. Operations on an entire column work in steps or use NumPy,
so that other threads can run.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from asyncrec._numpy import np

if TYPE_CHECKING:
    from numpy.typing import NDArray


class TextColumn(Sequence[str]):
    """An immutable sequence of texts."""

    __slots__ = ("_bytes", "_starts")  # `_starts` has the offset of each text, then the total length

    def __init__(self, content: NDArray[np.uint8], starts: NDArray[np.int64]) -> None:
        """``content`` is the texts, each followed by a NUL; ``starts`` is each text's offset, then the total length."""
        self._bytes = content
        self._starts = starts

    @classmethod
    def of(cls, texts: Iterable[str]) -> TextColumn:
        """Create a column from texts."""
        return cls.decode(b"".join([text.encode() + b"\0" for text in texts]))

    @classmethod
    def decode(cls, content: bytes) -> TextColumn:
        """Create a column from concatenated texts, each followed by a NUL."""
        array = np.frombuffer(content, np.uint8)
        ends = np.flatnonzero(array == 0)
        return cls(array, np.concatenate([np.zeros(1, np.int64), ends + 1]))

    @classmethod
    def joined(cls, columns: Sequence[TextColumn]) -> TextColumn:
        """Concatenate columns."""
        if len(columns) == 1:
            return columns[0]
        content = np.empty(sum(each.size for each in columns), np.uint8)
        starts = np.zeros(sum(map(len, columns)) + 1, np.int64)
        at = row = 0
        for each in columns:
            each.write_to(content[at : at + each.size], starts[row : row + len(each) + 1], at)
            at += each.size
            row += len(each)
        return cls(content, starts)

    @property
    def size(self) -> int:
        """The total number of bytes, including the NUL after each text."""
        return len(self._bytes)

    def write_to(self, content: NDArray[np.uint8], starts: NDArray[np.int64], at: int) -> None:
        """Copy the texts into another column's arrays. ``at`` is the offset of ``content`` in that column."""
        content[:] = self._bytes
        starts[:] = self._starts + at

    def encode(self, start: int, stop: int) -> bytes:
        """Return the texts of rows ``[start, stop)`` in the format of `decode`."""
        return self._bytes[self._starts[start] : self._starts[stop]].tobytes()

    def __len__(self) -> int:
        return len(self._starts) - 1

    def __getitem__(self, row: int) -> str:  # type: ignore[override]  # slices are not supported
        return self.raw(row).decode()

    def raw(self, row: int) -> bytes:
        """Return one text as UTF-8, which sorts like the text itself."""
        return self._bytes[self._starts[row] : self._starts[row + 1] - 1].tobytes()

    def find(self, text: bytes, start: int = 0, side: str = "left") -> int:
        """Return the position of a text in a sorted column, or the position to insert it. Search from ``start`` on."""
        low, high = start, len(self)
        while low < high:
            middle = (low + high) // 2
            here = self.raw(middle)
            if here < text or (side == "right" and here == text):
                low = middle + 1
            else:
                high = middle
        return low

    def range_of(self, text: bytes) -> tuple[int, int]:
        """Return the range ``[low, high)`` of the rows that are equal to this text. The column must be sorted."""
        low = self.find(text)
        if low == len(self) or self.raw(low) != text:
            return low, low
        return low, self.find(text, low, "right")

    def take(self, rows: NDArray[np.int64]) -> TextColumn:
        """Return a new column with only these rows, in this order. Adjacent rows are copied together."""
        if not len(rows):
            return TextColumn.of(())
        lengths = np.diff(self._starts)[rows]
        starts = np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths)])
        content = np.empty(int(starts[-1]), np.uint8)
        begins = np.concatenate([np.zeros(1, np.int64), np.flatnonzero(np.diff(rows) != 1) + 1, [len(rows)]])
        for first, last in zip(begins[:-1].tolist(), begins[1:].tolist(), strict=True):
            low, high = self._starts[rows[first]], self._starts[rows[last - 1] + 1]
            content[starts[first] : starts[last]] = self._bytes[low:high]
        return TextColumn(content, starts)
