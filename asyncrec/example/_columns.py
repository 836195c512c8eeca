"""Decode batches of records to columns of features, in C or with NumPy.

The C code (``asyncrec/_native/columns.c``) parses each record separately, and passes only unusual records to Python.

The NumPy code parses many records together, because most records of a data set have the same features in the same
order, although the lengths of their values vary. It parses one record, and tries its layout (the names and kinds, in
order) on all the others at once. One NumPy operation compares a tag, a length or a name in every record. It then parses
one of the records that do not fit the layout, and repeats this until none is left. Records with a rare or unusual
layout are parsed one by one.

In both cases, the result is the same as if each record were parsed separately, but NumPy takes about a tenth of the
time, and C about a hundredth.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from itertools import chain, pairwise
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from asyncrec._native import native
from asyncrec.errors import DecodeError
from asyncrec.example._codec import feature_bytes
from asyncrec.example._scan import PADDING, Scan, fit
from asyncrec.example._varints import int64_values, varint
from asyncrec.example._wire import BYTES, FLOAT, NONE, Raw, byte_strings, parse_example

Ints: TypeAlias = npt.NDArray[np.int64]
Check: TypeAlias = Callable[[Mapping[str, Raw], int], None]

_BLOCK_BYTES = 4 << 20  # records are joined in blocks of this size, so the copy stays in cache and memory is bounded
_FEW = 24  # below this many records, parsing one by one takes less time than NumPy's overhead of about 250 us
_MOST_IN_C = 1000  # the maximum number of wanted features, as in columns.c
_JOINED = 4  # the kind in columns.c for BYTES that are returned as JoinedBytes
_MISSES = 4  # after this many layouts that fit only a few records, the rest of a block is parsed one by one


class JoinedBytes(NamedTuple):
    """``n`` bytes values in one buffer. Value ``i`` is ``contents[offsets[i]:offsets[i + 1]]``.

    ``offsets`` is int64 of shape (n + 1,), from 0 to the length of ``contents``.
    """

    contents: bytes | bytearray
    offsets: Ints

    @classmethod
    def of(cls, values: Sequence[bytes]) -> JoinedBytes:
        offsets = np.zeros(len(values) + 1, np.int64)
        np.cumsum(np.fromiter(map(len, values), np.int64, len(values)), out=offsets[1:])
        return cls(b"".join(values), offsets)

    def to_list(self) -> list[bytes]:
        view = memoryview(self.contents)
        return [bytes(view[start:stop]) for start, stop in pairwise(self.offsets.tolist())]


class Column(NamedTuple):
    """One feature of ``n`` records: the values of all records in order, and the number of values in each record.

    ``flat`` is a writable int64 or float32 array, a list of bytes, or `JoinedBytes`. ``counts`` is int64 of shape (n,).
    A count of -1 means that the record does not have the feature, or has it without a kind.
    """

    kind: int
    flat: Any
    counts: Ints


def read_columns(
    records: Sequence[bytes], wanted: Mapping[str, int], check: Check, joined: Collection[str] = ()
) -> dict[str, Column]:
    """Return the columns of features in serialized Examples. ``wanted`` maps the features' names to their kinds.

    Columns named in ``joined``, which must have the kind BYTES, contain `JoinedBytes` instead of a list.

    ``check(features, row)`` is called with the features of one record of each layout. It must raise if a feature is
    missing, has the wrong kind, or is not allowed. If it returns, every record of that layout is accepted.

    Raises DecodeError, with the record's index, if a record is not an Example, and any error that ``check`` raises.
    """
    if native is not None and len(wanted) <= _MOST_IN_C:
        return _read_in_c(records, wanted, check, joined)
    return read_columns_in_python(records, wanted, check, joined)


def read_columns_in_python(
    records: Sequence[bytes], wanted: Mapping[str, int], check: Check, joined: Collection[str] = ()
) -> dict[str, Column]:
    """Implement `read_columns` without the C module."""
    parts = [_block(records, rows, wanted, check) for rows in _blocks(records)]
    columns = {name: _concatenated(kind, [part[name] for part in parts]) for name, kind in wanted.items()}
    for name in joined:
        columns[name] = columns[name]._replace(flat=JoinedBytes.of(columns[name].flat))
    return columns


def column_of(kind: int, raws: Sequence[Raw | None]) -> Column:
    """Return a column from one parsed feature per record. `None` and features without a kind count as absent."""
    present = np.array([raw is not None and raw[0] != NONE for raw in raws], np.bool_)
    payloads: list[Any] = [raw[1] for raw in raws if raw is not None and raw[0] != NONE]
    if kind == BYTES:
        flat: Any = list(chain.from_iterable(payloads))
        counts = np.array([len(values) for values in payloads], np.int64)
    else:
        sizes = np.array([len(payload) for payload in payloads], np.int64)
        flat, counts = _numbers(kind, bytearray().join(payloads), sizes)
    return Column(kind, flat, _spread(counts, present))


def _read_in_c(
    records: Sequence[bytes], wanted: Mapping[str, int], check: Check, joined: Collection[str]
) -> dict[str, Column]:
    rewritten = -1

    def ask(row: int, odd: bool) -> bytes | None:
        nonlocal rewritten
        if row == rewritten and odd:  # the record is an Example, but its int64 values are malformed
            raise _culprit(records, range(row, row + 1), wanted)
        features = _parsed(records, row, check)
        if not odd:
            return None
        rewritten = row
        return _rewritten(features, wanted)

    names = tuple(name.encode("utf-8", "surrogatepass") for name in wanted)
    kinds = bytes(_JOINED if name in joined else kind for name, kind in wanted.items())
    found = native.example_columns(records, names, kinds, ask)
    columns = {}
    for (name, kind), (flat, counts) in zip(wanted.items(), found, strict=True):
        values: Any = flat
        if isinstance(flat, tuple):
            values = JoinedBytes(flat[0], np.frombuffer(flat[1], np.int64))
        elif isinstance(flat, bytearray):
            values = np.frombuffer(flat, np.float32 if kind == FLOAT else np.int64)
        columns[name] = Column(kind, values, np.frombuffer(counts, np.int64))
    return columns


def _rewritten(features: Mapping[str, Raw], wanted: Mapping[str, int]) -> bytes:
    """Return an Example with only the wanted features of a record, in the usual encoding."""
    entries: list[bytes] = []
    for name in wanted.keys() & features.keys():
        key, value = name.encode(), feature_bytes(features[name])
        entry = b"".join((b"\x0a", varint(len(key)), key, b"\x12", varint(len(value)), value))
        entries += (b"\x0a", varint(len(entry)), entry)
    body = b"".join(entries)
    return b"\x0a" + varint(len(body)) + body


def _blocks(records: Sequence[bytes]) -> list[range]:
    """Return the ranges of records to join. Each has at most _BLOCK_BYTES, unless a single record is larger."""
    sizes = np.cumsum(np.fromiter(map(len, records), np.int64, len(records)))
    blocks, start = [], 0
    while start < len(records):
        before = int(sizes[start - 1]) if start else 0
        stop = max(start + 1, int(np.searchsorted(sizes, before + _BLOCK_BYTES, "right")))
        blocks.append(range(start, stop))
        start = stop
    return blocks or [range(0)]


def _concatenated(kind: int, columns: Sequence[Column]) -> Column:
    if len(columns) == 1:
        return columns[0]
    flats = [column.flat for column in columns]
    flat = list(chain.from_iterable(flats)) if kind == BYTES else np.concatenate(flats)
    return Column(kind, flat, np.concatenate([column.counts for column in columns]))


def _block(records: Sequence[bytes], rows: range, wanted: Mapping[str, int], check: Check) -> dict[str, Column]:
    if len(rows) < _FEW:
        parsed = [_parsed(records, row, check) for row in rows]
        try:
            return {name: column_of(kind, [raws.get(name) for raws in parsed]) for name, kind in wanted.items()}
        except DecodeError:
            raise _culprit(records, rows, wanted) from None
    sizes = np.fromiter((len(records[row]) for row in rows), np.int64, len(rows))
    data = b"".join([records[row] for row in rows] + [bytes(PADDING)])
    stops = np.cumsum(sizes)
    starts = stops - sizes
    found = {name: np.full((2, len(rows)), -1, np.int64) for name in wanted}
    odd: list[bytes] = []  # the features of records parsed one by one, to be appended to the joined records
    size = len(data)
    pending = np.arange(len(rows))
    misses = 0
    while len(pending):
        first = int(pending[0])
        raws = _parsed(records, rows[first], check)
        if len(pending) >= _FEW and misses < _MISSES:
            layout = [(name, kind) for name, (kind, _) in raws.items()]
            fits, spans = fit(data, starts[pending], stops[pending], layout, wanted)
            misses += int(fits.sum()) < _FEW
            if fits[0]:
                for name, span in spans.items():
                    found[name][:, pending[fits]] = span[:, fits]
                pending = pending[~fits]
                continue
        for name in wanted:
            kind, payload = raws.get(name, (NONE, b""))
            if kind != NONE:
                body = _bytes_list(payload) if isinstance(payload, list) else payload
                odd.append(body)
                found[name][:, first] = size, size + len(body)
                size += len(body)
        pending = pending[1:]
    if odd:
        data = b"".join([data, *odd])
    try:
        return {name: _column(kind, data, *found[name]) for name, kind in wanted.items()}
    except DecodeError:
        raise _culprit(records, rows, wanted) from None


def _parsed(records: Sequence[bytes], row: int, check: Check) -> dict[str, Raw]:
    try:
        raws = parse_example(bytes(records[row]))
    except DecodeError as error:
        raise _in_record(row, error) from None
    check(raws, row)
    return raws


def _culprit(records: Sequence[bytes], rows: range, wanted: Mapping[str, int]) -> DecodeError:
    """Return the error for the first record that cannot be decoded to columns."""
    for row in rows:
        name = ""
        try:
            raws = parse_example(bytes(records[row]))
            for name, kind in wanted.items():
                column_of(kind, [raws.get(name)])
        except DecodeError as error:
            return _in_record(row, DecodeError(f"feature {name!r}: {error}") if name else error)
    raise AssertionError("the records can be decoded individually, but not together")


def _in_record(row: int, error: DecodeError) -> DecodeError:
    return DecodeError(f"record {row} of the batch: {error}")


def _column(kind: int, data: bytes, starts: Ints, stops: Ints) -> Column:
    present = starts >= 0
    if not present.all():
        starts, stops = starts[present], stops[present]
    if kind == BYTES:
        flat, counts = _strings(data, starts, stops)
    else:
        flat, counts = _numbers(kind, _gathered(data, starts, stops), stops - starts)
    return Column(kind, flat, _spread(counts, present))


def _spread(counts: Ints, present: npt.NDArray[np.bool_]) -> Ints:
    if len(counts) == len(present):
        return counts
    spread = np.full(len(present), -1, np.int64)
    spread[present] = counts
    return spread


def _gathered(data: bytes, starts: Ints, stops: Ints) -> bytearray:
    """Return the concatenated bytes of all spans."""
    sizes = stops - starts
    if sizes.max(initial=0) > 16:
        return bytearray().join([data[start:stop] for start, stop in zip(starts.tolist(), stops.tolist(), strict=True)])
    before = np.cumsum(sizes) - sizes
    index = np.arange(int(sizes.sum())) + np.repeat(starts - before, sizes)
    return bytearray(np.frombuffer(data, np.uint8).take(index).tobytes())


def _numbers(kind: int, payload: bytearray, sizes: Ints) -> tuple[Any, Ints]:
    """Return the numbers in concatenated packed payloads of the given sizes, and the count in each payload."""
    if kind == FLOAT:
        return np.frombuffer(payload, "<f4").astype(np.float32, copy=False), sizes // 4
    values = int64_values(payload)
    last = np.frombuffer(payload, np.uint8) < 0x80
    ends = np.cumsum(sizes)
    if not last[ends[sizes > 0] - 1].all():
        raise DecodeError("the last int64 value is truncated")
    upto = np.concatenate((np.zeros(1, np.int64), np.cumsum(last)))
    return values, upto[ends] - upto[ends - sizes]


def _strings(data: bytes, starts: Ints, stops: Ints) -> tuple[list[bytes], Ints]:
    """Return the values of the BytesLists in the given spans, and the count in each list.

    Lists with one value are parsed all at once.
    """
    scan = Scan(data)
    single, pos = scan.expect(starts, b"\x0a")
    length, pos = scan.varint(pos)
    single &= (starts < stops) & (pos + length == stops)
    begins, ends = np.where(single, pos, starts).tolist(), stops.tolist()
    if single.all():
        values = [data[start:stop] for start, stop in zip(begins, ends, strict=True)]
        return values, np.ones(len(values), np.int64)
    lists = [
        [data[start:stop]] if one else byte_strings(data, start, stop)
        for one, start, stop in zip(single.tolist(), begins, ends, strict=True)
    ]
    return list(chain.from_iterable(lists)), np.array([len(values) for values in lists], np.int64)


def _bytes_list(values: Sequence[bytes]) -> bytes:
    return b"".join([piece for value in values for piece in (b"\x0a", varint(len(value)), value)])
