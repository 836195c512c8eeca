"""Classes that declare the fields of their examples, as in TFRecorder. Each instance is one example.

    class Page(DeclaredExample):
        def __init__(self, name, label):
            super().__init__()
            self.name, self._label, self._data = name, label, None

        @tfrecordable(dtype=DeclaredExample.Field.TYPE_INT32)
        def label(self):
            return self._label

        @tfrecordable(dtype=DeclaredExample.Field.TYPE_ARRAY_FLOAT32)
        def data(self):
            return self._data

        @data.setter
        def data(self, value):
            self._data = value

A class has the fields of its parents, followed by its own, in the order of declaration. An overridden field keeps its
position. Fields are stored under the names of the attributes, in the form that ``Schema`` reads:

    TYPE_BOOL, TYPE_INT32, TYPE_INT64   one int64        checked against the range of the type
    TYPE_FLOAT                          one float        rounded to float32; an integer must fit float32 exactly
    TYPE_DOUBLE                         one bytes value  its eight bytes, little-endian, without rounding
    TYPE_STRING, TYPE_BYTES             one bytes value  str as UTF-8; bytes unchanged (an encoded image)
    TYPE_ARRAY_FLOAT32, _INT32          one bytes value  the array's bytes, little-endian, in C order, with
                                                         ``<name>_shape``, so that reading restores the shape

TFRecorder also stores arrays as bytes, but without their shape, so its arrays are read as one-dimensional. An array of
another type is accepted if the declared type can represent each of its values. A float64 array is rounded to float32. A
value of None raises SchemaError.
"""

from __future__ import annotations

from collections.abc import Awaitable, Iterable, Sequence
from typing import Any, ClassVar, TypeAlias

import numpy as np

from asyncrec.errors import ArgumentTypeError, SchemaError
from asyncrec.example._codec import encode_example
from asyncrec.example._fields import ARRAYS, ENTRIES, LARGE, FieldType, Recordable, stored, tfrecordable
from asyncrec.example._schema import Schema

__all__ = ["DeclaredExample", "IgnoreExample", "check_round_trip", "tfrecordable"]


class IgnoreExample(Exception):
    """Raised by ``from_csv_row``, ``load`` or ``split`` to skip an example. The message is the reason."""


class DeclaredExample:
    """The base class of examples with declared fields.

    A subclass overrides ``load``, ``split``, ``release``, ``from_csv_row`` and ``to_csv_row`` as needed, with ``def``
    or ``async def``. The function that writes the examples passes its ``kwargs`` to ``from_csv_row``, ``load`` and
    ``split``.

    The types of fields are the members of ``Field``: ``TYPE_BOOL``, ``TYPE_INT32``, ``TYPE_INT64``, ``TYPE_FLOAT``,
    ``TYPE_DOUBLE``, ``TYPE_STRING``, ``TYPE_BYTES``, ``TYPE_ARRAY_FLOAT32`` and ``TYPE_ARRAY_INT32``.

    Defining a subclass raises TypeError if a field has the name of a method of this class, or the name under which the
    shape of an array is stored.
    """

    Field: TypeAlias = FieldType
    _fields: ClassVar[dict[str, FieldType]] = {}
    _schema: ClassVar[Schema] = Schema({})

    def __init__(self) -> None:
        """Do nothing. A subclass need not call this."""

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        fields: dict[str, FieldType] = {}
        for base in reversed(cls.__mro__):
            for name, value in vars(base).items():
                if isinstance(value, Recordable):
                    fields[name] = value.dtype
                elif name in fields:
                    del fields[name]  # a plain attribute overrides the field
        for name, dtype in fields.items():
            if name in vars(DeclaredExample):
                raise ArgumentTypeError(
                    f"{cls.__name__}.{name}: DeclaredExample has a method with this name; choose another name"
                )
            if dtype in ARRAYS and f"{name}_shape" in fields:
                raise ArgumentTypeError(
                    f"{cls.__name__}.{name}_shape: this name is reserved for the shape of {name!r}; choose another name"
                )
        cls._fields = fields
        cls._schema = Schema({name: ENTRIES[dtype] for name, dtype in fields.items()})

    @classmethod
    def fields(cls) -> dict[str, FieldType]:
        """Return a copy of the declared fields and their types, in order."""
        return dict(cls._fields)

    @classmethod
    def schema(cls) -> Schema:
        """Return the schema of the class's records."""
        return cls._schema

    @classmethod
    def decode(cls, record: bytes) -> tuple[Any, ...]:
        """Return the values of a record, in the order of declaration. Raises the same errors as ``Schema.decode``."""
        return tuple(cls._schema.decode(record).values())

    def encode(self) -> bytes:
        """Encode the example as a record, a serialized tf.train.Example.

        Raises SchemaError, naming the class and the field, if a value does not have the declared type.
        """
        values: dict[str, object] = {}
        for name, dtype in type(self)._fields.items():
            try:
                value = self._stored(getattr(self, name), dtype)
            except SchemaError as error:
                raise SchemaError(f"{type(self).__name__}.{name}: {error}") from None
            if dtype in ARRAYS:
                values[name], values[f"{name}_shape"] = value
            else:
                values[name] = value
        return encode_example(values)

    def _stored(self, value: Any, dtype: FieldType) -> Any:
        """Convert a value for the encoder. `asyncrec.compat.tfrecorder` overrides this to accept more types."""
        return stored(value, dtype)

    def load(self, **kwargs: Any) -> Awaitable[None] | None:
        """Load large data into memory, just before the example is encoded. The default does nothing."""
        return None

    def split(self, **kwargs: Any) -> Iterable[DeclaredExample] | Awaitable[Iterable[DeclaredExample]]:
        """Return the examples to write for this example, after `load`. The default returns only this example."""
        return [self]

    def release(self) -> Awaitable[None] | None:
        """Release memory once the example is encoded. The default sets array and bytes fields with a setter to None."""
        for name, dtype in type(self)._fields.items():
            attribute = getattr(type(self), name)
            if dtype in LARGE and attribute.fset is not None:
                setattr(self, name, None)
        return None

    @staticmethod
    def from_csv_row(row: list[str], **kwargs: Any) -> DeclaredExample | Awaitable[DeclaredExample]:
        """Return the example described by a row of a CSV file, without loading it. The values of the row are str."""
        raise NotImplementedError(f"override from_csv_row to turn a CSV row into an example; the row is {row!r}")

    def to_csv_row(self) -> Sequence[object] | Awaitable[Sequence[object]]:
        """Return a row from which ``from_csv_row`` can recreate this example."""
        raise NotImplementedError(f"override {type(self).__name__}.to_csv_row to list its examples in a CSV file")


