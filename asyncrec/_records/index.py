"""The index of a file lists the offset of each record, as text that NVIDIA DALI and the ``tfrecord`` package read.

There is one line per record, ``"{offset} {size}\\n"``. ``size`` is the size of the entire frame, which is the payload
plus 16 bytes. For GZIP, a third column contains the compressed offset of the member in which the record begins, and
``offset`` counts that member's decompressed bytes. A reader seeks to the member, and skips to the record.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain, pairwise
from typing import TYPE_CHECKING

from asyncrec._framing.frames import FRAME_OVERHEAD
from asyncrec._native import native
from asyncrec._numpy import np
from asyncrec._records.index_columns import Column, FrameSizes, Members, Offsets, Sums
from asyncrec.errors import FormatError

if TYPE_CHECKING:
    from asyncrec._records.index_columns import Numbers, Sizes

_WIDTHS = {2: "<i2", 4: "<i4", 8: "<i8"}


class RecordIndex:
    """The index of one file of n records.

    Attributes:
        offsets: the offset of each frame, in the file or in the decompressed bytes of its member; like int64 (n,), but
            computed on demand.
        sizes: the size of each frame, payload plus 16; like int64 (n,), but stored in fewer bytes if possible.
        members: the compressed offset of each record's member, like int64 (n,); `None` for an uncompressed or empty
            file.
        runs: for each run of adjacent records, the number of the first record, that record's offset, and the compressed
            offset of its member (-1 in an uncompressed file); int64 (3, m).
    """

    __slots__ = ("_sums", "members", "offsets", "runs", "sizes")

    def __init__(self, sizes: Sizes, runs: Numbers) -> None:
        self.runs = runs
        self._sums = sums = Sums(sizes)
        self.offsets: Column = Offsets(runs, sums)
        self.sizes: Column = FrameSizes(runs, sums)
        self.members: Column | None = Members(runs, sums) if len(sizes) and runs.item(2, 0) >= 0 else None

    def __len__(self) -> int:
        return len(self._sums.sizes)

    @property
    def nbytes(self) -> int:
        """The size of the index in memory, in bytes."""
        return self._sums.nbytes + self.runs.nbytes

    def beginning(self, record: int) -> tuple[int, int]:
        """Return the stored offset from which to read a record, and the number of records to skip from there."""
        if self.members is None:
            return self.offsets.item(record), 0
        member = self.members.item(record)
        return member, record - self.runs.item(0, int(self.runs[2].searchsorted(member)))

    @classmethod
    def of_sizes(cls, sizes: Numbers, members: Sequence[tuple[int, int]] | None = None) -> RecordIndex:
        """Return the index of adjacent records, from the sizes of their frames.

        Args:
            members: for a compressed file, the stored and the decompressed offset of each member, ascending.
        """
        kept = _narrow(sizes)
        if members is None or not len(sizes):
            return cls(kept, np.array([[0], [0], [-1]], np.int64)[:, : len(sizes)])
        stored, begins = (np.array(column, np.int64) for column in zip(*members, strict=True))
        offsets = np.cumsum(sizes) - sizes
        # The first record that begins in each member, except for members in which no record begins.
        firsts = np.searchsorted(offsets, begins)
        holds = np.diff(firsts, append=len(sizes)) > 0
        firsts, stored, begins = firsts[holds], stored[holds], begins[holds]
        return cls(kept, np.stack([firsts, offsets[firsts] - begins, stored]))

    def as_one_member(self) -> RecordIndex:
        """Return the same index for a file of one member that begins at 0, such as a ZLIB file."""
        runs = self.runs.copy()
        runs[2] = 0
        return RecordIndex(self._sums.sizes, runs)

    def encode(self) -> bytes:
        """Return the text of the index."""
        firsts, offsets, members = self.runs.tolist()
        return b"".join(
            encode_index(
                offset,
                (self._sums.sizes[begin:end].astype(np.int64) - FRAME_OVERHEAD).tobytes(),
                member=None if member < 0 else member,
            )
            for (begin, end), offset, member in zip(pairwise([*firsts, len(self)]), offsets, members, strict=True)
        )


def _narrow(sizes: Numbers) -> Sizes:
    """Return the sizes in the smallest integer type that can hold them."""
    largest = int(sizes.max()) if len(sizes) else 0
    kind = next(kind for kind in (np.int16, np.int32, np.int64) if largest <= np.iinfo(kind).max)
    return sizes.astype(kind)


def encode_index(start: int, lengths: bytes, *, member: int | None = None) -> bytes:
    """Return the index lines of adjacent records, the first of which is at the offset ``start``.

    ``lengths`` are the lengths of the payloads, from `asyncrec._records.record_size.pack_lengths`.
    """
    if native is not None:
        return native.encode_index(start, lengths, -1 if member is None else member)
    return encode_index_in_python(start, lengths, member=member)


def encode_index_in_python(start: int, lengths: bytes, *, member: int | None = None) -> bytes:
    """Return the same as `encode_index`, computed in Python."""
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
    """Parse an index written by asyncrec, DALI or ``tfrecord2idx``.

    Raises:
        FormatError: a line does not have two or three numbers, or a number is out of range.
    """
    found = None if native is None else native.parse_index(text)
    if found is None:  # damaged, or written by another tool
        return parse_index_in_python(text)
    width, sizes, runs = found
    return RecordIndex(np.frombuffer(sizes, _WIDTHS[width]), np.frombuffer(runs, np.int64).reshape(3, -1))


def parse_index_in_python(text: bytes) -> RecordIndex:
    """Return the same as `parse_index`, computed in Python, for any text."""
    newline = text.find(b"\n")
    columns = len(text[:newline].split(maxsplit=3)) if newline >= 0 else 0
    if not text:
        return RecordIndex.of_sizes(np.empty(0, np.int64))
    if columns not in (2, 3) or not text.endswith(b"\n"):
        raise FormatError("not a valid index: each line must have two or three numbers and end in a newline")
    try:
        numbers = _numbers(text)
    except (ValueError, OverflowError) as error:
        raise FormatError("not a valid index: it contains characters other than digits") from error
    if len(numbers) != columns * text.count(b"\n"):
        raise FormatError(f"not a valid index: some lines do not have {columns} numbers")
    table = numbers.reshape(-1, columns)
    if (table < 0).any() or (table[:, 1] < FRAME_OVERHEAD).any():
        raise FormatError(
            f"not a valid index: it contains a negative number, or a frame shorter than {FRAME_OVERHEAD} bytes"
        )
    begins = np.ones(len(table), np.bool_)  # whether a run begins
    begins[1:] = table[1:, 0] != table[:-1, 0] + table[:-1, 1]
    if columns == 3:
        begins[1:] |= table[1:, 2] != table[:-1, 2]
    firsts = np.flatnonzero(begins)
    members = table[firsts, 2] if columns == 3 else np.full(len(firsts), -1)
    return RecordIndex(_narrow(table[:, 1]), np.stack([firsts, table[firsts, 0], members]))


def _numbers(text: bytes) -> Numbers:
    """Return the numbers in ``text``. Raise ValueError or OverflowError if one of them is not a 64-bit integer."""
    characters = np.frombuffer(text, np.uint8)
    # Only digits and separators (spaces, tabs and line ends) are allowed.
    if not ((characters - np.uint8(48) < 10) | (characters == 32) | (characters - np.uint8(9) < 5)).all():
        raise ValueError("the index contains characters other than digits")
    # Splitting the text would use twenty times as much memory as the numbers.
    numbers = np.fromstring(text.decode("ascii"), dtype=np.int64, sep=" ")
    if (numbers == np.iinfo(np.int64).max).any():  # NumPy turns a larger number into this maximum
        raise OverflowError("the index contains a number of more than 64 bits")
    return numbers


def _lines(columns: Sequence[Numbers]) -> bytes:
    # One %-format of all lines takes a fifth of the time of formatting line by line.
    count = len(columns[0])
    template = " ".join(["%d"] * len(columns)) + "\n"
    numbers = chain.from_iterable(zip(*(column.tolist() for column in columns), strict=True))
    return (template * count % tuple(numbers)).encode("ascii")
