"""Parsers of HTTP headers that several backends use."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest

from asyncrec.storage.http import parse_content_range, parse_http_date, parse_retry_after

YEAR = f"Thu, 01 Jan {10**20} 00:00:00 GMT"


def test_retry_after_is_parsed_as_seconds_or_date() -> None:
    assert parse_retry_after("12") == 12.0
    assert parse_retry_after(" 0.5 ") == 0.5
    later = parse_retry_after(format_datetime(datetime.now(UTC) + timedelta(seconds=100), usegmt=True))
    assert later is not None
    assert 90 < later <= 100
    assert parse_retry_after(format_datetime(datetime.now(UTC) - timedelta(seconds=100), usegmt=True)) == 0.0


@pytest.mark.parametrize("value", [None, "", "soon", "-1", "1e9", "٣", "9" * 400, "Mon, 32 Foo 2026", YEAR])
def test_invalid_retry_after_header_is_ignored(value: str | None) -> None:
    assert parse_retry_after(value) is None


def test_http_date_without_time_zone_is_utc() -> None:
    assert parse_http_date("Sat, 21 Nov 2026 06:38:50") == datetime(2026, 11, 21, 6, 38, 50, tzinfo=UTC)
    assert parse_http_date("Sat, 21 Nov 2026 07:38:50 +0100") == datetime(2026, 11, 21, 6, 38, 50, tzinfo=UTC)


@pytest.mark.parametrize("value", [None, "", "soon", "Mon, 32 Foo 2026", YEAR, f"Thu, 01 Jan 1970 00:00:00 +{10**17}"])
def test_invalid_http_date_is_ignored(value: str | None) -> None:
    assert parse_http_date(value) is None


def test_content_range_parses_to_offsets_and_total() -> None:
    assert parse_content_range("bytes 0-0/1") == (0, 1, 1)
    assert parse_content_range(" bytes 7-9/* ") == (7, 10, None)


BAD = (None, "", "bytes */5", "bytes 5-/6", "5-6/7", "bytes 1-2/-3", "bytes 1-2/" + "9" * 99)


@pytest.mark.parametrize("header", BAD)
def test_invalid_content_range_header_is_rejected(header: str | None) -> None:
    with pytest.raises(ValueError, match="the response has no valid Content-Range header"):
        parse_content_range(header)
