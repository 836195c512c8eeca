"""`ShardColumns`: the entries of many shards as columns of numbers and texts, which take about 140 bytes per shard.

The names of index and keys files can usually be derived from the shard's name, so a column stores only which rule
applies. Times are microseconds since 1970. Flags mark values that are missing in a row.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from asyncrec._numpy import np
from asyncrec._shards.manifest.names import index_key, keys_key
from asyncrec._shards.manifest.segment import ShardEntry, Sidecar
from asyncrec._shards.manifest.texts import TextColumn

if TYPE_CHECKING:
    from numpy.typing import NDArray

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)

COMPRESSIONS = ("", "GZIP", "ZLIB")
# The lowest two bits of a row's flags encode the shard's compression. The other bits mark values that are missing: a
# shard that no manifest lists has no checksums and no commit time.
LACKS: Final = {"crc32c": 4, "end_crc32c": 8, "first": 16, "last": 32, "committed": 64}
# A writer id that can be part of a name.
PLAIN_WRITER = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.]*")
# How an index or keys file is named: it does not exist, it is named after the shard, or it is named after the shard
# with its writer's id inserted. A number of 0 or more is a row of `names`.
NOT_NAMED, _BY_SHARD, BY_WRITER = -1, -2, -3

# The columns of numbers and their dtypes.
NUMBERS: Final[Mapping[str, str]] = {
    "records": "int64",
    "bytes": "int64",
    "crc32c": "uint32",
    "index": "int32",
    "index_bytes": "int64",
    "index_crc32c": "uint32",
    "keys": "int32",
    "keys_bytes": "int64",
    "keys_crc32c": "uint32",
    "first": "int64",
    "last": "int64",
    "committed": "int64",
    "flags": "uint16",
    "extra": "int32",
    "commit": "uint32",
    "live": "bool",
    "end_crc32c": "uint32",
}


def micros_of(time: str) -> int:
    """Convert a time in a manifest to microseconds since 1970, without rounding."""
    return (datetime.fromisoformat(time) - _EPOCH) // _MICROSECOND


def format_micros(micros: int) -> str:
    """Format a time in microseconds since 1970 in the way that manifests do."""
    return (_EPOCH + timedelta(microseconds=micros)).isoformat(timespec="microseconds")[:-6] + "Z"


class Added(NamedTuple):
    """A shard that a commit added.

    Instances sort like the rows of `ShardColumns`: by path, and then by time.

    Attributes:
        path: the path in UTF-8.
        time: the time when the shard was added, in microseconds since 1970.
        tie: the tie-breaker for equal times, which does not depend on the order in which segments are merged.
        commit: the row of the commit in the history.
        extra: the position of the entry's unknown members in the history's values, or -1 if it has none.
    """

    path: bytes
    time: int
    writer: str
    tie: tuple[int, int, int]
    commit: int
    extra: int
    entry: ShardEntry


@dataclass(frozen=True, slots=True)
class ShardColumns:
    """Columns with a row for each shard.

    Attributes:
        paths: the paths of the shards.
        numbers: the columns of `NUMBERS`, by name. ``commit`` is a row of the history's commits, ``live`` is whether
            the shard is in the data set now, and ``extra`` is a position in the history's values.
        names: the names of index and keys files that cannot be derived from the shard's name.
    """

    paths: TextColumn
    numbers: Mapping[str, NDArray[Any]]
    names: TextColumn

    def __len__(self) -> int:
        return len(self.paths)

    def cells(self, rows: NDArray[np.int64] | list[int]) -> Iterator[dict[str, Any]]:
        """Yield a dictionary for each of these rows, with the row's value in each column of numbers."""
        columns = [self.numbers[name][rows].tolist() for name in NUMBERS]
        return (dict(zip(NUMBERS, cells, strict=True)) for cells in zip(*columns, strict=True))

    def entry(self, row: int, cell: Mapping[str, Any], writer: str, values: Sequence[Any]) -> ShardEntry:
        """Return the entry of the shard in this row, from its `cells`, its writer and the history's values."""
        flags, path = cell["flags"], self.paths[row]

        def given(name: str) -> Any:
            return None if flags & LACKS[name] else cell[name]

        def time(name: str) -> str | None:
            return None if flags & LACKS[name] else format_micros(cell[name])

        def sidecar(kind: str) -> Sidecar | None:
            name = self._sidecar_name(kind, cell[kind], path, writer)
            if name is None:
                return None
            return Sidecar(path=name, bytes=cell[f"{kind}_bytes"], crc32c=cell[f"{kind}_crc32c"])

        return ShardEntry(
            path=path,
            records=cell["records"],
            bytes=cell["bytes"],
            crc32c=given("crc32c"),
            compression=COMPRESSIONS[flags & 3],
            index=sidecar("index"),
            keys=sidecar("keys"),
            first=time("first"),
            last=time("last"),
            committed=time("committed") or "",
            end_crc32c=given("end_crc32c"),
            extra=values[cell["extra"]] if cell["extra"] >= 0 else {},
        )

    def objects(self, row: int, writer: str) -> list[str]:
        """Return the paths of the shard in a row, and of its index and keys files."""
        path = self.paths[row]
        sidecars = [self._sidecar_name(kind, int(self.numbers[kind][row]), path, writer) for kind in ("index", "keys")]
        return [path, *(name for name in sidecars if name is not None)]

    def _sidecar_name(self, kind: str, how: int, path: str, writer: str) -> str | None:
        if how == NOT_NAMED:
            return None
        if how >= 0:
            return self.names[how]
        return _KEYS[kind](path if how == _BY_SHARD else _with_writer(path, writer))

    def take(self, rows: NDArray[np.int64]) -> ShardColumns:
        """Return new columns with only these rows, in this order."""
        return ShardColumns(
            self.paths.take(rows), {name: column[rows] for name, column in self.numbers.items()}, self.names
        )

    def inserted(self, more: ShardColumns, places: NDArray[np.int64]) -> ShardColumns:
        """Return new columns with the rows of ``more`` inserted before the rows ``places``, in ascending order."""
        if not len(self):
            return more
        if not len(more):
            return self
        order = np.insert(np.arange(len(self)), places, np.arange(len(self), len(self) + len(more)))
        paths = TextColumn.joined([self.paths, more.paths]).take(order)
        numbers = {}
        for name, column in self.numbers.items():
            others = more.numbers[name]
            if name in _KEYS and len(self.names):
                others = np.where(others >= 0, others + len(self.names), others).astype(others.dtype)
            numbers[name] = np.concatenate([column, others])[order]
        return ShardColumns(paths, numbers, TextColumn.joined([self.names, more.names]))

    @classmethod
    def of(cls, added: Sequence[Added]) -> ShardColumns:
        """Create columns from the shards that were added."""
        rows: dict[str, list[Any]] = {name: [] for name in NUMBERS}
        names: list[str] = []
        for each in added:
            cells = _cells(each.entry)
            for kind in _KEYS:
                cells[kind] = _how_named(kind, getattr(each.entry, kind), each.entry.path, each.writer, names)
            cells.update(commit=each.commit, extra=each.extra, committed=each.time, live=False)
            for name, column in rows.items():
                column.append(cells[name])
        return cls(
            TextColumn.of(each.entry.path for each in added),
            {name: np.array(rows[name], kind) for name, kind in NUMBERS.items()},
            TextColumn.of(names),
        )


