"""`ColumnTypes` keeps all times in a data set's column in the same unit.

A record stores a time as an integer, and the Arrow schema in the manifest gives one unit for the entire column.
Therefore, a writer keeps the data set's units, and casts the times of each batch to them.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa

from asyncrec._concurrency.tasks import in_thread
from asyncrec._shards.manifest.manifest import Manifest
from asyncrec._shards.manifest.snapshot import dataset_at, load_manifest
from asyncrec.errors import SchemaError
from asyncrec.example._schema import Schema
from asyncrec.integrations.arrow._to_records import chunks_of
from asyncrec.integrations.arrow._types import ARROW_SCHEMA, encode_arrow, known_arrow, stored_types
from asyncrec.integrations.arrow._units import kind_of_time, leaf_of, with_leaf
from asyncrec.storage._base import Storage

Array: TypeAlias = Any


class ColumnTypes:
    """The types of a writer's columns. They can be pickled, and any number of threads may use them.

    Attributes:
        path: the path of the data set, for errors.
        schema: the schema of the records; `None` if each batch has its own.
        metadata: the metadata for the manifest, including the Arrow schema if the types are known.
        appends: whether the records are appended to the data set rather than replacing it.
    """

    def __init__(
        self,
        path: str,
        schema: Schema | None,
        metadata: Mapping[str, Any],
        *,
        mode: str = "append",
        types: Mapping[str, Any] | None = None,
    ) -> None:
        self.path = path
        self.schema = schema
        self.metadata = dict(metadata)
        self.appends = mode == "append"
        if mode == "replace":
            self.metadata.setdefault(ARROW_SCHEMA, None)  # otherwise, the replaced records' Arrow schema would stay
        if types is None and schema is not None:
            types = stored_types(schema, metadata)
        self._types = dict(types or {})
        self._remembered: dict[str, Any] = {}

    def agreed(self, before: Manifest | None) -> ColumnTypes:
        """Return types with the units of the data set being appended to, or this object if its units already match.

        Raises:
            SchemaError: a column of the data set holds a different kind of time, or plain integers.
        """
        if before is None or before.schema is None or not self.appends:
            return self
        theirs = Schema.from_json(before.schema)
        stored = stored_types(theirs, before.metadata) or {}
        own = known_arrow(self.metadata)
        if own is None or self.schema is None:
            text = before.metadata[ARROW_SCHEMA] if stored else None
            if self.metadata.get(ARROW_SCHEMA) == text:
                return self
            metadata = {**self.metadata, ARROW_SCHEMA: text}
            return ColumnTypes(self.path, self.schema, metadata, types=stored if self.schema is None else None)
        common = {
            name: self._common(name, kind, stored.get(name))
            for name, kind in self._types.items()
            if name in theirs.features
        }
        changed = {name: kind for name, kind in common.items() if kind != self._types[name]}
        if not changed:
            return self
        for name, kind in changed.items():
            number = own.get_field_index(name)
            own = own.set(number, own.field(number).with_type(kind))
        return ColumnTypes(self.path, self.schema, {**self.metadata, ARROW_SCHEMA: encode_arrow(own)})

    def check(self, before: Manifest | None) -> None:
        """Raise SchemaError if the data set's types differ, because another writer has committed its first records."""
        if self.agreed(before) is not self:
            raise SchemaError(
                f"{self.path}: another writer, with other units of time, has just written to the data set; open the "
                "writer again, or run the job again, to use these units"
            )

    def cast(self, batch: Any) -> Any:
        """Return a RecordBatch or Table with its times cast to these types. Types not known before are remembered.

        Raises:
            SchemaError: a column has a different kind of values, or one of its times cannot be represented in the unit.
            TypeError: ``batch`` is neither a RecordBatch nor a Table.
        """
        chunks_of(batch)
        for number, field in enumerate(batch.schema):
            if self.schema is not None and field.name not in self.schema.features:
                continue
            found = leaf_of(field.type)
            is_time = kind_of_time(found) is not None
            declared = self._types.get(field.name)
            if declared is None and (is_time or pa.types.is_integer(found)):
                declared = self._remembered.setdefault(field.name, field.type)
            if declared is None or pa.types.is_null(found):
                continue
            wanted = leaf_of(declared)
            if found == wanted or not (is_time or kind_of_time(wanted) is not None):
                continue
            if kind_of_time(found) != kind_of_time(wanted):
                raise SchemaError(
                    f"{self.path}: column {field.name!r} is {field.type} in the batch, but {declared} in the data set; "
                    f"cast the column to {declared}"
                )
            column = self._cast(field, batch.column(number), declared)
            batch = batch.set_column(number, field.with_type(column.type), column)
        return batch

    def _common(self, name: str, own: Any, theirs: Any) -> Any:
        """Return a column's type ``own`` with the unit of the stored type (`None` if no type is stored)."""
        mine, other = leaf_of(own), leaf_of(theirs or pa.null())
        if kind_of_time(mine) == kind_of_time(other):
            if kind_of_time(mine) is None:
                return own
            if mine.bit_width == other.bit_width:
                return with_leaf(own, other)
        stored = "integers without a unit" if theirs is None else theirs
        wanted = "integers" if theirs is None else theirs
        raise SchemaError(f"{self.path}: column {name!r} is {own}, but the data set stores {stored}").with_remedy(
            f"cast the column to {wanted}, write to another name, or replace the data set with mode='replace'",
            command=f"cast the column to {wanted}, or write to another name",
        )

    def _cast(self, field: Any, column: Array, declared: Any) -> Array:
        found, wanted = (with_leaf(field.type, leaf_of(kind)) for kind in (field.type, declared))

        def cast(part: Array) -> Array:
            if pa.types.is_nested(field.type):
                part = part.take(pa.array(np.arange(len(part))))  # otherwise, lists outside a slice are cast
            return part.cast(found).cast(wanted)  # the first cast decodes dictionaries

        try:
            return cast(column)
        except pa.ArrowException as error:
            row, fault = _first_fault(cast, column, error)
            raise SchemaError(
                f"{self.path}: column {field.name!r}: row {row} of the batch: {fault}; the data set stores {declared}, "
                "so round or remove such values, or write them to another data set"
            ) from error


