"""`DigestTables` finds the number that was stored for a digest. It keeps 24 bytes per digest in temporary files.

Each table is sorted, and written only once. A large table is stored in an unnamed file that is mapped into memory, so
it takes memory only for the pages that are read. Tables are merged, so that a look-up searches only a few of them. A
file of the data set itself is never mapped, because reading it would kill this process if another process truncated the
file.
"""

from __future__ import annotations

import mmap
import os
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

from asyncrec._numpy import np
from asyncrec.storage._base import Buffer
from asyncrec.storage._local.disk import mapped_errors

if TYPE_CHECKING:
    from numpy.typing import NDArray

# A table with at most this many rows is kept in memory: 1.5 MiB.
_SMALL = 1 << 16
# A table is not merged as long as it has at least this many times as many digests as all newer tables together.
_RATIO = 4
# Tables are merged in this many parts, which are split by the first bits of the digests. Only one part is in memory at
# a time.
_PARTS = 256


class Rows(NamedTuple):
    """Digests, each stored as two halves of 64 bits, and the number that belongs to each digest."""

    first: NDArray[np.uint64]
    last: NDArray[np.uint64]
    value: NDArray[np.uint64]

    @classmethod
    def of(cls, digests: NDArray[np.uint64], value: NDArray[np.uint64]) -> Rows:
        """Create sorted rows from digests and their numbers. Leave out digests that are all zeros."""
        order = np.argsort(digests[:, 0], kind="stable")
        order = order[digests[order].any(axis=1)]
        return cls(digests[order, 0], digests[order, 1], value[order])

    @classmethod
    def joined(cls, parts: Iterable[Rows]) -> Rows:
        """Merge several sets of rows into one sorted set."""
        none = [np.empty(0, np.uint64)] * 3
        first, last, value = (np.concatenate(columns) for columns in zip(none, *parts, strict=True))
        order = np.argsort(first, kind="stable")
        return cls(first[order], last[order], value[order])

    def part(self, begin: int, end: int) -> Rows:
        """Return the rows ``[begin, end)``."""
        return Rows(self.first[begin:end], self.last[begin:end], self.value[begin:end])


class TableMaker:
    """A builder of one table from sorted rows, which arrive in chunks. Its methods block."""

    def __init__(self, most: int) -> None:
        """``most`` is the maximum number of rows."""
        self._count = 0
        self._most = most
        self._held: list[Rows] = []
        self._file = temporary_file() if most > _SMALL else -1

    def add(self, rows: Rows) -> None:
        """Append the next rows.

        Raises:
            StorageError: the disk is full or fails.
        """
        if self._file < 0:
            self._held.append(rows)
        else:
            with mapped_errors("writing", tempfile.gettempdir()):
                for number, column in enumerate(rows):
                    write_at(self._file, np.ascontiguousarray(column).data, 8 * (number * self._most + self._count))
        self._count += len(rows.first)

    def end(self) -> Rows:
        """Return the table."""
        if self._file < 0 or not self._count:
            return Rows.joined(self._held)
        mapped = mmap.mmap(self._file, 8 * (2 * self._most + self._count), access=mmap.ACCESS_READ)
        columns = (np.frombuffer(mapped, np.uint64, self._count, 8 * number * self._most) for number in range(3))
        return Rows(*columns)

    def close(self) -> None:
        """Close the file. The table that maps it remains usable."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1


class DigestTables:
    """A list of tables, the oldest first. Its methods block. Several threads may call `find` while one adds tables."""

    def __init__(self) -> None:
        self._tables: tuple[Rows, ...] = ()

    def __len__(self) -> int:
        return sum(len(table.first) for table in self._tables)

    def append(self, table: Rows) -> None:
        """Add a table without merging."""
        self._tables = (*self._tables, table)

    def add(self, table: Rows) -> None:
        """Add a table, and merge it with older tables that are not much larger."""
        keep, merged, count = list(self._tables), [table], len(table.first)
        while keep and len(keep[-1].first) < _RATIO * count:
            merged.append(keep.pop())
            count += len(merged[-1].first)
        self._tables = (*keep, _merged(merged, count))

    def find(self, digests: Sequence[bytes]) -> list[int | None]:
        """Return the number for each digest, or `None` for each digest that is not known."""
        wanted = np.frombuffer(b"".join(digests), np.uint64).reshape(-1, 2)
        found = np.zeros(len(wanted), np.uint64)
        left = np.argsort(wanted[:, 0])  # neighbouring digests are looked up one after another
        for table in reversed(self._tables):
            left = _find_in(table, wanted, left, found)
        absent = set(left.tolist())
        return [None if number in absent else value for number, value in enumerate(found.tolist())]


def _find_in(
    table: Rows, wanted: NDArray[np.uint64], left: NDArray[np.int64], found: NDArray[np.uint64]
) -> NDArray[np.int64]:
    """Look up the digests ``wanted[left]`` in a table, and store the numbers in ``found``.

    Return the indexes in ``wanted`` of the digests that are not in the table.
    """
    at = table.first.searchsorted(wanted[left, 0])
    places, absent = left, [left[:0]]
    while len(places):  # this runs once, unless two digests share their first half
        inside = at < len(table.first)
        absent.append(places[~inside])
        at, places = at[inside], places[inside]
        alike = table.first[at] == wanted[places, 0]
        absent.append(places[~alike])
        at, places = at[alike], places[alike]
        same = table.last[at] == wanted[places, 1]
        found[places[same]] = table.value[at[same]]
        at, places = at[~same] + 1, places[~same]
    return np.concatenate(absent)


def temporary_file() -> int:
    """Open a temporary file without a name, which is deleted when it is closed. Blocks."""
    with mapped_errors("writing", tempfile.gettempdir()), tempfile.TemporaryFile(prefix="asyncrec-seen-") as file:
        return os.dup(file.fileno())


def write_at(file: int, data: Buffer, at: int) -> None:
    """Write all of ``data`` at the offset ``at``. Blocks."""
    view = memoryview(data).cast("B")
    while len(view):
        written = os.pwrite(file, view, at)
        view, at = view[written:], at + written


def _merged(tables: Sequence[Rows], count: int) -> Rows:
    maker = TableMaker(count)
    try:
        for rows in _parts(tables):
            maker.add(rows)
        return maker.end()
    finally:
        maker.close()


def _parts(tables: Sequence[Rows]) -> Iterator[Rows]:
    """Yield the rows of all tables together, in order, in chunks."""
    bounds = (np.arange(1, _PARTS, dtype=np.uint64) << np.uint64(56)).astype(np.uint64)
    cuts = [[0, *table.first.searchsorted(bounds).tolist(), len(table.first)] for table in tables]
    for number in range(_PARTS):
        yield Rows.joined(table.part(cut[number], cut[number + 1]) for table, cut in zip(tables, cuts, strict=True))
