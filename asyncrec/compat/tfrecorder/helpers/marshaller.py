"""TFRecorder's `Example`: `asyncrec.example.DeclaredExample` with TFRecorder's names, types and accepted values.

TYPE_DOUBLE is an alias of TYPE_FLOAT. Its values have 32 bits, so that each library can read the other's files.
"""

from __future__ import annotations

import csv
import io
from collections import OrderedDict
from collections.abc import Iterable, Mapping
from os import PathLike, fspath
from typing import Any, ClassVar, TypeAlias

import numpy as np

from asyncrec._datasets.from_csv.csv_rows import csv_line
from asyncrec.blocking._portal import current_portal
from asyncrec.compat._tensors import found_tensorflow
from asyncrec.compat.tfrecorder.helpers.decorator import NATIVE, Field
from asyncrec.errors import ObjectNotFoundError, SchemaError
from asyncrec.example._declared import DeclaredExample
from asyncrec.example._declared import IgnoreExample as IgnoreExampleException
from asyncrec.example._entries import Entry
from asyncrec.example._fields import ARRAYS, FieldType, stored
from asyncrec.example._kinds import FixedLen
from asyncrec.example._schema import Schema
from asyncrec.storage._registry import located
from asyncrec.storage._url import redact

__all__ = [
    "Example",
    "FieldError",
    "IgnoreExampleException",
    "Path",
    "read_examples",
    "read_file",
    "tensors",
    "write_file",
]

Path = str | PathLike[str]
FieldOf: TypeAlias = Field


_THEIRS = {native: field for field, native in NATIVE.items()} | {FieldType.TYPE_DOUBLE: Field.TYPE_DOUBLE}
# The defaults are the values of fields that are missing from a record.
_READ: dict[FieldType, Entry] = {
    FieldType.TYPE_BOOL: FixedLen((), "bool", default=False),
    FieldType.TYPE_INT32: FixedLen((), "int32", default=0),
    FieldType.TYPE_INT64: FixedLen((), "int64", default=0),
    FieldType.TYPE_FLOAT: FixedLen((), "float32", default=0.0),
    FieldType.TYPE_STRING: FixedLen((), "str", default=""),
    FieldType.TYPE_ARRAY_FLOAT32: FixedLen((), "bytes", default=b""),
    FieldType.TYPE_ARRAY_INT32: FixedLen((), "bytes", default=b""),
    FieldType.TYPE_BYTES: FixedLen((), "bytes", default=b""),
}
_STORED_ARRAYS = (np.dtype(np.float32), np.dtype(np.int32))  # TFRecorder rejects other types


class FieldError(SchemaError, TypeError):
    """A value does not fit its field. This is also a TypeError, because TFRecorder raises one."""


class Example(DeclaredExample):
    """An example with declared fields. See `asyncrec.example.DeclaredExample`, and this module for the differences.

    An example keeps its arrays after it has been written, because it may be in several folds. If ``load`` is
    overridden, the arrays are released, because ``load`` can restore them.
    """

    Field = Field  # type: ignore[assignment]  # TFRecorder's numbers for the same types
    _reading: ClassVar[Schema] = Schema({})

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        cls._reading = Schema({name: _READ[dtype] for name, dtype in cls._fields.items()}, allow_extra=True)

    @classmethod
    def get_tfrecordable_attribute_names(cls) -> list[str]:
        """Return the names of the fields, in the order of declaration."""
        return list(cls.fields())

    @classmethod
    def get_tfrecordable_ordered_dict(cls) -> OrderedDict[str, FieldOf]:
        """Return the fields and their types, in the order of declaration."""
        return OrderedDict((name, _THEIRS[dtype]) for name, dtype in cls.fields().items())

    def serialize_to_string(self) -> bytes:
        """Return the record. This is the old name of `encode`."""
        return self.encode()

    def get_byte_size(self) -> int:
        """Return the size of the record in bytes. Each call encodes the record."""
        return len(self.encode())

    def encode(self) -> bytes:
        """Return the record. Raise FieldError, which is also a TypeError, if a value does not fit its field."""
        try:
            return super().encode()
        except SchemaError as error:
            raise FieldError(str(error)) from None

    @classmethod
    def decode(cls, record: bytes) -> tuple[Any, ...]:
        """Return the values of a record, in the order of declaration.

        Arrays are flat. A missing field is 0, False, "" or an empty array.
        """
        values = cls._reading.decode(record)
        return tuple(_flat(name, values[name], dtype) for name, dtype in cls._fields.items())

    @classmethod
    def parse_from_string(cls, serialized_examples: Any) -> tuple[Any, ...]:
        """Return the values of a record as tensors, for a dataset's ``map``. Without TensorFlow, call `decode`."""
        tensorflow = found_tensorflow()
        if tensorflow is None:
            return cls.decode(serialized_examples)
        return tensors(tensorflow, cls._fields, serialized_examples)

    @staticmethod
    def to_csv_file(filepath: Path, examples: Iterable[Any]) -> None:
        """Append a row for each example to a CSV file at a local path or a URL. Create the file if it does not exist.

        The whole file is read and rewritten, because stores cannot append.
        """
        lines = "".join(csv_line(example.to_csv_row()) for example in examples)
        try:
            before = read_file(filepath)
        except ObjectNotFoundError:
            before = b""
        write_file(filepath, before + lines.encode("utf-8"))

    @classmethod
    def from_csv_file(cls, filepath: Path, **kwargs: Any) -> list[Any]:
        """Return an example, not yet loaded, for each row of the CSV file at a path or URL. See `read_examples`."""
        return read_examples(cls, filepath, **kwargs)

    def release(self) -> Any:
        """Call `DeclaredExample.release` if ``load`` is overridden. Otherwise, do nothing."""
        return None if type(self).load is DeclaredExample.load else super().release()

    def _stored(self, value: Any, dtype: FieldType) -> Any:
        if dtype == FieldType.TYPE_BOOL and isinstance(value, int | np.integer):
            value = bool(value)
        elif dtype in (FieldType.TYPE_INT32, FieldType.TYPE_INT64) and isinstance(value, bool | np.bool_):
            value = int(value)
        elif dtype in ARRAYS and isinstance(value, np.ndarray) and value.dtype not in _STORED_ARRAYS:
            raise SchemaError(
                f"the value is an array of {value.dtype}, but the field is declared as {ARRAYS[dtype].name}; "
                f"convert it with .astype(numpy.{ARRAYS[dtype].name})"
            )
        return stored(value, dtype)


