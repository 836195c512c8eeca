"""Headers of HTTP answers are read here, for the backends that speak it. Pure."""

from __future__ import annotations

import email.utils
import re
from datetime import UTC, datetime


def parse_retry_after(value: str | None) -> float | None:
    """Read the seconds from either form of ``Retry-After`` (RFC 9110, 10.2.3); `None` where it says nothing."""
    value = (value or "").strip()
    if not value:
        return None
    if re.fullmatch(r"[0-9]{1,9}(\.[0-9]{1,9})?", value):
        return float(value)
    date = parse_http_date(value)
    return None if date is None else max(0.0, (date - datetime.now(UTC)).total_seconds())


def parse_http_date(value: str | None) -> datetime | None:
    """Read a date of a header (RFC 9110, 5.6.7), in UTC where it names no time zone; `None` if it is not a date."""
    try:
        date = email.utils.parsedate_to_datetime(value or "")
    except (TypeError, ValueError, OverflowError):  # the last one is of a year with twenty digits
        return None
    return date if date.tzinfo is not None else date.replace(tzinfo=UTC)


def parse_content_range(value: str | None) -> tuple[int, int, int | None]:
    """Read which bytes ``[start, end)`` a 206 says it carries, and of how many: `None` where it does not know.

    Raises:
        ValueError: it does not say.
    """
    match = re.fullmatch(r"bytes ([0-9]{1,19})-([0-9]{1,19})/([0-9]{1,19}|\*)", (value or "").strip())
    if match is None:
        raise ValueError("the answer does not say which bytes it carries")
    return int(match[1]), int(match[2]) + 1, None if match[3] == "*" else int(match[3])
