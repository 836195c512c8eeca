"""Divide the records of a path into parts that any process can read."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from itertools import chain, pairwise
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from asyncrec._arguments import Size, byte_count
from asyncrec._concurrency.map import for_each
from asyncrec._concurrency.tasks import in_thread
from asyncrec._datasets.reading.reader import find_split, open_folder
from asyncrec._framing.frames import MAX_RECORD_BYTES
from asyncrec._records.index import RecordIndex, parse_index
from asyncrec._sampling.record_set import RecordSet
from asyncrec.errors import ArgumentValueError, FormatError, ObjectNotFoundError, SchemaError
from asyncrec.example._schema import Schema
from asyncrec.integrations.arrow._column_types import common_types
from asyncrec.integrations.arrow._from_records import BatchMaker
from asyncrec.integrations.arrow._types import arrow_schema, known_arrow, restored
from asyncrec.integrations.arrow._units import kind_of_time, leaf_of, with_leaf
from asyncrec.storage._base import Storage
from asyncrec.tools._newest import newest_records
from asyncrec.tools._selection import Selection, selected

_Bits: TypeAlias = bytes
# The number of indexes that are read, and kept in memory, at once: enough to hide a store's latency.
_CONCURRENT = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """Some neighbouring records of one file.

    Attributes:
        path: the path of the file.
        compression: ``""``, ``"GZIP"``, ``"ZLIB"``, or ``"auto"`` if it is unknown.
        offset: the offset in the file at which to begin.
        skip: the number of records to skip from there.
        records: the number of records; `None` to read to the end of the file, if they have not been counted.
        bytes: the approximate number of bytes read from the file; 0 if unknown.
        index: the path of the file's index, which locates each record, or `None`.
        max_record_bytes: as for `asyncrec.open_reader`.
        kept: the selected records, as one bit per record, the lowest bit of a byte first; `None` for all.
    """

    path: str
    compression: str
    offset: int = 0
    skip: int = 0
    records: int | None
    bytes: int
    index: str | None = None
    max_record_bytes: int = MAX_RECORD_BYTES
    kept: _Bits | None = None

    @property
    def rows(self) -> int | None:
        """The number of selected records; `None` if they have not been counted."""
        return self.records if self.kept is None else len(self.wanted())

    def wanted(self) -> NDArray[np.intp]:
        """Return the numbers of the selected records in the part. `kept` must not be `None`."""
        bits = np.unpackbits(np.frombuffer(self.kept or b"", np.uint8), bitorder="little")
        return np.flatnonzero(bits[: self.records])

    def between(self, begin: int, end: int) -> Part | None:
        """Return the records from ``begin`` to ``end``, trimmed to the selected ones, or `None` if none is selected."""
        assert self.records is not None, "only counted parts are cut"
        kept = None
        if self.kept is not None:
            wanted = self.wanted()
            wanted = wanted[(wanted >= begin) & (wanted < end)]
            if not len(wanted):
                return None
            begin, end = int(wanted[0]), int(wanted[-1]) + 1
            bits = np.zeros(end - begin, np.uint8)
            bits[wanted - begin] = 1
            kept = np.packbits(bits, bitorder="little").tobytes()
        size = self.bytes * (end - begin) // self.records
        return replace(self, skip=self.skip + begin, records=end - begin, bytes=size, kept=kept)


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The parts to read, and the columns to return. A plan can be pickled.

    Attributes:
        parts: the parts, in the order of the records.
        maker: the maker of the batches.
    """

    parts: tuple[Part, ...]
    maker: BatchMaker

    @property
    def records(self) -> int | None:
        """The number of records to read from all parts; `None` if they have not been counted."""
        counts = [rows for part in self.parts if (rows := part.rows) is not None]
        return sum(counts) if len(counts) == len(self.parts) else None


