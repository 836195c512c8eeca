"""The rows of a Parquet file become records, as many at once as memory has room for, or each by itself. Blocks.

A file of some hundred bytes may hold gigabytes: a value that stands in a dictionary once is the value of any number of
rows. So text and bytes are left in their dictionaries where those are small, what is read at once is limited by what
the file says of its row groups, and what is taken out of it at once by what the rows were found to hold.

A row that Python or a record cannot hold is bad, and no other is.
"""

from __future__ import annotations

import datetime
import decimal
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from asyncrec import encode_example
from asyncrec.errors import ExampleError
from asyncrec.plugins import BadMember, Converted

__all__ = ["rows_of"]

_ROWS = 1024
# Of values as Python has them, and of the records made of them.
_TAKEN_BYTES = 16 << 20
# Of a row group's column: what is read as a dictionary takes some four times that, since pyarrow gives the dictionary
# all values that are in none.
_DICTIONARY_BYTES = 16 << 20
_DICTIONARY_PAGE = 2


def rows_of(file: str, path: str, max_record_bytes: int) -> Iterator[Converted]:
    """Every row of the file, which ``path`` names in what is bad; one that makes a larger record is."""
    from pyarrow import parquet

    number = 0  # of rows read
    try:
        with parquet.ParquetFile(file) as opened:
            if twice := _twice(opened.schema_arrow):
                reason = f"two columns make the feature {twice!r}, of which a record has one: rename a column"
                yield Converted(bad=[BadMember(path, "the schema", reason)])
                return
            groups = [_Group(file, opened, each) for each in range(opened.num_row_groups)]
            small = {each for each in range(len(opened.schema)) if all(group.small[each] for group in groups)}
            names = [opened.schema.column(each).path for each in small]
        with parquet.ParquetFile(file, read_dictionary=names) as opened:
            for index, group in enumerate(groups):
                if group.least > max_record_bytes:
                    where = f"rows {number + 1} to {number + group.rows}"
                    reason = f"a row has {group.least:,} bytes on average, more than {max_record_bytes:,}"
                    yield Converted(bad=[BadMember(path, where, reason)])
                    number += group.rows
                    continue
                for batch in opened.iter_batches(batch_size=group.at_once(small, max_record_bytes), row_groups=[index]):
                    for start, stop in _pieces(_row_bytes(batch.to_struct_array())):
                        yield _converted(batch.slice(start, stop - start), path, number + start, max_record_bytes)
                    number += batch.num_rows
    except Exception as error:  # pyarrow raises what it meets; the rows that were read are good
        yield Converted(bad=[BadMember(path, f"row {number + 1}", f"the rest cannot be read: {error}")])


# -- what may be read at once -----------------------------------------------------------------------------------------


