"""Dates are parsed as stores write them."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from asyncrec_s3.sdk import parse_date


@pytest.mark.parametrize(
    "value",
    [
        "2026-11-21T06:38:50.000Z", "2026-11-21T06:38:50Z", "2026-11-21T07:38:50+01:00",
        "Sat, 21 Nov 2026 06:38:50 GMT", "Saturday, 21-Nov-26 06:38:50 GMT", "1795243130", 1795243130,
    ],
)  # fmt: skip
def test_parse_date_accepts_each_form(value: Any) -> None:
    assert parse_date(value) == datetime(2026, 11, 21, 6, 38, 50, tzinfo=UTC)


@pytest.mark.parametrize(
    "value",
    [
        "", "yesterday evening", None, f"Thu, 01 Jan {10**20} 00:00:00 GMT", f"2026-01-01T00:00:00+{10**20}:00",
        "9" * 400, 1e300,
    ],
)  # fmt: skip
def test_parse_date_rejects_invalid_value(value: Any) -> None:
    with pytest.raises((ValueError, TypeError)):
        parse_date(value)
