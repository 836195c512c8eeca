"""Dates in a store's answers.

The SDK's own way guesses at any form: 0.15 ms for a date, and 1,000 of them in a page of a listing would hold the loop.
"""

from __future__ import annotations

import email.utils
from datetime import datetime
from typing import Any

from botocore.utils import parse_timestamp

__all__ = ["parse_date"]


def parse_date(value: Any) -> datetime:
    """Parse a date, with its time zone.

    RFC 3339 (listings) and RFC 9110, 5.6.7 (headers) are parsed directly, anything else as the SDK does it.

    Raises:
        ValueError: no date.
    """
    if isinstance(value, str):
        read = email.utils.parsedate_to_datetime if value[-4:] == " GMT" else datetime.fromisoformat
        try:
            date = read(value)
        except (TypeError, ValueError):
            pass
        else:
            if date.tzinfo is not None:
                return date
    other: datetime = parse_timestamp(value)
    return other