def check_round_trip(
    example: DeclaredExample | type[DeclaredExample], row: list[str] | None = None, **kwargs: Any
) -> None:
    """Check, in a test, that encoding and decoding an example preserves its values and shapes.

    Pass a loaded example, or a class and a CSV row. An example is created from the row, loaded and split with
    ``kwargs``, and each part is checked. ``from_csv_row`` must recreate the example from the result of ``to_csv_row``.

    Raises SchemaError, naming the field and both values, if a value differs; TypeError if the class declares no fields,
    if ``from_csv_row`` does not return an instance of the class, or if a method to be called is ``async`` (await it,
    and pass the example).
    """
    if isinstance(example, type):
        if row is None:
            raise ArgumentTypeError(f"{example.__name__} is a class; pass a CSV row as well, or pass a loaded example")
        made = _awaited_by_none(example.from_csv_row(row, **kwargs))
        if not isinstance(made, example):
            raise ArgumentTypeError(
                f"{example.__name__}.from_csv_row returned a {type(made).__name__} instead of an example"
            )
        described = [str(value) for value in _awaited_by_none(made.to_csv_row())]
        again = _awaited_by_none(_awaited_by_none(example.from_csv_row(described, **kwargs)).to_csv_row())
        if [str(value) for value in again] != described:
            raise SchemaError(
                f"{example.__name__}: to_csv_row returned {described}, but after a round trip through from_csv_row "
                f"it returned {again}"
            )
        _awaited_by_none(made.load(**kwargs))
        for part in _awaited_by_none(made.split(**kwargs)):
            _check(part)
    else:
        _check(example)


def _check(example: DeclaredExample) -> None:
    kind = type(example)
    if not kind.fields():
        raise ArgumentTypeError(f"{kind.__name__} has no field declared with @tfrecordable; declare at least one")
    record = example.encode()
    batch = Schema.from_json(kind.schema().to_json()).decode_batch([record, record])
    for (name, dtype), value in zip(kind.fields().items(), kind.decode(record), strict=True):
        given = getattr(example, name)
        expected = np.float32(given).item() if dtype == FieldType.TYPE_FLOAT else given
        for read in (value, batch[name][1]):
            if np.shape(read) != np.shape(expected) or not _equal(read, expected):
                raise SchemaError(f"{kind.__name__}.{name}: {given!r} was written, but {read!r} was read")


def _equal(one: Any, other: Any) -> bool:
    if isinstance(one, str | bytes):
        return one == (bytes(other) if isinstance(one, bytes) else other)
    return bool(np.array_equal(one, other, equal_nan=True))


def _awaited_by_none(value: Any) -> Any:
    if hasattr(value, "__await__"):
        if hasattr(value, "close"):
            value.close()  # prevents Python's warning that the coroutine was never awaited
        raise ArgumentTypeError("this method is async; await it, then pass the loaded example")
    return value
