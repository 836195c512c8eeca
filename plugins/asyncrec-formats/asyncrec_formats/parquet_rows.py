"""Conversion of a Parquet file's rows to records, in batches that fit in memory. Functions block.

A file of a few hundred bytes may represent gigabytes, because any number of rows may have the same dictionary value,
and a page of zeros may inflate to ten thousand times its size. So text and bytes are kept in their dictionaries if
these are small. The number of rows read at a time is limited by the page headers, and the number converted at a time by
the measured sizes of rows. Pages that inflate to more than the limit are bad.

Apart from these, only rows that Python or a record cannot represent are bad.
"""

from __future__ import annotations

import datetime
import decimal
import os
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from asyncrec import encode_example
from asyncrec.errors import ExampleError
from asyncrec.plugins import BadMember, Converted

from .parquet_pages import pages_of

_ROWS = 1024
# The maximum number of bytes of values in pyarrow's memory, in addition to the open page of each column.
_READ_BYTES = 64 << 20
# Pages that are open at the same time may inflate to this many times the stored size of their row group, or to the size
# limit of a record if that is larger.
_EXPANSION = 16
# The maximum number of bytes of values to convert to Python objects and to records at a time.
_TAKEN_BYTES = 16 << 20
# The maximum size of a row group's column that is read as a dictionary. Reading needs about four times as much memory,
# because pyarrow adds all other values to the dictionary.
_DICTIONARY_BYTES = 16 << 20


def rows_of(file: str, path: str, max_record_bytes: int) -> Iterator[Converted]:
    """Yield all rows of a file, as records or as bad rows. ``path`` is for error messages."""
    from pyarrow import parquet

    number = 0  # the number of rows read
    try:
        with parquet.ParquetFile(file) as opened:
            if twice := _twice(opened.schema_arrow):
                reason = f"two columns would become the feature {twice!r}; rename one"
                yield Converted(bad=[BadMember(path, "the schema", reason)])
                return
            groups = _groups(file, opened)
            small = {each for each in range(len(opened.schema)) if all(group.small[each] for group in groups)}
            names = [opened.schema.column(each).path for each in small]
        with parquet.ParquetFile(file, read_dictionary=names) as opened:
            for index, group in enumerate(groups):
                if reason := group.too_large(max_record_bytes):
                    where = f"rows {number + 1} to {number + group.rows}"
                    yield Converted(bad=[BadMember(path, where, reason)])
                    number += group.rows
                    continue
                for batch in opened.iter_batches(batch_size=group.at_once(small, max_record_bytes), row_groups=[index]):
                    for start, stop in _pieces(_row_bytes(batch.to_struct_array())):
                        yield _converted(batch.slice(start, stop - start), path, number + start, max_record_bytes)
                    number += batch.num_rows
    except Exception as error:  # pyarrow raises many types of error; the rows already read are good
        yield Converted(bad=[BadMember(path, f"row {number + 1}", f"the rest cannot be read: {error}")])


# -- limits on reading ------------------------------------------------------------------------------------------------


def _groups(file: str, opened: Any) -> list[_Group]:
    described = [opened.metadata.row_group(each) for each in range(opened.num_row_groups)]
    stored = [[each.column(n).total_compressed_size for n in range(each.num_columns)] for each in described]
    # Columns that together are no larger than the file can be scanned in time proportional to its size.
    if any(size < 0 for sizes in stored for size in sizes) or sum(map(sum, stored)) > os.path.getsize(file):
        raise ValueError("the columns would take more bytes than the file has")
    with open(file, "rb") as content:
        return [_Group(content, opened, each) for each in described]