def read_examples(kind: type[DeclaredExample], filepath: Path, **kwargs: Any) -> list[Any]:
    """Return the result of ``from_csv_row`` for each row of a file, except rows that raise IgnoreExampleException.

    Raises:
        ObjectNotFoundError: the file does not exist.
        Exception: the error of ``from_csv_row``, with a note that names the line.
    """
    examples: list[Any] = []
    reader = csv.reader(io.StringIO(read_file(filepath).decode("utf-8"), newline=""))
    for row in reader:
        if not row:
            continue
        try:
            examples.append(kind.from_csv_row(row, **kwargs))
        except IgnoreExampleException:
            continue
        except Exception as error:
            error.add_note(f"{redact(fspath(filepath))}, line {reader.line_num}: {kind.__name__}.from_csv_row")
            raise
    return examples


def read_file(path: Path) -> bytes:
    """Read the file at a local path or a URL."""

    async def read() -> bytes:
        async with located(path) as (store, key):
            return await store.get(key)

    return current_portal().run(read)


def write_file(path: Path, data: bytes) -> None:
    """Replace the file at a local path or a URL."""

    async def write() -> None:
        async with located(path) as (store, key):
            await store.put(key, data)

    current_portal().run(write)


def _flat(name: str, value: Any, dtype: FieldType) -> Any:
    if dtype not in ARRAYS:
        return value
    try:
        return np.frombuffer(value, ARRAYS[dtype]).astype(ARRAYS[dtype].newbyteorder("="))
    except ValueError:
        raise SchemaError(
            f"feature {name!r}: its {len(value)} bytes are not a whole number of {ARRAYS[dtype].name} values"
        ) from None


def tensors(tensorflow: Any, fields: Mapping[str, FieldType], record: Any) -> tuple[Any, ...]:
    """Parse a record with TensorFlow's operations. A missing field is 0, False, "" or an empty array."""
    kinds = {name: _stored_kind(tensorflow, dtype) for name, dtype in fields.items()}
    features = {
        name: tensorflow.io.FixedLenFeature((), kind, default_value="" if kind == tensorflow.string else 0)
        for name, kind in kinds.items()
    }
    parsed = tensorflow.io.parse_single_example(record, features)
    return tuple(_tensor(tensorflow, parsed[name], dtype) for name, dtype in fields.items())


def _stored_kind(tensorflow: Any, dtype: FieldType) -> Any:
    if dtype == FieldType.TYPE_FLOAT:
        return tensorflow.float32
    whole = (FieldType.TYPE_BOOL, FieldType.TYPE_INT32, FieldType.TYPE_INT64)
    return tensorflow.int64 if dtype in whole else tensorflow.string


def _tensor(tensorflow: Any, value: Any, dtype: FieldType) -> Any:
    if dtype in ARRAYS:
        return tensorflow.io.decode_raw(value, tensorflow.as_dtype(ARRAYS[dtype].newbyteorder("=")))
    if dtype == FieldType.TYPE_DOUBLE:  # written by `asyncrec.example.DeclaredExample`, as eight bytes
        return tensorflow.reshape(tensorflow.io.decode_raw(value, tensorflow.float64), ())
    if dtype == FieldType.TYPE_BOOL:
        return tensorflow.cast(value, tensorflow.bool)
    return tensorflow.cast(value, tensorflow.int32) if dtype == FieldType.TYPE_INT32 else value
