"""`ShardList`: the shards of a snapshot, as a sequence of entries that are created on demand."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, overload

from asyncrec._numpy import np
from asyncrec._records.writing.write_batch import PAIR_BYTES
from asyncrec._shards.manifest.history import History
from asyncrec._shards.manifest.key_run import KeyRun
from asyncrec._shards.manifest.segment import ShardEntry
from asyncrec._shards.manifest.shard_columns import COMPRESSIONS, NOT_NAMED
from asyncrec._shards.manifest.texts import TextColumn

if TYPE_CHECKING:
    from numpy.typing import NDArray

# The number of entries to cache. A reader looks up the same entry again for each record.
_RECENT = 1024


class ShardList(Sequence[ShardEntry]):
    """The shards of a snapshot, in order of name. Compares equal to any sequence of equal entries.

    Each entry is created on demand, which takes a few microseconds. The properties that return one number for every
    shard, such as `counts`, are much faster.
    """

    __slots__ = ("_history", "_recent", "_rows")

    def __init__(self, history: History, rows: NDArray[np.int64] | None = None) -> None:
        """``rows`` selects rows of the history's shards; `None` selects all of them."""
        self._history = history
        self._rows = rows
        self._recent: dict[int, ShardEntry] = {}

    def __len__(self) -> int:
        return len(self._history.shards) if self._rows is None else len(self._rows)

    @overload
    def __getitem__(self, index: int) -> ShardEntry: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[ShardEntry, ...]: ...
    def __getitem__(self, index: int | slice) -> ShardEntry | tuple[ShardEntry, ...]:
        rows = range(len(self._history.shards)) if self._rows is None else self._rows
        if isinstance(index, slice):
            return tuple(self._history.entries(rows[index]))
        found = self._recent.get(index)
        if found is None:
            if len(self._recent) >= _RECENT:
                self._recent.clear()
            found = self._recent[index] = self._history.entry(int(rows[index]))
        return found

    def __iter__(self) -> Iterator[ShardEntry]:
        return self._history.entries(np.arange(len(self)) if self._rows is None else self._rows)

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if not isinstance(other, Sequence) or isinstance(other, str | bytes):
            return NotImplemented
        return len(self) == len(other) and all(mine == theirs for mine, theirs in zip(self, other, strict=True))

    def __hash__(self) -> int:
        return hash((len(self), self.bytes))

    def __repr__(self) -> str:
        return f"<{len(self):,} shards, {self.records:,} records>"

    @property
    def history(self) -> History:
        """The history from which the snapshot was computed."""
        return self._history

    @property
    def counts(self) -> NDArray[np.int64]:
        """The number of records in each shard."""
        return self._column("records")

    @property
    def sizes(self) -> NDArray[np.int64]:
        """The stored size of each shard, in bytes."""
        return self._column("bytes")

    @property
    def records(self) -> int:
        """The total number of records."""
        return _total(self.counts)

    @property
    def bytes(self) -> int:
        """The total stored size of the shards in bytes, not counting their index and keys files."""
        return _total(self.sizes)

    @property
    def compressions(self) -> Counter[str]:
        """The number of shards with each compression."""
        found, times = np.unique(self._column("flags") & 3, return_counts=True)
        return Counter({COMPRESSIONS[kind]: count for kind, count in zip(found.tolist(), times.tolist(), strict=True)})

    def compressed_with(self, kind: str) -> list[int]:
        """Return the positions in this list of the shards with this compression."""
        return np.flatnonzero((self._column("flags") & 3) == COMPRESSIONS.index(kind)).tolist()

    def paths(self) -> Iterator[str]:
        """Yield the paths of the shards."""
        rows = range(len(self)) if self._rows is None else self._rows.tolist()
        return (self._history.shards.paths[row] for row in rows)

    def names(self, key: str) -> bool:
        """Return whether a shard, index or keys file of the snapshot has this path."""
        rows = self._history.rows_naming(key)
        return bool(rows) and (self._rows is None or bool(np.isin(rows, self._rows).any()))

    @property
    def runs(self) -> tuple[KeyRun, ...]:
        """The runs of keys that the snapshot's checkpoint names."""
        return self._history.runs

    @property
    def keyed(self) -> NDArray[np.bool_]:
        """For each shard, whether it has keys."""
        keyed: NDArray[np.bool_] = self._column("keys") != NOT_NAMED
        return keyed

    @property
    def with_contents(self) -> NDArray[np.bool_]:
        """For each shard, whether its keys file also contains digests of contents."""
        pairs: NDArray[np.bool_] = self._column("keys_bytes") == PAIR_BYTES * self.counts
        return self.keyed & pairs & (self.counts > 0)

    def rows_keyed(
        self, paths: TextColumn, keys_crc32c: NDArray[np.uint32], records: NDArray[np.int64]
    ) -> NDArray[np.int64]:
        """Return, for each path, the number of the shard that has this path, keys checksum and record count, or -1.

        ``paths`` must be in ascending order.
        """
        found = np.full(len(paths), -1, np.int64)
        there = enumerate(_texts(self._history.shards.paths, self._rows))
        row, here = next(there, (-1, b""))
        for number, path in enumerate(_texts(paths, None)):
            while here < path and row >= 0:
                row, here = next(there, (-1, b""))
            if here == path:
                found[number] = row
        columns = self._column("keys_crc32c"), self._column("records"), self.keyed
        fits = (columns[0][found] == keys_crc32c) & (columns[1][found] == records) & columns[2][found]
        return np.where(fits, found, -1)

    def keys_of(self, rows: NDArray[np.int64]) -> tuple[TextColumn, NDArray[np.uint32], NDArray[np.int64]]:
        """Return the paths, keys checksums and record counts of the shards with these numbers, for `rows_keyed`."""
        own = rows if self._rows is None else self._rows[rows]
        return self._history.shards.paths.take(own), self._column("keys_crc32c")[rows], self.counts[rows]

    @property
    def committed(self) -> NDArray[np.int64]:
        """The commit time of each shard, in microseconds since 1970."""
        return self._column("committed")

    def rows_with(self, *members: str) -> list[int]:
        """Return the positions in this list of the shards whose entries have any of these optional members."""
        having = [number for number, value in enumerate(self._history.values) if not value.keys().isdisjoint(members)]
        return np.flatnonzero(np.isin(self._column("extra"), having)).tolist() if having else []

    def by_writer(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return how many shards and how many records each writer in the history has, by the writer's number."""
        writers = self._history.commits["writer"][self._column("commit")]
        size = len(self._history.writers)
        records = np.zeros(size, np.int64)
        np.add.at(records, writers, self.counts)
        return np.bincount(writers, minlength=size), records

    def _column(self, name: str) -> NDArray[Any]:
        column = self._history.shards.numbers[name]
        return column if self._rows is None else column[self._rows]


def _texts(column: TextColumn, rows: NDArray[np.int64] | None) -> Iterator[bytes]:
    """Yield the texts of these rows, or of all rows, reading them in chunks."""
    for at in range(0, len(column) if rows is None else len(rows), _RECENT):
        some = column if rows is None else column.take(rows[at : at + _RECENT])
        first, last = (at, min(at + _RECENT, len(column))) if rows is None else (0, len(some))
        yield from some.encode(first, last).split(b"\0")[:-1]


def _total(column: NDArray[np.int64]) -> int:
    """Return the exact sum, which may exceed 64 bits."""
    return (int((column >> 32).sum()) << 32) + int((column & 0xFFFFFFFF).sum())
