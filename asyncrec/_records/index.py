"""Where each record of a file begins: the text that NVIDIA DALI and the ``tfrecord`` package read.

One line per record, ``"{offset} {size}\\n"``; ``size`` is the whole frame's, so payload plus 16. For GZIP there is a
third column, the compressed byte at which the member holding the record's beginning begins, and ``offset`` counts
within that member's decompressed output: a reader seeks to the member, and skips.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain, pairwise
from typing import TYPE_CHECKING

from asyncrec._framing.frames import FRAME_OVERHEAD
from asyncrec._native import native
from asyncrec._numpy import np
from asyncrec.errors import FormatError

if TYPE_CHECKING:
    from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class RecordIndex:
    """The index of one file of n records: where each of them begins.

    Attributes:
        offsets: int64 (n,): the offset of each frame, in the file or within the output of its member.
        sizes: int64 (n,): the size of each frame, the data plus 16 bytes.
        members: int64 (n,): the compressed byte at which each record's member begins; `None` for an uncompressed file.
    """

    offsets: NDArray[np.int64]
    sizes: NDArray[np.int64]
    members: NDArray[np.int64] | None

    def __len__(self) -> int:
        return len(self.offsets)

    @classmethod
    def of_sizes(cls, sizes: NDArray[np.int64], members: Sequence[tuple[int, int]] | None = None) -> RecordIndex:
        """The index of records that follow each other, by the sizes of their frames.

        Args:
            members: for a compressed file, of each member the byte at which it begins, as stored and as decompressed,
                ascending.
        """
        offsets = np.cumsum(sizes) - sizes
        if members is None or not len(sizes):
            return cls(offsets, sizes, None if members is None else np.empty(0, np.int64))
        stored, begins = (np.array(column, np.int64) for column in zip(*members, strict=True))
        member = np.searchsorted(begins, offsets, side="right") - 1
        return cls(offsets - begins[member], sizes, stored[member])

    def encode(self) -> bytes:
        """The text of the index."""
        if not len(self):
            return b""
        # Runs of records that follow each other in one member; of a plain file there is but one.
        breaks = self.offsets[1:] != self.offsets[:-1] + self.sizes[:-1]
        if self.members is not None:
            breaks |= self.members[1:] != self.members[:-1]
        lengths = (self.sizes - FRAME_OVERHEAD).tobytes()
        borders = [0, *(np.flatnonzero(breaks) + 1).tolist(), len(self)]
        return b"".join(
            encode_index(
                int(self.offsets[begin]),
                lengths[8 * begin : 8 * end],
                member=None if self.members is None else int(self.members[begin]),
            )
            for begin, end in pairwise(borders)
        )


def encode_index(start: int, lengths: bytes, *, member: int | None = None) -> bytes:
    """Make the lines of records that begin at ``start``, one after another.

    ``lengths`` are those of the payloads, as `asyncrec._records.record_size.pack_lengths` writes them.
    """
    if native is not None:
        return native.encode_index(start, lengths, -1 if member is None else member)
    return encode_index_in_python(start, lengths, member=member)


def encode_index_in_python(start: int, lengths: bytes, *, member: int | None = None) -> bytes:
    """Do what `encode_index` does, where there is no compiler."""
    if not lengths:
        return b""
    sizes = np.frombuffer(lengths, dtype=np.int64) + FRAME_OVERHEAD
    offsets = np.empty(len(sizes), dtype=np.int64)
    offsets[0] = start
    np.cumsum(sizes[:-1], out=offsets[1:])
    offsets[1:] += start
    if member is None:
        return _lines([offsets, sizes])
    return _lines([offsets, sizes, np.full(len(sizes), member, dtype=np.int64)])


def parse_index(text: bytes) -> RecordIndex:
    """Read an index: ours, DALI's or that of ``tfrecord2idx``.

    Raises:
        FormatError: it has lines of other than two or three numbers, or numbers that cannot be.
    """
    newline = text.find(b"\n")
    columns = len(text[:newline].split(maxsplit=3)) if newline >= 0 else 0
    if not text:
        return RecordIndex(np.empty(0, np.int64), np.empty(0, np.int64), None)
    if columns not in (2, 3) or not text.endswith(b"\n"):
        raise FormatError("not an index: each line has two numbers, or three, and ends")
    try:
        numbers = _numbers(text)
    except (ValueError, OverflowError) as error:
        raise FormatError("not an index: it holds something other than numbers") from error
    if len(numbers) != columns * text.count(b"\n"):
        raise FormatError(f"not an index: not every line has {columns} numbers")
    table = numbers.reshape(-1, columns)
    if (table < 0).any() or (table[:, 1] < FRAME_OVERHEAD).any():
        raise FormatError(f"not an index: a negative number, or a frame of fewer than {FRAME_OVERHEAD} bytes")
    members = np.ascontiguousarray(table[:, 2]) if columns == 3 else None
    return RecordIndex(np.ascontiguousarray(table[:, 0]), np.ascontiguousarray(table[:, 1]), members)


def _numbers(text: bytes) -> NDArray[np.int64]:
    """Read the numbers in a text. Raises ValueError or OverflowError for what is not a number of 64 bits."""
    characters = np.frombuffer(text, np.uint8)
    # Digits, and what stands between numbers: spaces, tabs, and the ends of lines.
    if not ((characters - np.uint8(48) < 10) | (characters == 32) | (characters - np.uint8(9) < 5)).all():
        raise ValueError("something other than digits")
    # Split into texts, each number would take twenty times what it weighs.
    numbers = np.fromstring(text.decode("ascii"), dtype=np.int64, sep=" ")
    if (numbers == np.iinfo(np.int64).max).any():  # what is too large for it becomes the largest there is
        raise OverflowError("a number of more than 64 bits")
    return numbers


def _lines(columns: Sequence[NDArray[np.int64]]) -> bytes:
    # One %-format over everything: a fifth of the time of formatting line by line.
    count = len(columns[0])
    template = " ".join(["%d"] * len(columns)) + "\n"
    numbers = chain.from_iterable(zip(*(column.tolist() for column in columns), strict=True))
    return (template * count % tuple(numbers)).encode("ascii")
