"""`json_of` converts selected attributes of a report to JSON."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any


def json_of(report: object, names: str, **instead: Any) -> dict[str, Any]:
    """Return the attributes of a report that are listed in ``names`` (separated by spaces), in that order.

    A value that is itself a report is converted by its ``to_json``, a time becomes text (ISO 8601), and a float is
    rounded to three decimal places, because the floats in reports are seconds and rates.

    Args:
        instead: values to use for these names instead of the attributes, which need not exist.
    """
    return {name: instead[name] if name in instead else _plain(getattr(report, name)) for name in names.split()}


def _plain(value: Any) -> Any:
    if isinstance(value, list | tuple):
        return [_of_report(each) for each in value]
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, datetime):
        return value.isoformat()
    return round(value, 3) if isinstance(value, float) else _of_report(value)


def _of_report(value: Any) -> Any:
    return value.to_json() if hasattr(value, "to_json") else value
