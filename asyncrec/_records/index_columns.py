"""`Column` computes the offsets, sizes or members of an index's records on demand.

Stored in full, they would use 16 or 24 bytes per record, and the indexes of a few million records would fill the memory
that a reader can spare. But records are adjacent, so an offset is the sum of the sizes before it. Therefore, an index
stores only the sizes, in as few bytes as the largest needs (2, 4 or 8), their sum before every 32nd record, and the
beginning of each *run* of adjacent records. An uncompressed file has one run, and a GZIP file has one per member. Most
files use 2.25 or 4.25 bytes per record, and computing an offset adds up at most 31 sizes.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, overload

from asyncrec._native import native
from asyncrec._numpy import np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Numbers = NDArray[np.int64]
    Sizes = NDArray[np.signedinteger[Any]]

# The number of records between two stored sums. The sums use a quarter of a byte per record.
_BLOCK = 32


class Column:
    """One value for each record of an index. It is indexed like a read-only array: ``column[numbers]``.

    `numpy.asarray` returns all values, int64 (n,).
    """

    __slots__ = ("_runs", "_sums")

    def __init__(self, runs: Numbers, sums: Sums) -> None:
        self._runs = runs
        self._sums = sums

    def __len__(self) -> int:
        return len(self._sums.sizes)

    def __iter__(self) -> Iterator[int]:
        return iter(self.tolist())

    @overload
    def __getitem__(self, key: slice | NDArray[Any]) -> Numbers: ...
    @overload
    def __getitem__(self, key: int) -> int: ...
    def __getitem__(self, key: int | slice | NDArray[Any]) -> int | Numbers:
        if isinstance(key, np.ndarray):
            return self._some(np.ascontiguousarray(np.flatnonzero(key) if key.dtype == bool else key, np.int64))
        if isinstance(key, slice):
            return self._some(np.arange(*key.indices(len(self)), dtype=np.int64))
        return self.item(range(len(self))[key])

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        return self._all().astype(dtype or np.int64, copy=False)

    def item(self, number: int) -> int:
        """Return the value of the record ``number``, which must exist."""
        raise NotImplementedError

    def tolist(self) -> list[int]:
        """Return the values of all records."""
        found: list[int] = self._all().tolist()
        return found

    def _some(self, numbers: Numbers) -> Numbers:
        raise NotImplementedError

    def _all(self) -> Numbers:
        raise NotImplementedError

    def _run(self, number: int) -> int:
        return bisect_right(self._runs[0], number) - 1 if self._runs.shape[1] > 1 else 0

    def _runs_of(self, numbers: Numbers) -> Numbers:
        runs: Numbers = self._runs[0].searchsorted(numbers, "right") - 1
        return runs

    def _of_runs(self, values: Numbers) -> Numbers:
        """Return the value of each record's run, from ``values`` for all runs."""
        return np.repeat(values, np.diff(self._runs[0], append=len(self)))


class Offsets(Column):
    __slots__ = ("_simple",)

    def __init__(self, runs: Numbers, sums: Sums) -> None:
        super().__init__(runs, sums)
        self._simple = runs.shape[1] == 1 and not runs.item(1, 0)

    def item(self, number: int) -> int:
        if self._simple:
            return self._sums.before(number)
        run = self._run(number)
        offset, first = self._runs.item(1, run), self._runs.item(0, run)
        return offset + self._sums.before(number) - (self._sums.before(first) if first else 0)

    def _some(self, numbers: Numbers) -> Numbers:
        sums = self._sums.before_each(numbers)
        firsts, offsets = self._runs[0], self._runs[1]
        if len(firsts) > 1:
            runs = self._runs_of(numbers)
            sums, offsets = sums - self._sums.before_each(firsts[runs]), offsets[runs]
        found: Numbers = sums + offsets
        return found

    def _all(self) -> Numbers:
        sums = np.cumsum(self._sums.sizes, dtype=np.int64) - self._sums.sizes
        found: Numbers = sums + self._of_runs(self._runs[1] - sums[self._runs[0]])
        return found


class FrameSizes(Column):
    __slots__ = ()

    def item(self, number: int) -> int:
        return self._sums.sizes.item(number)

    def _some(self, numbers: Numbers) -> Numbers:
        sizes: Numbers = self._sums.sizes[numbers].astype(np.int64)
        return sizes

    def _all(self) -> Numbers:
        sizes: Numbers = self._sums.sizes.astype(np.int64)
        return sizes


class Members(Column):
    __slots__ = ()

    def item(self, number: int) -> int:
        return self._runs.item(2, self._run(number))

    def _some(self, numbers: Numbers) -> Numbers:
        members: Numbers = self._runs[2][self._runs_of(numbers)]
        return members

    def _all(self) -> Numbers:
        return self._of_runs(self._runs[2])


class Sums:
    """The sum of the sizes before each record. Only one in `_BLOCK` sums is stored; the others are computed."""

    __slots__ = ("_items", "_kept", "_kept_items", "sizes")

    def __init__(self, sizes: Sizes) -> None:
        self.sizes = sizes
        # The sums are modulo 2**64. In a damaged index, the total may exceed this, but the offsets remain correct.
        blocks = np.add.reduceat(sizes, np.arange(0, len(sizes), _BLOCK), dtype=np.int64) if len(sizes) else sizes
        self._kept = np.cumsum(blocks, dtype=np.int64) - blocks
        self._items, self._kept_items = (
            memoryview(sizes.data),
            memoryview(self._kept.data),
        )  # avoids creating an object for each number

    @property
    def nbytes(self) -> int:
        return self.sizes.nbytes + self._kept.nbytes

    def before(self, record: int) -> int:
        block = record // _BLOCK
        return self._kept_items[block] + sum(self._items[block * _BLOCK : record])

    def before_each(self, within: Numbers) -> Numbers:
        """Return the sums before these records. Raise IndexError if a record does not exist."""
        if native is None:
            return self.before_each_in_python(within)
        sums = native.sums_before(self._items, self.sizes.itemsize, self._kept_items, _BLOCK, within.data)
        return np.frombuffer(sums, np.int64)

    def before_each_in_python(self, within: Numbers) -> Numbers:
        """Return the same as `before_each`, computed in Python."""
        if ((within < 0) | (within >= len(self.sizes))).any():
            raise IndexError("the index has no record with this number")
        places = (within - within % _BLOCK)[:, None] + np.arange(_BLOCK)
        before = places < within[:, None]
        sizes = np.where(before, self.sizes[np.where(before, places, 0)], 0)
        sums: Numbers = self._kept[within // _BLOCK] + sizes.sum(axis=1, dtype=np.int64)
        return sums
