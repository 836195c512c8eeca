"""Convert a `Schema` to an Arrow schema and back. Each entry of a `Schema` corresponds to the type of an Arrow column.

The `Schema` is also stored in the Arrow schema's metadata, to restore what Arrow types cannot express (defaults,
``raw``, the shape of a sparse array).
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from asyncrec.errors import ArgumentValueError, SchemaError
from asyncrec.example._compound import Sequence, Sparse
from asyncrec.example._entries import Entry
from asyncrec.example._kinds import FixedLen, Tensor, VarLen
from asyncrec.example._schema import Schema

METADATA = b"asyncrec.schema"
"""The key of a Schema in the metadata of an Arrow schema. The value is JSON."""

ARROW_SCHEMA = "ARROW:schema"
"""The key of an Arrow schema in a manifest's metadata. Parquet files use the same name."""

_NUMBERS = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float16", "float32", "float64")
_MOST_BYTES = 1 << 20  # the largest Arrow schema accepted from a manifest, which is not trusted


def arrow_schema(schema: Schema, *, columns: Iterable[str] | None = None, large: bool = False) -> Any:
    """Return the ``pyarrow.Schema`` of batches of records with this schema. Its metadata contains the `Schema`.

    Args:
        schema: the schema of the records.
        columns: the names of the columns to read, in this order; all by default.
        large: whether to use 64-bit offsets for bytes and text, for columns of over 2 GiB in one batch.

    Raises:
        ValueError: a name is not a column.
    """
    chosen = selected_schema(schema, columns)
    fields = [_field(name, entry, large) for name, entry in chosen.features.items()]
    return pa.schema(fields, metadata={METADATA: json.dumps(chosen.to_json(), separators=(",", ":")).encode()})


def schema_of(arrow: Any, *, nulls: Iterable[str] = ()) -> Schema:
    """Return the `Schema` of records made from batches with this Arrow schema.

    The entry of a column is taken from the metadata, if it fits the column's type.

    Otherwise, the type determines it: numbers, booleans, text and bytes become FixedLen of one value, fixed-size lists
    FixedLen of their shape, lists VarLen, and lists of lists Sequence. Times, dates and durations become integers.
    float64 keeps its name but is stored as float32, because an Example has no other floats.

    Args:
        arrow: a ``pyarrow.Schema``.
        nulls: the names of columns of single values that contain nulls. These become VarLen.

    Raises:
        SchemaError: a column has a type that no feature can hold (struct, map, union, decimal, null); or the metadata
            contains a schema that is invalid or of another version.
    """
    known = _known(arrow.metadata or {})
    plain = {} if known is None else {field.name: field.type for field in arrow_schema(known)}
    absent = set(nulls)
    found: dict[str, Entry] = {}
    for field in arrow:
        if field.name in found:
            raise SchemaError(
                f"two columns have the name {field.name!r}; rename one, because each feature of a record needs its "
                "own name"
            )
        if known is not None and field.name in plain and _read_as(field.type, plain[field.name]) is not None:
            entry = known.features[field.name]
        else:
            entry = _entry(field.name, field.type)
        if field.name in absent and not isinstance(entry, VarLen | Sparse | Sequence):
            entry = _where_null(field.name, entry)
        found[field.name] = entry
    left_out = known is not None and not known.features.keys() <= found.keys()
    return Schema(found, allow_extra=left_out or (known is not None and known.allow_extra))


def selected_schema(schema: Schema, columns: Iterable[str] | None) -> Schema:
    """Return a schema of only the chosen columns. Other features of the records are skipped when they are read.

    Raises:
        ValueError: a name is not a column.
    """
    if columns is None:
        return schema
    wanted = list(columns)
    features = schema.features
    if missing := [name for name in wanted if name not in features]:
        raise ArgumentValueError(f"there is no column {missing[0]!r}; the columns are {', '.join(map(repr, features))}")
    return Schema({name: features[name] for name in wanted}, allow_extra=True)


def encode_arrow(arrow: Any) -> str:
    """Return an Arrow schema without its metadata, as text for a manifest."""
    return base64.b64encode(arrow.remove_metadata().serialize().to_pybytes()).decode()