class _Group:
    """A row group, as the file describes it.

    Attributes:
        rows: how many it has.
        least: bytes of a row, on average.
        small: for each column, whether it may be read as a dictionary.
    """

    def __init__(self, file: str, opened: Any, index: int) -> None:
        described = opened.metadata.row_group(index)
        self.rows: int = described.num_rows
        rows = max(1, self.rows)
        self.small: list[bool] = []
        self._plain: list[int] = []
        self._repeated: list[int] = []  # the largest value that each row may hold, from the dictionary
        with open(file, "rb") as content:
            for column in range(described.num_columns):
                chunk, leaf = described.column(column), opened.schema.column(column)
                values = -(-chunk.num_values // rows)
                size = chunk.total_uncompressed_size
                text = leaf.physical_type == "BYTE_ARRAY"
                width = {"BYTE_ARRAY": 4, "FIXED_LEN_BYTE_ARRAY": leaf.length}.get(leaf.physical_type, 8)
                self._plain.append(values * width + (-(-size // rows) if text else 0))
                self._repeated.append(values * _dictionary_bytes(content, chunk) if text else 0)
                self.small.append(text and size <= _DICTIONARY_BYTES)
        self.least = sum(self._plain)

    def at_once(self, as_dictionaries: Collection[int], most: int) -> int:
        """Rows whose values, even if all are the largest there are, take no more than ``most`` bytes."""
        repeated = sum(size for column, size in enumerate(self._repeated) if column not in as_dictionaries)
        return max(1, min(_ROWS, most // max(1, self.least + repeated)))


def _dictionary_bytes(content: Any, chunk: Any) -> int:
    """The size of a column's dictionary, which no value in it exceeds; that of all pages where it does not say."""
    if not any("DICTIONARY" in encoding for encoding in chunk.encodings):
        return 0
    content.seek(min(chunk.data_page_offset, chunk.dictionary_page_offset or chunk.data_page_offset))
    head = content.read(16)
    # A PageHeader in Thrift's compact form begins with its type and its size, two fields of 32 bits.
    kind, at = _field(head, 0)
    size, _ = _field(head, at)
    return size if kind == _DICTIONARY_PAGE and size >= 0 else int(chunk.total_uncompressed_size)


def _field(data: bytes, at: int) -> tuple[int, int]:
    """A field that follows the one before it, and where the next begins; -1 where it is none."""
    if data[at : at + 1] != b"\x15":
        return -1, at
    value = shift = 0
    for each in data[at + 1 :]:
        at += 1
        value |= (each & 0x7F) << shift
        shift += 7
        if each < 0x80:
            return (value >> 1) ^ -(value & 1), at + 1
    return -1, at


def _row_bytes(array: Any) -> Any:
    """What each value of an array takes, about, with all that is in it: int64 (n,)."""
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
    """Rows to be taken at once: from where to where. One that is larger than that is alone."""
    ends = np.cumsum(sizes)
    start = 0
    while start < len(sizes):
        before = int(ends[start - 1]) if start else 0
        stop = max(start + 1, int(np.searchsorted(ends, before + _TAKEN_BYTES, "right")))
        yield start, stop
        start = stop


# -- rows -------------------------------------------------------------------------------------------------------------


def _converted(rows: Any, path: str, before: int, most: int) -> Converted:
    """The records of some rows, the first of which is number ``before`` + 1."""
    result = Converted()
    try:
        found: Iterator[Any] = iter(rows.to_pylist())
    except Exception:  # there is a value that Python cannot hold: which, is found row by row
        found = (rows.slice(each, 1) for each in range(rows.num_rows))
    for number, row in enumerate(found, before + 1):
        try:
            features = _flat(row if isinstance(row, Mapping) else _of_one(row))
            record = encode_example(features, narrow=True)
            if len(record) > most:
                raise ExampleError(f"a record of {len(record):,} bytes, more than {most:,}")
            result.records.append(record)
        except Exception as error:
            result.bad.append(BadMember(path, f"row {number}", str(error)))
    return result


def _of_one(row: Any) -> dict[str, Any]:
    """A row of its own, whose times may be of more digits than Python's have."""
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
    """The type of times that Python has, for one of nanoseconds."""
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
    """The text of a time, a date or a decimal: the same whether pandas is there, whose types pyarrow then gives."""
    if more := getattr(value, "nanosecond", 0) or getattr(value, "nanoseconds", 0):
        return _with_nanoseconds(value.floor("us"), more)
    if hasattr(value, "to_pytimedelta"):
        value = value.to_pytimedelta()
    return value.isoformat() if hasattr(value, "isoformat") else str(value)


def _twice(schema: Any) -> str | None:
    """A feature that two columns make."""
    return next((name for name, count in Counter(_features(schema, "")).items() if count > 1), None)


def _features(fields: Any, prefix: str) -> Iterator[str]:
    import pyarrow as pa

    for field in fields:
        if pa.types.is_struct(field.type):
            yield from _features(field.type, f"{prefix}{field.name}/")
        else:
            yield prefix + field.name
