"""Determine the schema of a data set whose writers have several.

A schema may follow another if it decodes every record that the other decodes (`Schema.reads`). Then the later schema is
valid for all records, even while writers with the earlier schema are still at work.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from asyncrec.errors import SchemaError

if TYPE_CHECKING:
    from asyncrec.example._schema import Schema

Json = Mapping[str, Any]


def agreed(given: Iterable[tuple[str, Json]]) -> tuple[Json | None, list[str]]:
    """Return the schema that decodes the records of all writers, and sentences that explain each conflict.

    ``given`` are writers with their schemas, in order of time. If these contradict each other, return the latest.
    """
    schema: Json | None = None
    conflicts: list[str] = []
    for writer, other in given:
        if schema is None or schema == other:
            schema = other
            continue
        reason = _why_not(other, schema)
        if reason is None:
            schema = other
        elif _why_not(schema, other) is not None:
            conflicts.append(f"writer {writer} used a different schema than the writers before it: {reason}")
            schema = other
    return schema, conflicts


def refuse_incompatible(path: str, new: Schema, old: Json | None) -> None:
    """Raise SchemaError if records of the schema ``old`` would not decode with ``new``, the schema that follows."""
    if old is None:
        return
    reason = _why_not(new.to_json(), old)
    if reason is not None:
        raise SchemaError(
            f"{path}: the new schema cannot decode all records that the data set already has: {reason}. A new "
            "feature needs a default"
        ).with_remedy(
            "write to another name, or replace the data set with mode='replace'", command="write to another name"
        )


def _why_not(new: Json, old: Json) -> str | None:
    from asyncrec.example._schema import Schema  # most data sets have one schema, or none

    try:
        return Schema.from_json(new).reads(Schema.from_json(old))
    except SchemaError as error:
        return str(error)