def common_types(
    path: str | os.PathLike[str], metadata: Sequence[Mapping[str, Any]], names: Collection[str] | None = None
) -> Mapping[str, Any]:
    """Return metadata with the Arrow types that all the data sets have in common, of all columns or of ``names``.

    Raises:
        SchemaError: two data sets store different kinds or units of time in a column, as integers of the same type.
    """
    texts = {each.get(ARROW_SCHEMA) for each in metadata if isinstance(each.get(ARROW_SCHEMA), str | None)}
    if len(metadata) < 2 or len(texts) < 2:
        return metadata[0] if metadata else {}
    known = [known_arrow(each) or pa.schema([]) for each in metadata]
    fields = []
    for name in dict.fromkeys(name for each in known for name in each.names) if names is None else names:
        found = [each.field(name) for each in known if each.get_field_index(name) >= 0]
        times = [field.type for field in found if kind_of_time(leaf_of(field.type)) is not None]
        for other in times[1:]:
            if leaf_of(other) != leaf_of(times[0]):
                raise SchemaError(
                    f"{os.fspath(path)}: column {name!r} is {times[0]} in one data set, but {other} in another"
                ).with_remedy("read the data sets one by one, and cast the column, or leave it out with columns=")
        if len(found) == len(known) and all(field.type == found[0].type for field in found):
            fields.append(found[0])
    return {ARROW_SCHEMA: encode_arrow(pa.schema(fields))}


async def agreed_types(
    path: Any, types: ColumnTypes, *, storage: Storage | None = None, storage_options: dict[str, Any] | None = None
) -> ColumnTypes:
    """Call `ColumnTypes.agreed` with the data set at ``path``."""
    if not types.appends:
        return types
    async with dataset_at(path, storage=storage, storage_options=storage_options) as (folder, name):
        before = await load_manifest(folder, name, path=types.path)
    return await in_thread(types.agreed, before)


async def check_types(path: Any, types: ColumnTypes, *, storage_options: dict[str, Any] | None = None) -> None:
    """Call `ColumnTypes.check` with the data set at ``path``."""
    if not types.appends:
        return
    async with dataset_at(path, storage_options=storage_options) as (folder, name):
        before = await load_manifest(folder, name, path=types.path)
    await in_thread(types.check, before)


def _first_fault(cast: Any, column: Array, error: pa.ArrowException) -> tuple[int, pa.ArrowException]:
    """Return the first row of a column that cannot be cast, and the error for it."""
    start, stop = 0, len(column)
    while stop - start > 1:
        middle = (start + stop) // 2
        try:
            cast(column.slice(start, middle - start))
            start = middle
        except pa.ArrowException as earlier:
            error, stop = earlier, middle
    return start, error
