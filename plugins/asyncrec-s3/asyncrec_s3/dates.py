"""Dates in a store's answers.

The SDK's own way guesses at any form: 0.15 ms for a date, and 1,000 of them in a page of a listing would hold the loop.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

from botocore.utils import parse_timestamp

from asyncrec.storage.http import parse_http_date

__all__ = ["parse_date"]


def parse_date(value: Any) -> datetime:
    """Parse a date, with its time zone.

    RFC 3339 (listings) and RFC 9110, 5.6.7 (headers) are parsed directly, anything else as the SDK does it.

    Raises:
        ValueError: no date.
    """
    if isinstance(value, str):
        date = parse_http_date(value) if value[-4:] == " GMT" else _rfc_3339(value)
        if date is not None and date.tzinfo is not None:
            return date
    try:
        other: datetime = parse_timestamp(value)
    except (RuntimeError, OverflowError) as error:  # of a year with twenty digits, or seconds with four hundred
        raise ValueError(f"{str(value)[:40]!r} is not a date") from error
    return other


def _rfc_3339(value: str) -> datetime | None:
    try:
        return datetime.fromisoformat(value)
    except ValueError:
        return None