async def make_plan(
    path: str | os.PathLike[str],
    *,
    split: str | None = None,
    schema: Schema | Any = None,
    columns: Iterable[str] | None = None,
    newest: str | None = None,
    part_bytes: Size | None = None,
    worker: tuple[int, int] = (0, 1),
    storage: Storage | None = None,
    storage_options: dict[str, Any] | None = None,
) -> Plan:
    """Return a plan for the arguments of `open_batches`. ``part_bytes`` is the maximum size of a part of a shard.

    It has no effect on a shard without an index.
    """
    if not 0 <= worker[0] < worker[1]:
        raise ArgumentValueError(f"worker={worker}: must be (i, n), for worker number i of n, counted from 0")
    part_bytes = None if part_bytes is None else byte_count(part_bytes, "part_bytes")
    if part_bytes is not None and part_bytes < 1:
        raise ArgumentValueError(f"part_bytes={part_bytes}: must be at least 1")
    wanted = None if columns is None else list(columns)
    if split is None:
        async with selected(path, storage=storage, storage_options=storage_options) as selection:
            base = selection.base if storage is None else ""
            found = None if selection.schema is None else Schema.from_json(selection.schema)
            metadata = [dataset.manifest.metadata for dataset in selection.datasets]
            maker = _maker(path, schema if schema is not None else found, wanted, metadata)
            chosen = None if newest is None else await newest_records(selection, newest)
            parts = await in_thread(_parts_of, selection, storage is not None, chosen, worker)
            parts = await _cut_all(parts, part_bytes, selection.storage, base)
    elif newest is not None:
        raise ArgumentValueError("newest= cannot be combined with a split; pass the path of a data set")
    elif storage is not None:
        raise ArgumentValueError("storage= cannot be combined with a split; pass the split's path and storage_options=")
    else:
        base = os.fspath(path).rstrip("/") + "/" if os.fspath(path) else ""
        parts, found, metadata = await _parts_of_split(path, base, split, storage_options)
        async with open_folder(path, None, storage_options) as folder:
            parts = await _cut_all(share(parts, worker), part_bytes, folder, base)
        maker = _maker(path, schema if schema is not None else found, wanted, metadata)
    return Plan(parts=tuple(parts), maker=maker)


def share(parts: Iterable[Part], worker: tuple[int, int]) -> list[Part]:
    """Return the share of worker ``(i, n)``: a range of neighbouring records. Shares differ by at most one record.

    If the number of records in any file is unknown, worker i gets every n-th file instead, beginning with file i.
    """
    every = list(parts)
    number, count = worker
    if count == 1:
        return every
    counts = [rows for part in every if (rows := part.rows) is not None]
    if len(counts) < len(every):
        return every[number::count]
    total = sum(counts)
    first, last = total * number // count, total * (number + 1) // count
    found = []
    before = 0
    for part, records in zip(every, counts, strict=True):
        start, stop = max(first - before, 0), min(last - before, records)
        before += records
        if start < stop and part.kept is not None:
            places = part.wanted()
            start, stop = int(places[start]), int(places[stop - 1]) + 1
        if start < stop and (some := part.between(start, stop)) is not None:
            found.append(some)
    return found


def _parts_of(selection: Selection, opened: bool, chosen: RecordSet | None, worker: tuple[int, int]) -> list[Part]:
    """Return a worker's share of the chosen records, or of all. Run it in a thread: there may be a million shards."""
    parts = []
    number = 0
    for shard in selection.shards:
        entry = shard.entry
        shown = shard.display_path[: len(shard.display_path) - len(shard.name)]
        folder = shard.folder if opened else shown
        part = Part(
            path=shard.key if opened else shard.display_path,
            compression="auto" if entry is None else entry.compression,
            records=None if entry is None else entry.records,
            bytes=shard.size,
            index=None if entry is None or entry.index is None else folder + entry.index.path,
            max_record_bytes=shard.max_record_bytes,
        )
        if chosen is not None and entry is not None:
            bits = chosen.has(np.arange(number, number + entry.records))
            kept = replace(part, kept=np.packbits(bits, bitorder="little").tobytes())
            some = part if bits.all() else kept.between(0, entry.records)
            number += entry.records
            if some is None:
                continue
            part = some
        parts.append(part)
    return share((part for part in parts if part.records != 0), worker)


async def _parts_of_split(
    path: str | os.PathLike[str], base: str, split: str, storage_options: dict[str, Any] | None
) -> tuple[list[Part], Schema | None, list[Mapping[str, Any]]]:
    found = await find_split(path, split, storage_options=storage_options)
    parts = [
        Part(
            path=base + each.key,
            compression=each.compression,
            skip=each.skip,
            records=each.take,
            bytes=each.bytes,
            index=None if each.index is None else base + each.index,
            max_record_bytes=each.max_record_bytes,
        )
        for each in found.slices
    ]
    return parts, found.schema, found.metadata


