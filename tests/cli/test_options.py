"""How the text of each option is parsed."""

from __future__ import annotations

import pytest

from asyncrec.cli._values import parse_duration, parse_options, parse_size
from asyncrec.errors import UsageError


def test_storage_options_parse_as_numbers_booleans_or_text() -> None:
    given = [
        "region=eu-west-1", "max-concurrency=8", "anonymous=true", "timeout=2.5", 'token="123"', "key=1e5", "x=a=b",
    ]  # fmt: skip
    assert parse_options(given) == {
        "region": "eu-west-1",
        "max_concurrency": 8,
        "anonymous": True,
        "timeout": 2.5,
        "token": "123",
        "key": "1e5",
        "x": "a=b",
    }
    assert parse_options(None) is None


@pytest.mark.parametrize(
    ("text", "size"),
    [("1000", 1000), ("64M", 64_000_000), ("64Mi", 64 << 20), ("1.5GiB", 3 << 29), ("2kb", 2000), ("1 GB", 10**9)],
)
def test_sizes(text: str, size: int) -> None:
    assert parse_size(text) == size


@pytest.mark.parametrize(("text", "seconds"), [("90s", 90), ("1.5h", 5400), ("2d", 172800), ("1w", 604800)])
def test_durations_are_parsed_with_units(text: str, seconds: float) -> None:
    assert parse_duration(text) == seconds


@pytest.mark.parametrize("text", ["", "x", "-1", "1 parsec"])
def test_malformed_size_and_duration_are_rejected(text: str) -> None:
    with pytest.raises(UsageError):
        parse_size(text)
    with pytest.raises(UsageError):
        parse_duration(text)


@pytest.mark.parametrize("text", ["36526d", "9999999999w", "9" * 400 + "w"])
def test_durations_of_more_than_century_are_rejected(text: str) -> None:
    assert parse_duration("36525d") == 36525 * 86400
    with pytest.raises(UsageError, match="longer than a century; the longest duration is 36525d"):
        parse_duration(text)