def restored(plain: Any, metadata: Mapping[str, Any]) -> Any:
    """Return ``plain``, a result of `arrow_schema`, with the columns' original types if the metadata contains them.

    The manifest is not trusted, so an original type is used only if the column can be cast to it. Metadata that cannot
    be read is ignored. A dictionary column is read as a column of its values.
    """
    told = known_arrow(metadata)
    if told is None:
        return plain
    fields = []
    for field in plain:
        at = told.get_field_index(field.name)
        written = told.field(at) if at >= 0 else field
        kind = _read_as(written.type, field.type)
        fields.append(field if kind is None else written.remove_metadata().with_type(kind))
    return pa.schema(fields, metadata=plain.metadata)


def known_arrow(metadata: Mapping[str, Any]) -> Any:
    """Return the Arrow schema in a manifest's metadata, or `None` if there is no readable one."""
    text = metadata.get(ARROW_SCHEMA)
    if not isinstance(text, str) or len(text) > _MOST_BYTES:
        return None
    try:
        return pa.ipc.read_schema(pa.py_buffer(base64.b64decode(text, validate=True)))
    except (ValueError, pa.ArrowException, OSError):
        return None


def stored_types(schema: Schema, metadata: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the types in which readers read columns, or `None` if the metadata has no readable Arrow schema."""
    told = known_arrow(metadata)
    if told is None:
        return None
    features = {
        name: entry
        for name, entry in schema.features.items()
        if isinstance(entry, FixedLen | VarLen | Sequence) and told.get_field_index(name) >= 0
    }
    return {field.name: field.type for field in restored(arrow_schema(Schema(features)), metadata)}


def _known(metadata: Mapping[bytes, bytes]) -> Schema | None:
    text = metadata.get(METADATA)
    if text is None:
        return None
    try:
        return Schema.from_json(json.loads(text))
    except ValueError as error:
        raise SchemaError(f"the schema in the Arrow metadata is not valid: {error}") from error


def _read_as(written: Any, plain: Any, *, single: bool = True) -> Any:
    """Return the type in which to read a column of the type ``plain`` that was written as ``written``.

    This is ``written``, or the type of the values of its dictionaries, extension types and views. The result is `None`
    if ``plain`` cannot be cast to it. ``single`` is whether single values may be read from lists.
    """
    types = pa.types
    if written == plain:
        return written
    if isinstance(written, pa.BaseExtensionType):
        return _read_as(written.storage_type, plain, single=single)
    if types.is_dictionary(written):
        return _read_as(written.value_type, plain, single=single)
    if _is_list(plain) or types.is_fixed_size_list(plain):
        return _list_read_as(written, plain, single=single)
    if types.is_int64(plain):
        fits = types.is_timestamp(written) or types.is_duration(written)
        fits = fits or types.is_date64(written) or types.is_time64(written)
    elif types.is_int32(plain):
        fits = types.is_date32(written) or types.is_time32(written)
    elif types.is_string(plain):
        if _is(written, "string"):
            return plain
        fits = types.is_large_string(written)
    else:
        if types.is_binary(plain) and _is(written, "binary"):
            return plain
        fits = types.is_binary(plain) and (types.is_large_binary(written) or types.is_fixed_size_binary(written))
    return written if fits else None


def _list_read_as(written: Any, plain: Any, *, single: bool) -> Any:
    types = pa.types
    fixed = types.is_fixed_size_list(written)
    if not (_is_list(written) or fixed):
        return _read_as(written, plain.value_type, single=False) if single and types.is_list(plain) else None
    if types.is_fixed_size_list(plain) and not (fixed and written.list_size == plain.list_size):
        return None
    values = _read_as(written.value_type, plain.value_type, single=False)
    if values is None:
        return None
    field = plain.value_field.with_name(written.value_field.name).with_type(values)
    if types.is_fixed_size_list(plain):
        return pa.list_(field, plain.list_size)
    return pa.large_list(field) if types.is_large_list(written) else pa.list_(field)


def _field(name: str, entry: Entry, large: bool) -> Any:
    kind = _type(entry, large)
    if isinstance(entry, VarLen):
        return pa.field(name, kind, nullable=True)
    return pa.field(name, kind, nullable=False)


def _type(entry: Entry, large: bool) -> Any:
    if isinstance(entry, FixedLen):
        kind = _scalar(entry.dtype, large)
        for size in reversed(entry.shape):
            kind = pa.list_(kind, size)
        return kind
    if isinstance(entry, VarLen):
        return pa.list_(_scalar(entry.dtype, large))
    if isinstance(entry, Sequence):
        return pa.list_(_type(entry.entry, large))
    if isinstance(entry, Tensor):
        fields = {"values": pa.list_(_scalar(entry.dtype, large)), "shape": pa.list_(pa.int64())}
    elif isinstance(entry, Sparse):
        place = pa.list_(pa.int64(), len(entry.shape))
        fields = {"indices": pa.list_(place), "values": pa.list_(_scalar(entry.dtype, large))}
    else:
        raise SchemaError(f"{entry!r} cannot be read as a column; leave the feature out with columns=")
    return pa.struct([pa.field(name, kind, nullable=False) for name, kind in fields.items()])


def _scalar(dtype: str, large: bool) -> Any:
    if dtype == "str":
        return pa.large_string() if large else pa.string()
    if dtype == "bytes":
        return pa.large_binary() if large else pa.binary()
    return pa.bool_() if dtype == "bool" else pa.from_numpy_dtype(np.dtype(dtype))


def _entry(name: str, kind: Any) -> Entry:
    types = pa.types
    if isinstance(kind, pa.BaseExtensionType):
        shape = getattr(kind, "shape", None)  # a tensor type of Arrow or Ray
        if shape is None:
            return _entry(name, kind.storage_type)
        return FixedLen(tuple(shape), _dtype(name, kind.storage_type.value_type))
    if types.is_dictionary(kind):
        return _entry(name, kind.value_type)
    if types.is_fixed_size_list(kind):
        inner = _entry(name, kind.value_type)
        if isinstance(inner, FixedLen):
            return FixedLen((kind.list_size, *inner.shape), inner.dtype)
    elif _is_list(kind):
        inner = _entry(name, kind.value_type)
        if isinstance(inner, FixedLen) and inner.shape == ():
            return VarLen(inner.dtype)
        if isinstance(inner, FixedLen | VarLen):
            return Sequence(inner)
    else:
        return FixedLen((), _dtype(name, kind))
    raise SchemaError(f"column {name!r} is {kind}, whose lists are nested too deeply for a feature; flatten the column")


def _dtype(name: str, kind: Any) -> str:
    types = pa.types
    if types.is_boolean(kind):
        return "bool"
    for dtype in _NUMBERS:
        if kind == pa.from_numpy_dtype(np.dtype(dtype)):
            return dtype
    if _is_text(kind):
        return "str"
    if types.is_binary(kind) or types.is_large_binary(kind) or types.is_fixed_size_binary(kind) or _is(kind, "binary"):
        return "bytes"
    if types.is_date32(kind) or types.is_time32(kind):
        return "int32"
    if types.is_timestamp(kind) or types.is_duration(kind) or types.is_date64(kind) or types.is_time64(kind):
        return "int64"
    raise SchemaError(
        f"column {name!r} is {kind}, which no feature can hold; cast the column to numbers, booleans, text, bytes, "
        "times or lists of these, or leave it out"
    )


def _is_list(kind: Any) -> bool:
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind))


def _is_text(kind: Any) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or _is(kind, "string"))


def _is(kind: Any, name: str) -> bool:
    """Return whether a type is Arrow's ``<name>_view``. Only recent versions of pyarrow have view types."""
    return str(kind) == f"{name}_view"


def _where_null(name: str, entry: Entry) -> Entry:
    if isinstance(entry, FixedLen) and entry.default is not None:
        return entry
    if isinstance(entry, FixedLen) and entry.shape == ():
        return VarLen(entry.dtype)
    absent = entry.where_absent()
    if isinstance(absent, VarLen) or (absent is not None and not isinstance(absent, Sequence)):
        return absent
    raise SchemaError(
        f"column {name!r}: some values are null, but {entry} requires a value in every record; fill or remove the nulls"
    )