class _Group:
    """The sizes of a row group, determined from its page headers.

    Attributes:
        rows: the number of rows.
        least: a lower bound on the average size of a row in bytes.
        small: for each column, whether it may be read as a dictionary.
    """

    def __init__(self, content: Any, opened: Any, described: Any) -> None:
        self.rows: int = described.num_rows
        rows = max(1, self.rows)
        self.small: list[bool] = []
        self._stored = self._open = self.least = 0
        self._plain = 0  # the size of a row whose values are as large as the average in the densest pages
        self._repeated: list[int] = []  # per column, the maximum bytes per row from dictionaries or shared prefixes
        for column in range(described.num_columns):
            chunk, leaf = described.column(column), opened.schema.column(column)
            pages = pages_of(content, chunk)
            values = -(-chunk.num_values // rows)
            text = leaf.physical_type == "BYTE_ARRAY"
            width = {"BYTE_ARRAY": 4, "FIXED_LEN_BYTE_ARRAY": leaf.length}.get(leaf.physical_type, 8)
            self.least += values * width + (-(-pages.inflated // rows) if text else 0)
            self._plain += values * (width + (pages.densest if text else 0))
            self._repeated.append(values * (pages.largest if pages.prefixed else pages.dictionary) if text else 0)
            self.small.append(text and pages.inflated <= _DICTIONARY_BYTES and not pages.prefixed)
            self._open += pages.largest
            self._stored += chunk.total_compressed_size

    def too_large(self, most: int) -> str:
        """Return the reason why the rows cannot be read within the limit of ``most`` bytes, or ``""``."""
        if self.least > most:
            return f"a row has {self.least:,} bytes on average, more than the limit of {most:,}"
        if self._open > max(most, _EXPANSION * self._stored):
            return (
                f"{self._stored:,} stored bytes decompress to pages of {self._open:,} bytes, more than the "
                f"limits of {most:,} bytes and of {_EXPANSION} times their size; write the file again with "
                "pages of 1 MiB (pyarrow: data_page_size)"
            )
        return ""

    def at_once(self, as_dictionaries: Collection[int], most: int) -> int:
        """Return the number of rows that fit in memory if all values are as large as possible."""
        repeated = sum(size for column, size in enumerate(self._repeated) if column not in as_dictionaries)
        return max(1, min(_ROWS, min(most, _READ_BYTES) // max(1, self._plain + repeated)))


def _row_bytes(array: Any) -> Any:
    """Return the approximate size in bytes of each value of an array, with nested values, as int64 ``(n,)``."""
    import pyarrow as pa
    import pyarrow.compute as pc

    kind = array.type
    if pa.types.is_dictionary(kind):
        if not len(array.dictionary):
            return np.full(len(array), 8, np.int64)
        return _row_bytes(array.dictionary)[pc.fill_null(array.indices, 0).to_numpy(zero_copy_only=False)]
    if pa.types.is_struct(kind):
        return sum((_row_bytes(each) for each in array.flatten()), start=np.full(len(array), 8, np.int64))
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_map(kind):
        inner = [array.keys, array.items] if pa.types.is_map(kind) else [array.values]
        ends = np.concatenate([[0], np.cumsum(sum(_row_bytes(each) for each in inner))])
        offsets = array.offsets.to_numpy(zero_copy_only=False)
        return 8 + ends[offsets[1:]] - ends[offsets[:-1]]
    if pa.types.is_fixed_size_list(kind):
        values = array.values.slice(array.offset * kind.list_size, len(array) * kind.list_size)
        return 8 + _row_bytes(values).reshape(len(array), kind.list_size).sum(axis=1)
    if (
        pa.types.is_binary(kind)
        or pa.types.is_string(kind)
        or pa.types.is_large_binary(kind)
        or pa.types.is_large_string(kind)
    ):
        return 8 + pc.fill_null(pc.binary_length(array), 0).to_numpy(zero_copy_only=False).astype(np.int64)
    return np.full(len(array), 8 + array.nbytes // max(1, len(array)), np.int64)


def _pieces(sizes: npt.NDArray[np.int64]) -> Iterator[tuple[int, int]]:
    """Yield the ranges of rows to convert together. A row above the limit has its own range."""
    ends = np.cumsum(sizes)
    start = 0
    while start < len(sizes):
        before = int(ends[start - 1]) if start else 0
        stop = max(start + 1, int(np.searchsorted(ends, before + _TAKEN_BYTES, "right")))
        yield start, stop
        start = stop


# -- rows -------------------------------------------------------------------------------------------------------------


def _converted(rows: Any, path: str, before: int, most: int) -> Converted:
    """Convert some rows to records. The number of the first row is ``before`` + 1."""
    result = Converted()
    try:
        found: Iterator[Any] = iter(rows.to_pylist())
    except Exception:  # Python cannot represent a value, so convert row by row
        found = (rows.slice(each, 1) for each in range(rows.num_rows))
    for number, row in enumerate(found, before + 1):
        try:
            features = _flat(row if isinstance(row, Mapping) else _of_one(row))
            record = encode_example(features, narrow=True)
            if len(record) > most:
                raise ExampleError(f"the record has {len(record):,} bytes, more than the limit of {most:,}")
            result.records.append(record)
        except Exception as error:
            result.bad.append(BadMember(path, f"row {number}", str(error)))
    return result


def _of_one(row: Any) -> dict[str, Any]:
    """Convert a batch of one row to a dict. Convert times with nanoseconds, which Python cannot represent, to text."""
    values = {}
    for name, column in zip(row.schema.names, row.columns, strict=True):
        try:
            values[name] = _value(column[0])
        except Exception as error:
            raise ExampleError(f"column {name!r}: {error}") from error
    return values


def _value(scalar: Any) -> Any:
    import pyarrow as pa

    kind = scalar.type
    if not scalar.is_valid:
        return None
    if pa.types.is_struct(kind):
        return {name: _value(scalar[name]) for name in kind.names}
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
        return [_value(each) for each in scalar.values]
    if (pa.types.is_timestamp(kind) or pa.types.is_time64(kind) or pa.types.is_duration(kind)) and kind.unit == "ns":
        number = scalar.cast(pa.int64()).as_py()
        coarse = pa.scalar(number // 1000, _micro(kind)).as_py()
        return _with_nanoseconds(coarse, number % 1000)
    return scalar.as_py()


def _micro(kind: Any) -> Any:
    """Return the microsecond type (which Python supports) for a nanosecond type."""
    import pyarrow as pa

    if pa.types.is_timestamp(kind):
        return pa.timestamp("us", kind.tz)
    return pa.time64("us") if pa.types.is_time64(kind) else pa.duration("us")


def _with_nanoseconds(value: Any, more: int) -> str:
    text = _text(value)
    if not more:
        return text
    whole = text[:19] if isinstance(value, datetime.datetime) else text.partition("+")[0]
    digits = value.microseconds if isinstance(value, datetime.timedelta) else value.microsecond
    zone = (
        value.isoformat()[len(value.replace(tzinfo=None).isoformat()) :] if isinstance(value, datetime.datetime) else ""
    )
    return f"{whole.partition('.')[0]}.{digits:06d}{more:03d}{zone}"


def _flat(row: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    features: dict[str, Any] = {}
    for name, value in row.items():
        if isinstance(value, Mapping):
            features.update(_flat(value, f"{prefix}{name}/"))
        elif value is not None:
            features[prefix + name] = [_plain(each) for each in value] if isinstance(value, list) else _plain(value)
    return features


def _plain(value: Any) -> Any:
    times = datetime.datetime | datetime.date | datetime.time | datetime.timedelta | decimal.Decimal
    return _text(value) if isinstance(value, times) else value


def _text(value: Any) -> str:
    """Return the text of a time, date or decimal, including the pandas types that pyarrow may return."""
    if more := getattr(value, "nanosecond", 0) or getattr(value, "nanoseconds", 0):
        return _with_nanoseconds(value.floor("us"), more)
    if hasattr(value, "to_pytimedelta"):
        value = value.to_pytimedelta()
    return value.isoformat() if hasattr(value, "isoformat") else str(value)


def _twice(schema: Any) -> str | None:
    """Return the name of a feature that two columns would become, or `None`."""
    return next((name for name, count in Counter(_features(schema, "")).items() if count > 1), None)


def _features(fields: Any, prefix: str) -> Iterator[str]:
    import pyarrow as pa

    for field in fields:
        if pa.types.is_struct(field.type):
            yield from _features(field.type, f"{prefix}{field.name}/")
        else:
            yield prefix + field.name