async def _cut_all(parts: Iterable[Part], part_bytes: int | None, store: Storage, base: str) -> list[Part]:
    """Divide the parts into pieces. A part's path, minus the prefix ``base``, is a key in ``store``."""

    async def cut(part: Part) -> list[Part]:
        return await _cut(part, part_bytes, store, base)

    return [*chain.from_iterable(await for_each(cut, parts, tasks=_CONCURRENT))]


async def _cut(part: Part, part_bytes: int | None, store: Storage, base: str) -> list[Part]:
    """Divide a part into pieces of at most ``part_bytes`` if its index allows.

    With an index, a piece starts at the offset of its first record, so that no earlier records are read.
    """
    too_large = part_bytes is not None and part.bytes > part_bytes
    if part.index is None or part.compression == "ZLIB" or part.records is None or not (part.skip or too_large):
        return [part]
    try:
        index = await in_thread(parse_index, await store.get(part.index.removeprefix(base)))
    except (ObjectNotFoundError, FormatError):
        return [part]  # without an index, the reader must read and skip the records that precede the part
    if len(index) < part.skip + part.records:
        return [part]
    return await in_thread(_pieces, part, index, part_bytes)


def _pieces(part: Part, index: RecordIndex, part_bytes: int | None) -> list[Part]:
    assert part.records is not None, "only counted parts are cut"
    first, stop = part.skip, part.skip + part.records
    starts = np.asarray(index.offsets if index.members is None else index.members)
    begins = np.flatnonzero(np.diff(starts, prepend=-1))  # all records, or the first of each member
    places = starts[begins]
    high = int(starts[stop]) if stop < len(starts) else max(part.bytes, int(starts[-1] + index.sizes[-1]))
    edges = [first]
    while part_bytes is not None and high - starts[edges[-1]] > part_bytes:
        at = int(np.searchsorted(places, starts[edges[-1]] + part_bytes, "right")) - 1
        following = int(begins[at]) if begins[at] > edges[-1] else _next(begins, edges[-1])
        if following >= stop:
            break
        edges.append(following)
    edges.append(stop)
    found = []
    for begin, end in pairwise(edges):
        piece = part.between(begin - part.skip, end - part.skip)
        if piece is None or piece.records is None:
            continue
        begin, end = piece.skip, piece.skip + piece.records
        offset = int(starts[begin])
        skip = begin - int(np.searchsorted(starts, offset)) if index.members is not None else 0
        size = (int(starts[end]) if end < len(starts) else high) - offset
        found.append(replace(piece, offset=offset, skip=skip, bytes=max(size, 1)))
    return found


def _next(begins: NDArray[np.intp], record: int) -> int:
    """Return the first number in ``begins`` that is greater than ``record``, or a very large number if none is."""
    at = int(np.searchsorted(begins, record, "right"))
    return int(begins[at]) if at < len(begins) else 1 << 62


def _maker(
    path: str | os.PathLike[str], schema: Schema | Any, columns: list[str] | None, metadata: list[Mapping[str, Any]]
) -> BatchMaker:
    if schema is None:
        raise SchemaError(
            f"{os.fspath(path)}: the data set has no schema; pass schema=, for example Schema.infer(records)"
        )
    maker = BatchMaker(schema, columns=columns)
    if isinstance(schema, Schema):
        plain = arrow_schema(maker.schema)
        return BatchMaker(maker.schema, arrow=restored(plain, common_types(path, metadata, plain.names)))
    times = [field.name for field in maker.arrow if kind_of_time(leaf_of(field.type)) is not None]
    known = known_arrow(common_types(path, metadata, times))
    return BatchMaker(schema, columns=columns, stored=_other_units(path, maker.arrow, known))


def _other_units(path: str | os.PathLike[str], wanted: Any, stored: Any) -> dict[str, Any]:
    """Return the types in which to read time columns whose requested unit differs from the stored one."""
    found = {}
    for field in wanted:
        at = -1 if stored is None else stored.get_field_index(field.name)
        own, other = leaf_of(field.type), leaf_of(pa.null() if at < 0 else stored.field(at).type)
        if own == other or kind_of_time(own) is None or kind_of_time(other) is None:
            continue
        if own.bit_width != other.bit_width:
            raise SchemaError(
                f"{os.fspath(path)}: column {field.name!r} is stored as {other}, which cannot be read as {own}; "
                f"request {other}, and cast the column"
            )
        found[field.name] = with_leaf(field.type, other)
    return found
