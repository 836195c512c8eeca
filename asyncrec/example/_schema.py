"""`Schema` describes the records of a data set, and decodes them to typed arrays, one at a time or in batches.

    schema = Schema({"label": FixedLen((), "int64"), "emb": FixedLen((256,), "float32"), "tags": VarLen("bytes")})
    schema.decode(record)["emb"]                 # float32 (256,)
    schema.decode_batch(records)["emb"]          # float32 (n, 256)

A record must match the schema exactly. A feature that is missing or unknown, or has the wrong kind or number of values,
raises a SchemaError. The error names the feature, the expected entry, the features of the record and, in a batch, the
index of the record. With ``allow_extra=True``, unknown features are ignored, so a schema can select a few columns of
wide records. The entries and their decoded values are described in `_entries`.

A schema with a Sequence decodes SequenceExamples. Any other schema decodes Examples. Batches of Examples are decoded
column by column, without an object per record (see `_columns`). SequenceExamples are parsed one by one.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping
from collections.abc import Sequence as SequenceOf
from typing import Any, NoReturn

import numpy as np

from asyncrec.errors import ArgumentTypeError, DecodeError, SchemaError
from asyncrec.example._columns import Column, column_of, read_columns
from asyncrec.example._compound import Sequence, Sparse, SparseArrays, from_json
from asyncrec.example._dtypes import Misfit
from asyncrec.example._encoding import Encoder
from asyncrec.example._entries import Entry, Ragged, Stored
from asyncrec.example._infer import inferred
from asyncrec.example._kinds import FixedLen, Tensor, VarLen
from asyncrec.example._wire import KINDS, NONE, Raw, parse_example, parse_sequence_example

__all__ = ["Entry", "FixedLen", "Ragged", "Schema", "Sequence", "Sparse", "SparseArrays", "Tensor", "VarLen"]

_VERSION = 1  # the version of the JSON form


class Schema:
    """An immutable mapping of feature names to entries.

    Equal schemas have equal entries in the same order. Raises SchemaError if two entries read the same feature as
    different kinds, or TypeError if a value is not an entry.
    """

    def __init__(self, features: Mapping[str, Entry], *, allow_extra: bool = False) -> None:
        self._features = dict(features)
        self._allow_extra = allow_extra
        self._stored: dict[str, Stored] = {}
        self._sequences: dict[str, Sequence] = {}
        self._reader: dict[str, str] = {}  # the entry that reads a feature, for error messages
        for name, entry in self._features.items():
            if not isinstance(entry, Entry):
                raise ArgumentTypeError(
                    f"{name!r}: {entry!r} is not an entry of a schema, such as FixedLen((), 'int64')"
                )
            if isinstance(entry, Sequence):
                self._sequences[name] = entry
                continue
            for feature, stored in entry.stored(name).items():
                known = self._stored.setdefault(feature, stored)
                if known.kind != stored.kind:
                    raise SchemaError(f"{name!r} and {self._reader[feature]!r} disagree about the kind of {feature!r}")
                self._stored[feature] = Stored(known.kind, known.required or stored.required)
                self._reader.setdefault(feature, name)
        self._kinds = {feature: stored.kind for feature, stored in self._stored.items()}
        self._encoder: Encoder | None = None  # created on first use

    @property
    def features(self) -> dict[str, Entry]:
        """A copy of the entries by name, in order."""
        return dict(self._features)

    @property
    def allow_extra(self) -> bool:
        """Whether to ignore features that are not in the schema."""
        return self._allow_extra

    def encode(self, values: Mapping[str, Any]) -> bytes:
        """Check values against the entries and encode them as a record.

        A feature with a default, a VarLen, a Sparse, or a Sequence of VarLen may be missing or None.
        ``schema.decode(schema.encode(values))`` returns the values, with missing values filled in, and with 64-bit
        floats rounded to 32 bits unless the entry is raw. An integer that a float feature would round does not fit.

        Raises SchemaError, naming the feature, the value and the expected entry, if a value is missing, does not fit or
        is not in the schema. Raises TypeError if ``values`` is not a mapping.
        """
        encoder = self._encoder
        if encoder is None:
            encoder = self._encoder = Encoder(self._features, allow_extra=self._allow_extra)
        return encoder.encode(values)

    def decode(self, record: bytes | bytearray | memoryview) -> dict[str, Any]:
        """Decode one record to a dict from names to values, in the schema's order.

        Raises DecodeError if the record is not an Example, or SchemaError if it does not match the schema.
        """
        data = record if type(record) is bytes else _record(record)
        try:
            if not self._sequences:
                raws = parse_example(data)
                self._check(raws, 0)
                return {name: entry.one(name, raws) for name, entry in self._features.items()}
            stacked = self._batch([data])
            return {name: entry.first(stacked[name]) for name, entry in self._features.items()}
        except (SchemaError, DecodeError, Misfit):
            self._explain(data)

    def decode_batch(self, records: SequenceOf[bytes]) -> dict[str, Any]:
        """Decode a batch of records to a dict of stacked values, in the schema's order. Faster than ``decode``.

        Raises the same errors as ``decode`` for the first invalid record. The message includes the record's index.
        """
        if isinstance(records, str | bytes | bytearray | memoryview):
            raise ArgumentTypeError(f"expected a list of records, not {type(records).__name__}")
        return self._batch(records)

    def stored_columns(self, records: SequenceOf[bytes], joined: Collection[str] = ()) -> dict[str, Column]:
        """Return the stored values of each feature of many Examples, with the number of values in each record.

        This is for code that builds other kinds of arrays, such as Arrow's. The bytes or text of a feature named in
        ``joined`` are returned in one buffer rather than as separate objects. SequenceExamples are not supported.
        Raises the same errors as ``decode``, except for errors found only when arrays are built.
        """
        return read_columns(records, self._kinds, self._check, joined)

    @classmethod
    def infer(cls, records: Iterable[bytes]) -> Schema:
        """Infer a schema that decodes all ``records``, each an Example or a SequenceExample. Every record is examined.

        A feature that always has one value becomes FixedLen((), ...), and one that always has n values becomes
        FixedLen((n,), ...). Other features, and those missing from some records, become VarLen. Types are int64,
        float32 and bytes, as in every Example. Names are in UTF-8 order. A feature that never has a kind is omitted.

        Raises SchemaError if there are no records, or if a feature has different kinds in two records. Raises
        DecodeError, naming the record, if a record is neither an Example nor a SequenceExample.
        """
        return cls(inferred(_parsed(record, row) for row, record in enumerate(records)))

    def to_json(self) -> dict[str, Any]:
        """Return the schema as a dict that ``json.dumps`` and ``from_json`` accept."""
        value: dict[str, Any] = {
            "version": _VERSION,
            "features": {name: entry.to_json() for name, entry in self._features.items()},
        }
        return value | {"allow_extra": True} if self._allow_extra else value

    @classmethod
    def from_json(cls, value: Mapping[str, Any] | str | bytes) -> Schema:
        """Create a schema from the result of ``to_json`` or its JSON text, as printed by ``asyncrec schema --json``.

        Raises SchemaError if the value is not a schema or has a later version.
        """
        try:
            return cls._from_json(json.loads(value) if isinstance(value, str | bytes) else value)
        except json.JSONDecodeError as error:
            raise SchemaError(f"not a valid schema: the text is not JSON: {error}") from None
        except UnicodeDecodeError:
            raise SchemaError("not a valid schema: the text is not UTF-8") from None
        except RecursionError:
            raise SchemaError("not a valid schema: the JSON is nested too deeply") from None

    @classmethod
    def _from_json(cls, value: Mapping[str, Any]) -> Schema:
        if not isinstance(value, Mapping) or not isinstance(value.get("features"), Mapping):
            raise SchemaError(f"not a valid schema: {value!r:.200}")
        if type(value.get("version")) is not int or value["version"] != _VERSION:
            raise SchemaError(f"the schema has version {value.get('version')!r}; this release reads only {_VERSION}")
        allow_extra = value.get("allow_extra", False)
        if not isinstance(allow_extra, bool) or not all(isinstance(name, str) for name in value["features"]):
            raise SchemaError(f"not a valid schema: {value!r:.200}")
        features = {name: from_json(entry) for name, entry in value["features"].items()}
        return cls(features, allow_extra=allow_extra)

    def merge(self, other: Schema) -> Schema:
        """Return a schema that decodes the records of both schemas.

        Each feature gets the smallest common type. A feature whose lengths differ becomes a VarLen, as does a FixedLen
        without a default that only one schema has. Raises SchemaError, naming the feature and both entries, if this
        would lose a shape or invent a value.
        """
        merged: dict[str, Entry] = {}
        for name in [*self._features, *(name for name in other._features if name not in self._features)]:
            one, two = self._features.get(name), other._features.get(name)
            entry = one.merged(two) if one and two else (one or two).where_absent()  # type: ignore[union-attr]  # one is set
            if entry is None:
                raise SchemaError(
                    f"feature {name!r}: no entry can read both {one or 'absent'} and {two or 'absent'}"
                    + ("" if one and two else "; give the entry a default")
                )
            merged[name] = entry
        return Schema(merged, allow_extra=self._allow_extra or other._allow_extra)

    def reads(self, other: Schema) -> str | None:
        """Return the reason why this schema cannot decode every record that ``other`` decodes, or `None` if it can.

        Unless it allows extra features, this schema must have each feature of ``other``. A shared feature must keep its
        default, and its type and shape must be able to represent the old values, as int64 represents int32, or a VarLen
        a one-dimensional FixedLen. A new feature must have a default, or be a VarLen or a Sparse.
        """
        for name, entry in other._features.items():
            mine = self._features.get(name)
            if mine is None:
                if not self._allow_extra:
                    return f"feature {name!r}: {entry} is missing"
                continue
            merged = entry.merged(mine)
            if merged is None or merged.to_json() != mine.to_json():
                return f"feature {name!r}: {entry} was changed to {mine}"
        for name, entry in self._features.items():
            if name not in other._features:
                absent = entry.where_absent()
                if absent is None or absent.to_json() != entry.to_json():
                    return f"feature {name!r}: {entry} is new and has no default"
        if other._allow_extra and not self._allow_extra:
            return "the old schema allowed other features (allow_extra=True), but the new one does not"
        return None

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Schema):
            return NotImplemented
        return self.to_json() == other.to_json() and list(self._features) == list(other._features)

    __hash__ = None  # type: ignore[assignment]  # a default may be a list

    def __repr__(self) -> str:
        extra = ", allow_extra=True" if self._allow_extra else ""
        return f"Schema({self._features!r}{extra})"

    def _explain(self, data: bytes) -> NoReturn:
        """Raise the error that decoding the record as a batch of one raises, without the index in the batch."""
        try:
            self._batch([data])
        except (SchemaError, DecodeError) as error:
            raise type(error)(str(error).removeprefix("record 0 of the batch: ")) from None
        raise AssertionError("a record was rejected by itself but accepted in a batch")

    def _batch(self, records: SequenceOf[bytes]) -> dict[str, Any]:
        if self._sequences:
            return self._sequence_batch(records)
        columns = self.stored_columns(records)
        return {name: self._stack(name, entry, columns, records) for name, entry in self._features.items()}

    def _sequence_batch(self, records: SequenceOf[bytes]) -> dict[str, Any]:
        contexts: list[dict[str, Raw]] = []
        all_steps: dict[str, list[list[Raw]]] = {name: [] for name in self._sequences}
        for row, record in enumerate(records):
            context, lists = _parsed(record, row)
            self._check(context, row)
            self._check_lists(lists, row)
            contexts.append(context)
            for name, steps in all_steps.items():
                steps.append(lists.get(name, []))
        values: dict[str, Any] = {}
        for name, entry in self._features.items():
            if not isinstance(entry, Sequence):
                columns = {
                    feature: self._column(feature, stored.kind, [[context.get(feature)] for context in contexts])
                    for feature, stored in entry.stored(name).items()
                }
                values[name] = self._stack(name, entry, columns, records)
                continue
            steps = all_steps[name]
            splits = np.zeros(len(steps) + 1, np.int64)
            np.cumsum([len(row) for row in steps], out=splits[1:])
            column = self._column(name, entry.stored(name)[name].kind, steps)
            values[name] = Ragged(self._stack(name, entry, {name: column}, records, splits), splits)
        return values

    def _column(self, name: str, kind: int, rows: SequenceOf[SequenceOf[Raw | None]]) -> Column:
        try:
            return column_of(kind, [raw for row in rows for raw in row])
        except DecodeError:
            for at, row in enumerate(rows):
                try:
                    column_of(kind, row)
                except DecodeError as error:
                    raise DecodeError(f"record {at} of the batch: feature {name!r}: {error}") from None
            raise

    def _stack(
        self, name: str, entry: Entry, columns: Mapping[str, Column], records: SequenceOf[bytes], steps: Any = None
    ) -> Any:
        try:
            return entry.stack(name, columns)
        except Misfit as misfit:
            row, where = misfit.row, f"feature {name!r}"
            if steps is not None:
                row = int(np.searchsorted(steps, misfit.row, "right")) - 1
                where = f"feature list {name!r}, step {misfit.row - int(steps[row])}"
            context, lists = _parsed(records[row], row)
            raise SchemaError(
                f"record {row} of the batch: {where}: {misfit.reason}; expected {entry}; {_there(context, lists)}"
            ) from None

    def _check(self, raws: Mapping[str, Raw], row: int) -> None:
        """Raise SchemaError unless a record has the features of the schema, with the right kinds."""
        for feature, (kind, required) in self._stored.items():
            found = raws.get(feature, (NONE,))[0]
            if found != kind and (found != NONE or required):
                reason = "missing" if found == NONE else f"its values are {KINDS[found]}"
                self._refuse(row, f"feature {feature!r}: {reason}", self._reader[feature], raws, {})
        if not self._allow_extra:
            for feature in raws:
                if feature not in self._stored and raws[feature][0] != NONE:
                    self._refuse(row, f"feature {feature!r} is not in the schema", None, raws, {})

    def _check_lists(self, lists: Mapping[str, SequenceOf[Raw]], row: int) -> None:
        for name, entry in self._sequences.items():
            kind, required = entry.stored(name)[name]
            if required and name not in lists:
                self._refuse(row, f"feature list {name!r} is missing", name, {}, lists)
            for step, (found, _) in enumerate(lists.get(name, ())):
                if found != kind and (found != NONE or required):
                    reason = "empty" if found == NONE else f"its values are {KINDS[found]}"
                    self._refuse(row, f"feature list {name!r}, step {step}: {reason}", name, {}, lists)
        if not self._allow_extra:
            for name in lists.keys() - self._sequences:
                self._refuse(row, f"feature list {name!r} is not in the schema", None, {}, lists)

    def _refuse(
        self, row: int, fault: str, name: str | None, raws: Mapping[str, Raw], lists: Mapping[str, SequenceOf[Raw]]
    ) -> None:
        expected = f"expected {self._features[name]}" if name else "to ignore such features, use allow_extra=True"
        raise SchemaError(f"record {row} of the batch: {fault}; {expected}; {_there(raws, lists)}")


def _record(record: Any) -> bytes:
    """Return the bytes of a bytes-like object. Reject an int n, which ``bytes`` would turn into n zeros."""
    try:
        return bytes(memoryview(record))
    except TypeError:
        raise ArgumentTypeError(f"a record must be bytes, not {type(record).__name__}") from None


def _parsed(record: bytes, row: int) -> tuple[dict[str, Raw], dict[str, list[Raw]]]:
    try:
        return parse_sequence_example(bytes(record))
    except DecodeError as error:
        raise DecodeError(f"record {row} of the batch: {error}") from None


def _there(raws: Mapping[str, Raw], lists: Mapping[str, SequenceOf[Raw]]) -> str:
    """Describe a record's features for an error message. List at most thirty, because a record may have thousands."""
    names = [repr(name) for name in raws] + [f"{name!r} (a list)" for name in lists]
    more = f" and {len(names) - 30} more" if len(names) > 30 else ""
    return f"the record has {', '.join(sorted(names)[:30]) or 'no features'}{more}"
