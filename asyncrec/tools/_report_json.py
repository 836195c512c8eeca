"""`json_of` makes the JSON of a report from its named attributes, in that order."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any


def json_of(report: object, names: str, **instead: Any) -> dict[str, Any]:
    """Return the attributes of a report with these names, which are separated by spaces.

    A report among them is converted by its own ``to_json``, a time becomes text (ISO 8601), and a float is rounded to
    three places, because a report's floats are seconds and rates.

    Args:
        instead: the values of names that are not attributes, or those to show differently.
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
