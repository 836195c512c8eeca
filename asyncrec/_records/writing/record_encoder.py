"""`RecordEncoder` encodes or checks each record before a writer with a schema accepts it.

A mapping of names to values is checked against the schema, and encoded. Bytes are checked according to ``validate``.
An invalid record is therefore rejected by the call that writes it, before it uses any room, key or ticket.

`asyncrec.example` is imported when an encoder is created, so a program that writes bytes does not wait for the import.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeAlias

from asyncrec._concurrency.turns import Turns
from asyncrec._records.record_size import LARGE_EXAMPLE, LARGE_RECORD, as_record, buffer_size
from asyncrec.errors import ArgumentTypeError, ArgumentValueError, DecodeError, ExampleError, SchemaError
from asyncrec.storage._base import Buffer

if TYPE_CHECKING:
    from asyncrec.example._schema import Schema

Record: TypeAlias = "Buffer | Mapping[str, Any]"
Validate = Literal["sample", "all", "none"]
Key: TypeAlias = "str | bytes | None"

# With ``validate="sample"``, the first hundred records passed as bytes are checked, because most mistakes show up
# there, and then one in a hundred.
_SAMPLE_FIRST = 100
_SAMPLE_EVERY = 100
# The number of rows encoded in one step. Encoding a small row takes a few microseconds.
_ROWS = 64


class HasJson(Protocol):
    """An `asyncrec.Schema`, or another object with the same ``to_json`` method."""

    def to_json(self) -> Mapping[str, Any]: ...


GivenSchema: TypeAlias = "HasJson | Mapping[str, Any] | None"


class RecordEncoder:
    """The encoder of one writer.

    Attributes:
        schema: the schema of the records; if `None`, values are encoded as by `asyncrec.encode_example`.
        key_feature: the feature that contains each record's key.
    """

    def __init__(
        self, path: str, schema: Schema | None, *, validate: Validate = "none", key_feature: str | None = None
    ) -> None:
        from asyncrec.example._codec import encode_example
        from asyncrec.example._encoding import Encoder, is_large

        self.schema = schema
        self.key_feature = key_feature
        self._key_entry = None if schema is None or key_feature is None else schema.features[key_feature]
        self._is_large: Callable[[Mapping[str, Any]], bool] = is_large
        self._path = path
        self._validate = validate
        self._seen = 0
        self._turns = Turns()
        encoder = None if schema is None else Encoder(schema.features, allow_extra=schema.allow_extra)
        self._encode: Callable[[Mapping[str, Any]], bytes] = encode_example if encoder is None else encoder.encode
        self._encode_small = None if encoder is None else encoder.encode_small

    async def take(self, record: Record, key: Key = None) -> tuple[bytes, Key]:
        """Return the record as bytes to write, and its key. If cancelled, the record has not been accepted.

        Large records are encoded or checked in a worker thread. If there are many small records, other tasks get to run
        in between.

        Raises:
            SchemaError: the record does not fit the schema, or its key differs from its ``key_feature``.
            DecodeError: the record was passed as bytes, but is not an Example.
            TypeError: the record is neither a buffer nor a mapping.
        """
        if type(record) is dict or isinstance(record, Mapping):
            if self.key_feature is not None:
                record, key = self._with_key(record, key)
            if type(record) is dict and self._encode_small is not None:
                data = await self._turns.call(False, self._encode_small, record)
                if data is not None:
                    return data, key
            return await self._turns.call(self._is_large(record), self._encoded, record, key), key
        data = record if type(record) is bytes else await as_record(record)
        if self._looks_at():
            key = await self._turns.call(len(data) > LARGE_EXAMPLE, self._looked_at, data, key)
        elif self.key_feature is not None:
            key = await self._turns.call(len(data) > LARGE_EXAMPLE, self._key_in, data, key)
        return data, key

    def take_now(self, record: Record, key: Key = None) -> tuple[bytes, Key]:
        """Return the same as `take`, but without awaiting, in the caller's thread."""
        if isinstance(record, Mapping):
            if self.key_feature is not None:
                record, key = self._with_key(record, key)
            return self._encoded(record, key), key
        buffer_size(record)
        data = record if type(record) is bytes else bytes(record)
        if self._looks_at():
            key = self._looked_at(data, key)
        elif self.key_feature is not None:
            key = self._key_in(data, key)
        return data, key

    async def take_many(self, records: Iterable[Record], write: Callable[[list[bytes]], Awaitable[None]]) -> None:
        """Encode or check records without keys, and write them in lists. Records before a rejected one are written."""
        if isinstance(records, Mapping | bytes | bytearray | memoryview | str):
            kind = type(records).__name__
            raise ArgumentTypeError(
                f"write_many needs a list of records, not a single {kind}; use write, or pass a list"
            )
        unseen = self.schema is None or (self._validate == "none" and self.key_feature is None)
        if unseen and isinstance(records, list) and set(map(type, records)) == {bytes}:
            await write(records)
            return
        taken: list[bytes] = []
        size = number = 0
        try:
            for record in records:
                data, _ = await self.take(record)
                taken.append(data)
                number += 1
                size += len(data)
                if len(taken) >= _ROWS or size >= LARGE_RECORD:
                    full, taken, size = taken, [], 0
                    await write(full)
        except ExampleError as error:
            if taken:
                await write(taken)
            error.add_note(
                f"the error is in record {number:,} of this call, counted from 0; the records before it were accepted"
            )
            raise
        if taken:
            await write(taken)

    def _encoded(self, values: Mapping[str, Any], key: Key) -> bytes:
        try:
            return self._encode(values)
        except SchemaError as error:
            which = "" if key is None else f"the record with the key {key!r:.200}: "
            raise SchemaError(f"{self._path}: {which}{error}") from None

    def _with_key(self, values: Mapping[str, Any], key: Key) -> tuple[Mapping[str, Any], Key]:
        name = self.key_feature
        assert name is not None, "checked by the caller"
        there = values.get(name)
        if there is None:
            if key is None:
                raise SchemaError(
                    f"{self._path}: the record has no feature {name!r}, which must hold its key (key_feature)"
                )
            return {**values, name: key}, key
        if not isinstance(there, str | bytes):
            raise SchemaError(f"{self._path}: feature {name!r}: a key must be str or bytes, not {type(there).__name__}")
        if key is not None and _as_bytes(key) != _as_bytes(there):
            raise SchemaError(
                f"{self._path}: feature {name!r} is {there!r}, but key= is {key!r}; the two must be equal"
            )
        return values, there

    def _looks_at(self) -> bool:
        """Return whether the next record passed as bytes is checked against the schema."""
        if self.schema is None:
            return False
        self._seen += 1
        if self._validate == "all":
            return True
        return self._validate == "sample" and (self._seen <= _SAMPLE_FIRST or self._seen % _SAMPLE_EVERY == 0)

    def _looked_at(self, data: bytes, key: Key) -> Key:
        """Check a record passed as bytes, and return its key. Raise an ExampleError if the schema cannot decode it."""
        assert self.schema is not None, "checked by the caller"
        try:
            values = self.schema.decode(data)
        except ExampleError as error:
            raise type(error)(
                f"{self._path}: a record passed as bytes does not match the schema: {error}; correct the record, or "
                "pass validate='none' to accept records unchecked"
            ) from None
        return key if self.key_feature is None else self._with_key(values, key)[1]

    def _key_in(self, data: bytes, key: Key) -> Key:
        """Return the key in a record. This decodes only the key's feature, in a third of the time of `_looked_at`.

        Raise the errors of `_looked_at`, but only for the feature that holds the key.
        """
        from asyncrec.example._wire import BYTES, parse_example

        name, entry = self.key_feature, self._key_entry
        assert name is not None, "checked by the caller"
        assert entry is not None, "checked by the caller"
        try:
            kind, values = parse_example(data).get(name, (BYTES, []))
            if kind == BYTES and len(values) == 1:
                return self._with_key({name: entry.one(name, {name: (kind, values)})}, key)[1]
        except DecodeError:
            pass
        return self._looked_at(data, key)  # raises the error, or finds a default


