"""Numbers, sizes and times are formatted for people."""

from __future__ import annotations

import math

import pytest
from asyncrec_report.humans import amount, count, day, moment, number, share, size, span


@pytest.mark.parametrize(
    ("shown", "expected"),
    [
        (count(1, "record"), "1 record"),
        (count(2000, "record"), "2,000 records"),
        (count(2, "class", "classes"), "2 classes"),
        (size(0), "0 B"),
        (size(1023), "1,023 B"),
        (size(1536), "1.50 KiB"),
        (size(256 << 20), "256 MiB"),
        (size(1023 << 20), "1.00 GiB"),
        (size(15 << 40), "15.0 TiB"),
        (amount(950), "950"),
        (amount(12_345), "12.3k"),
        (amount(5_000_000), "5M"),
        (number(3.0), "3"),
        (number(-1234567), "-1,234,567"),
        (number(0.12345), "0.1235"),
        (number(5.5), "5.5"),
        (number(1e-9), "1e-09"),
        (number(1.5e18), "1.5e+18"),
        (number(math.nan), "nan"),
        (number(math.inf), "inf"),
        (share(0, 5), "0 %"),
        (share(1, 3), "33 %"),
        (share(1, 30), "3.3 %"),
        (share(1, 1_000_000), "< 0.1 %"),
        (share(999_999, 1_000_000), "> 99.9 %"),
        (share(9.97, 100), "10 %"),
        (share(1, 0), "0 %"),
        (moment("2026-11-21T03:20:15.123456Z"), "2026-11-21 03:20:15 UTC"),
        (moment("<never>"), "<never>"),
        (day("2026-11-01T03:20:15Z"), "1 November 2026"),
        (day("0001-01-01T00:00:00+14:00"), "0001-01-01T00:00:00+14:00"),
        (span(0.2), "0 seconds"),
        (span(150), "2 minutes"),
        (span(86400 * 12), "12 days"),
    ],
)
def test_formatters_render_numbers_sizes_and_times(shown: str, expected: str) -> None:
    assert shown == expected