_KEYS = {"index": index_key, "keys": keys_key}


def _cells(entry: ShardEntry) -> dict[str, Any]:
    cells: dict[str, Any] = {
        "records": entry.records,
        "bytes": entry.bytes,
        "crc32c": entry.crc32c,
        "end_crc32c": entry.end_crc32c,
        "index_bytes": entry.index.bytes if entry.index else 0,
        "index_crc32c": entry.index.crc32c if entry.index else 0,
        "keys_bytes": entry.keys.bytes if entry.keys else 0,
        "keys_crc32c": entry.keys.crc32c if entry.keys else 0,
        "first": None if entry.first is None else micros_of(entry.first),
        "last": None if entry.last is None else micros_of(entry.last),
        "committed": micros_of(entry.committed) if entry.committed else None,
    }
    flags = COMPRESSIONS.index(entry.compression)
    for name, bit in LACKS.items():
        if cells[name] is None:
            cells[name] = 0
            flags |= bit
    cells["flags"] = flags
    return cells


def _how_named(kind: str, sidecar: Sidecar | None, path: str, writer: str, names: list[str]) -> int:
    if sidecar is None:
        return NOT_NAMED
    if sidecar.path == _KEYS[kind](path):
        return _BY_SHARD
    if PLAIN_WRITER.fullmatch(writer) and sidecar.path == _KEYS[kind](_with_writer(path, writer)):
        return BY_WRITER
    names.append(sidecar.path)
    return len(names) - 1


def _with_writer(path: str, writer: str) -> str:
    """Insert a writer's id before the number in the plain name of a fixed shard. Its sidecars are named that way."""
    end = path.rfind("-of-")
    number = path.rfind("-", 0, max(end, 0))
    return f"{path[:number]}-{writer}{path[number:]}" if number >= 0 else path