def schema_of(given: GivenSchema) -> Schema | None:
    """Return the schema passed as a `Schema`, as its JSON, or as a mapping of names to entries.

    Raises:
        SchemaError: the option is not a schema.
    """
    if given is None:
        return None
    from asyncrec.example._entries import Entry
    from asyncrec.example._schema import Schema

    if isinstance(given, Schema):
        return given
    if not isinstance(given, Mapping):
        return Schema.from_json(given.to_json())
    if given and all(isinstance(entry, Entry) for entry in given.values()):
        return Schema(given)
    try:
        return Schema.from_json(given)
    except SchemaError as error:
        raise SchemaError(f"schema= takes a Schema, such as Schema({{'url': FixedLen((), 'str')}}): {error}") from None


def encoder_of(
    path: str, schema: Schema | None, *, validate: str, key_feature: str | None = None
) -> RecordEncoder | None:
    """Return the encoder of a writer with these options, or `None` if the writer has no schema.

    Raises:
        ValueError: the options contradict each other.
    """
    if validate not in ("sample", "all", "none"):
        raise ArgumentValueError(f"validate must be 'sample', 'all' or 'none', not {validate!r}")
    if key_feature is not None:
        from asyncrec.example._kinds import FixedLen

        entry = schema.features.get(key_feature) if schema is not None else None
        if entry is None:
            there = (
                "the writer has no schema"
                if schema is None
                else f"the schema has {', '.join(map(repr, schema.features))}"
            )
            raise ArgumentValueError(f"key_feature={key_feature!r}: the schema has no such feature; {there:.500}")
        if not isinstance(entry, FixedLen) or entry.shape != () or entry.dtype not in ("str", "bytes"):
            raise ArgumentValueError(
                f"key_feature={key_feature!r} is {entry!r}; a key must be FixedLen((), 'str') or FixedLen((), 'bytes')"
            )
    if schema is None:
        return None
    return RecordEncoder(path, schema, validate=validate, key_feature=key_feature)  # type: ignore[arg-type]  # checked above


def _as_bytes(key: str | bytes) -> bytes:
    return key.encode("utf-8", "surrogatepass") if isinstance(key, str) else key
