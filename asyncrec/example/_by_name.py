"""Look up features by name, in a schema or in the wire format of a record."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np

from asyncrec.errors import ArgumentValueError, DecodeError, SchemaError
from asyncrec.example._codec import Decoded
from asyncrec.example._compound import Sequence as FeatureList
from asyncrec.example._schema import Schema
from asyncrec.example._varints import int64_values
from asyncrec.example._wire import INT64, NONE, Raw, parse_example

# The maximum number of names in an error message.
MOST_NAMED = 30


def features_in(record: bytes) -> Mapping[str, Raw]:
    """Return the features of a record in their wire format, or ``{}`` if the record is not an Example."""
    try:
        return parse_example(record)
    except DecodeError:
        return {}


def features_of(schema: Mapping[str, Any] | None) -> dict[str, int] | None:
    """Return the features declared by a schema in the form of ``to_json``, with their kinds in the wire format.

    Return `None` if ``schema`` is `None`, cannot be read, or allows extra features.
    """
    if schema is None:
        return None
    try:
        read = Schema.from_json(schema)
    except SchemaError:
        return None
    if read.allow_extra:
        return None
    kinds = [entry.stored(name) for name, entry in read.features.items() if not isinstance(entry, FeatureList)]
    return {name: kind for stored in kinds for name, (kind, _) in stored.items()}


def unknown_feature(name: str, features: Collection[str], path: str) -> ArgumentValueError:
    """Return the error for a name that is not in ``features``."""
    if not features:
        return ArgumentValueError(
            f"{path}: there is no feature {name!r}, because the records are empty or are not Examples"
        )
    named = ", ".join(sorted(features)[:MOST_NAMED])
    more = ", ..." if len(features) > MOST_NAMED else ""
    return ArgumentValueError(f"{path}: there is no feature {name!r}; the features are {named}{more}")


def values_of(kind: int, payload: bytes | list[bytes]) -> Sequence[Any]:
    """Return the values of a feature from its wire format."""
    values = decoded_of(kind, payload)
    found: list[Any] = values if isinstance(values, list) else values.tolist()
    return found


def decoded_of(kind: int, payload: bytes | list[bytes]) -> Decoded:
    """Return the values of a feature from its wire format, like ``decode_example``. An array may be read-only."""
    if isinstance(payload, list):
        return payload
    if kind == NONE:
        return []
    return int64_values(payload) if kind == INT64 else np.frombuffer(payload, "<f4")
