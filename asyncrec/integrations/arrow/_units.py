"""Helpers for Arrow's time types: which kind of time a type measures, and its unit in columns of lists."""

from __future__ import annotations

from typing import Any

import pyarrow as pa


def leaf_of(kind: Any) -> Any:
    """Return the type of a column's single values, looking inside lists, dictionaries and extension types."""
    types = pa.types
    while True:
        if isinstance(kind, pa.BaseExtensionType):
            kind = kind.storage_type
        elif types.is_dictionary(kind) or _is_list(kind):
            kind = kind.value_type
        else:
            return kind


def with_leaf(kind: Any, leaf: Any) -> Any:
    """Return the same list type with a different type of single values. Dictionaries become their values."""
    types = pa.types
    if isinstance(kind, pa.BaseExtensionType):
        return with_leaf(kind.storage_type, leaf)
    if types.is_dictionary(kind):
        return with_leaf(kind.value_type, leaf)
    if not _is_list(kind):
        return leaf
    field = kind.value_field.with_type(with_leaf(kind.value_type, leaf))
    if types.is_fixed_size_list(kind):
        return pa.list_(field, kind.list_size)
    return pa.large_list(field) if types.is_large_list(kind) else pa.list_(field)


def kind_of_time(kind: Any) -> str | None:
    """Return which kind of time a type of single values measures, or `None` if it is not a time type."""
    types = pa.types
    if types.is_timestamp(kind):
        return "time" if kind.tz is None else "time in a zone"
    if types.is_date(kind):
        return "date"
    if types.is_time(kind):
        return "time of day"
    return "duration" if types.is_duration(kind) else None


def _is_list(kind: Any) -> bool:
    types = pa.types
    return bool(types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind))
